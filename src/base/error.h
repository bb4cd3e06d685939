/* error.h - one error contract for the whole tree.
 *
 * A function that can fail returns 0 or a negative errno and takes `struct error *error` last. The first
 * function that decides something is an error fills it (what was wrong, what was expected, what to do);
 * callers pass it on. It is set only on failure, and may be NULL when the caller does not care. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#define ERROR_MESSAGE_BYTES 512

struct error {
    int status;       /* positive errno; 0 means no error */
    const char *code; /* "ERR_..." for API answers, a string constant; NULL when none fits */
    char message[ERROR_MESSAGE_BYTES];
};

/* Fill `error` and return -status. A message that is too long is cut. Control characters and bytes that are not
 * UTF-8 become '?', so a message is one line whatever it quotes. */
int error_set(struct error *error, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The same with ": strerror(status)" appended. */
int error_set_errno(struct error *error, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for another text that quotes what others wrote, cut at any byte: it is harmless to a terminal and valid in
 * JSON. */
void error_make_one_line(char *text);

/* Whether `result` says that the machine has run out of something: memory, descriptors, disk space. Such a failure
 * says nothing about the object that was asked for, which may well exist. */
static inline bool error_is_scarcity(int result)
{
    return result == -EMFILE || result == -ENFILE || result == -ENOMEM || result == -ENOSPC ||
           result == -EDQUOT;
}
