/* starters.h - programs that have others start programs: container runtimes, servers that run already, other machines.
 * The environment that `gpuslice run` sets does not reach what they start.
 *
 *   starter   such a program, a row of starters.def
 *   verb      the word of a command that says what the starter is to do
 *   launcher  a program that starts the command after it itself, like env: the environment passes through it
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct starter {
    const char *name;
    const char *starts;  /* verbs, with a blank between them; "*": every command of it starts programs */
    const char *resumes; /* of a container's starter: verbs that start what was described before */
    const char *volume, *device, *environment, *prefix; /* of a container's starter: as in starters.def */
    const char *where, *instead;                        /* of the others; NULL: it starts containers */
};

/* The row of the program that `word` names, with or without its whole path; NULL: it is not a starter. */
const struct starter *starter_named(const char *word);

/* Whether the command, whose first word the starter is, starts programs. If so, sets `verb` to the index of the word that
 * says so (0: the starter itself), and `is_new` to whether it starts something that was not described before. */
bool starter_starts(const struct starter *starter, char *const *command, size_t *verb, bool *is_new);

/* The starter by which the command starts programs, also behind launchers; NULL: there is none, as when podman lists
 * images. One that starts containers counts before one that does not, like sudo. */
const struct starter *starter_used(char *const *command);

/* -EINVAL with what to do instead, if what the command starts would run without limits; else 0. */
int starter_check(char *const *command, struct error *error);
