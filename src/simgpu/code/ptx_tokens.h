/* ptx_tokens.h - PTX text as words, numbers, strings and single characters, with the place and the first
 * failure. */
#pragma once

#include "simgpu/code/image.h"

enum token_kind {
    TOKEN_END,
    TOKEN_WORD, /* a name, or a directive with its dot */
    TOKEN_NUMBER,
    TOKEN_STRING,
    TOKEN_OTHER, /* one character */
};

struct ptx {
    const char *at, *end; /* behind the current token; of the text */
    unsigned line;
    enum token_kind kind; /* of the current token */
    const char *token;
    size_t length;
    unsigned architecture;
    struct sim_image *image;
    CUresult result; /* the first failure; from then on there are no tokens */
    struct error *error;
};

/* Fail with a message of that line, unless there was a failure before. */
void ptx_fail(struct ptx *ptx, CUresult result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same as INVALID_PTX: the text has something else than `what`. */
void ptx_expected(struct ptx *ptx, const char *what);

void ptx_next(struct ptx *ptx); /* move on to the next token */
bool ptx_is(const struct ptx *ptx, const char *text);
bool ptx_is_name(const struct ptx *ptx);            /* a word that is not a directive */
bool ptx_accept(struct ptx *ptx, const char *text); /* move on if it is that */
void ptx_expect(struct ptx *ptx, const char *text); /* move on, or fail */

/* An integer literal: decimal, 0x, 0b or octal, with or without U. A power of two up to 4,096. */
uint64_t ptx_number(struct ptx *ptx);
uint32_t ptx_alignment(struct ptx *ptx);

/* Skip to behind the bracket that closes the current one; to behind the next semicolon. */
void ptx_skip_brackets(struct ptx *ptx, const char *open, const char *close);
void ptx_skip_statement(struct ptx *ptx);
