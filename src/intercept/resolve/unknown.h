/* unknown.h - functions of the driver that no table of ours knows.
 *
 * A driver that is newer than this library has functions, and new forms of functions, whose parameters nobody here knows.
 * The program gets them, but by a thunk (unknown.S), so that it is seen when it calls one: memory that could leave the
 * card then has to stay (unknown_when_called()). To ask for such a function, as runtimes do with every name that they know,
 * changes nothing; the daemon is told its name. */
#pragma once

/* How many functions can have a thunk. */
#define UNKNOWN_MOST 256
/* How many of a call's first arguments are in general registers. */
#if defined(__aarch64__)
#define UNKNOWN_ARGUMENTS 8
#else
#define UNKNOWN_ARGUMENTS 6
#endif

#ifndef __ASSEMBLER__
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the program gets in place of `function`, which the driver gave it for `name`: a thunk, and always the same one for a
 * function. Where no thunk is left, the function itself, which then counts as called. */
void *unknown_function(const char *name, void *function);

/* Have `meet` called before each call of such a function. It may change the arguments. Returns whether one was called already
 * before this call, when there was nobody to tell. */
typedef void unknown_meet(const char *name, uint64_t arguments[static UNKNOWN_ARGUMENTS]);
bool unknown_when_called(unknown_meet *meet);

/* Have `tell` called whenever the program has asked for another such function. */
void unknown_when_asked(void (*tell)(void));

/* Write the names of those that the program asked for, in the order in which it did, with a space between two: as many as there
 * is room for. Returns how many were written. */
unsigned unknown_names(char *text, size_t size);

/* The program calls `function` of this name without a thunk: it counts as called already. */
void unknown_linked(const char *name, void *function);

/* Find those that the program and its libraries are linked with, as they are loaded now (unknown_linked.c). */
void unknown_find_linked(void);

/* What thunk `number` calls. Returns the driver's function. */
void *unknown_called(unsigned number, uint64_t arguments[static UNKNOWN_ARGUMENTS]);
#endif
