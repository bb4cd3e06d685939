/* fuzz.h - what a fuzz target is: one function that reads bytes as one of our parsers does.
 *
 * Each target stands in a file of its own. libFuzzer runs it (scripts/fuzz), and replay.c hands it the corpus
 * in every other build, so that what was once found is looked for by each compiler and sanitizer. A target
 * checks what the parser promises beyond not crashing with fuzz_require(). */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns 0. Called by libFuzzer or replay.c for each input. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* In every build: assert() is not. */
#define fuzz_require(condition)                                                                              \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                          \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

/* The input as text of exactly its length, so that a sanitizer sees a step beyond the zero. The caller frees
 * it. */
static inline char *fuzz_text(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);
    fuzz_require(text);
    if (bytes)
        memcpy(text, data, bytes);
    text[bytes] = '\0';
    return text;
}
