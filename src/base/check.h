/* check.h - invariants: what must be true, or this code is wrong.
 *
 *   GS_CHECK(charged_bytes >= reserved_bytes);
 *
 * A check that fails says where on standard error and ends the program with SIGABRT. Checks live in debug builds,
 * unit tests and builds with sanitizers; with NDEBUG (release builds) they compile to nothing, and their
 * condition is not evaluated: it must have no effect of its own.
 *
 * A check is for our own mistakes. What a user, a program, another process or shared memory says is looked at
 * by ordinary code and answered with an error. */
#pragma once

#ifdef NDEBUG

/* The operand of sizeof is not evaluated, and a variable that only a check reads counts as used. */
#define GS_CHECK(condition) ((void)sizeof(!(condition)))

#else

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Past stdio's buffers and locks: the program that this ends may hold them. */
__attribute__((cold, noreturn, noinline, unused)) static void check_failed(const char *file, int line,
                                                                           const char *condition)
{
    dprintf(STDERR_FILENO, "gpuslice: %s:%d: this must be true and is not: %s\n", file, line, condition);
    abort();
}

#define GS_CHECK(condition)                                                                                  \
    (__builtin_expect(!(condition), 0) ? check_failed(__FILE__, __LINE__, #condition) : (void)0)

#endif
