/* check.h - invariants: conditions that hold unless our own code is wrong.
 *
 *   GS_CHECK(charged_bytes >= reserved_bytes);
 *
 * A check that fails prints its file, line and condition to standard error and ends the program with SIGABRT.
 * Checks are compiled into debug builds, unit tests and builds with sanitizers. With NDEBUG (release builds) they
 * compile to nothing and do not evaluate their condition, so the condition must have no side effect.
 *
 * A check is for our own mistakes. Input from a user, a program, another process or shared memory is tested by
 * ordinary code and answered with an error. */
#pragma once

#ifdef NDEBUG

/* The condition is not evaluated, and what only a check reads or calls counts as used. */
#define GS_CHECK(condition) ((void)(0 && (condition)))

#else

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Writes past stdio's buffers and locks, which the program that ends here may hold. */
__attribute__((cold, noreturn, noinline, unused)) static void check_failed(const char *file, int line,
                                                                           const char *condition)
{
    dprintf(STDERR_FILENO, "gpuslice: %s:%d: a condition that must hold does not: %s\n", file, line,
            condition);
    abort();
}

#define GS_CHECK(condition)                                                                                  \
    (__builtin_expect(!(condition), 0) ? check_failed(__FILE__, __LINE__, #condition) : (void)0)

#endif
