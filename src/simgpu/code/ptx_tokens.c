/* ptx_tokens.c - PTX text, token by token (ptx_tokens.h). */
#include "simgpu/code/ptx_tokens.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ptx_fail(struct ptx *ptx, CUresult result, const char *format, ...)
{
    char text[256];
    va_list arguments;
    if (ptx->result)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    ptx->result = image_fail(ptx->error, result, "PTX, line %u: %s", ptx->line, text);
    ptx->at = ptx->end;
    ptx->kind = TOKEN_END;
    ptx->length = 0;
}

static bool is_word_character(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

static void skip_blanks(struct ptx *ptx)
{
    while (ptx->at < ptx->end) {
        char next = ptx->at + 1 < ptx->end ? ptx->at[1] : 0;
        if (ptx->at[0] == '/' && next == '/') {
            while (ptx->at < ptx->end && *ptx->at != '\n')
                ptx->at++;
        } else if (ptx->at[0] == '/' && next == '*') {
            for (ptx->at += 2; ptx->at < ptx->end; ptx->at++) {
                ptx->line += *ptx->at == '\n';
                if (ptx->at[-1] == '*' && ptx->at[0] == '/')
                    break;
            }
            if (ptx->at == ptx->end)
                return;
            ptx->at++;
        } else if (isspace((unsigned char)ptx->at[0])) {
            ptx->line += *ptx->at == '\n';
            ptx->at++;
        } else {
            return;
        }
    }
}

void ptx_next(struct ptx *ptx)
{
    if (ptx->result)
        return;
    skip_blanks(ptx);
    ptx->token = ptx->at;
    if (ptx->at == ptx->end) {
        ptx->kind = TOKEN_END;
    } else if (is_word_character(*ptx->at) || *ptx->at == '.') {
        /* A number takes its dot and letters with it (0x1f, 4U, 1.5, 0f3F800000); a directive begins with a
         * dot. */
        bool is_number = isdigit((unsigned char)*ptx->at);
        ptx->kind = is_number ? TOKEN_NUMBER : TOKEN_WORD;
        ptx->at++;
        while (ptx->at < ptx->end && (is_word_character(*ptx->at) || (is_number && *ptx->at == '.')))
            ptx->at++;
    } else if (*ptx->at == '"') {
        ptx->kind = TOKEN_STRING;
        ptx->at++;
        while (ptx->at < ptx->end && *ptx->at != '"' && *ptx->at != '\n')
            ptx->at++;
        if (ptx->at == ptx->end || *ptx->at == '\n') {
            ptx_fail(ptx, CUDA_ERROR_INVALID_PTX, "a string that does not end");
            return;
        }
        ptx->at++;
    } else {
        ptx->kind = TOKEN_OTHER;
        ptx->at++;
    }
    ptx->length = (size_t)(ptx->at - ptx->token);
}

bool ptx_is(const struct ptx *ptx, const char *text)
{
    return ptx->kind != TOKEN_END && ptx->length == strlen(text) && !memcmp(ptx->token, text, ptx->length);
}

bool ptx_accept(struct ptx *ptx, const char *text)
{
    bool found = ptx_is(ptx, text);
    if (found)
        ptx_next(ptx);
    return found;
}

void ptx_expected(struct ptx *ptx, const char *what)
{
    if (ptx->kind == TOKEN_END)
        ptx_fail(ptx, CUDA_ERROR_INVALID_PTX, "expected %s, found the end", what);
    else
        ptx_fail(ptx, CUDA_ERROR_INVALID_PTX, "expected %s, found '%.*s'", what,
                 (int)(ptx->length < 60 ? ptx->length : 60), ptx->token);
}

void ptx_expect(struct ptx *ptx, const char *text)
{
    if (!ptx_accept(ptx, text))
        ptx_expected(ptx, text);
}

bool ptx_is_name(const struct ptx *ptx)
{
    return ptx->kind == TOKEN_WORD && ptx->token[0] != '.';
}

/* Read an integer literal: decimal, 0x, 0b or octal, with or without U. */
uint64_t ptx_number(struct ptx *ptx)
{
    char digits[72];
    if (ptx->kind != TOKEN_NUMBER || ptx->length >= sizeof(digits)) {
        ptx_expected(ptx, "a number");
        return 0;
    }
    memcpy(digits, ptx->token, ptx->length);
    digits[ptx->length] = 0;
    if (digits[ptx->length - 1] == 'U')
        digits[ptx->length - 1] = 0;
    bool is_binary = digits[0] == '0' && (digits[1] == 'b' || digits[1] == 'B');
    char *stop;
    uint64_t number = strtoull(digits + (is_binary ? 2 : 0), &stop, is_binary ? 2 : 0);
    if (*stop || stop == digits) {
        ptx_expected(ptx, "a number");
        return 0;
    }
    ptx_next(ptx);
    return number;
}

uint32_t ptx_alignment(struct ptx *ptx)
{
    uint64_t alignment = ptx_number(ptx);
    if (alignment < 1 || alignment > 4096 || (alignment & (alignment - 1))) {
        ptx_fail(ptx, CUDA_ERROR_INVALID_PTX, "an alignment is a power of two");
        return 1;
    }
    return (uint32_t)alignment;
}

/* Skip to behind the bracket that closes the current one. */
void ptx_skip_brackets(struct ptx *ptx, const char *open, const char *close)
{
    unsigned depth = 0;
    unsigned line = ptx->line;
    do {
        if (ptx->kind == TOKEN_END) {
            if (!ptx->result)
                ptx_fail(ptx, CUDA_ERROR_INVALID_PTX, "the %s of line %u is never closed", open, line);
            return;
        }
        if (ptx_is(ptx, open))
            depth++;
        else if (ptx_is(ptx, close))
            depth--;
        ptx_next(ptx);
    } while (depth);
}

void ptx_skip_statement(struct ptx *ptx)
{
    while (ptx->kind != TOKEN_END && !ptx_is(ptx, ";"))
        ptx_next(ptx);
    ptx_expect(ptx, ";");
}
