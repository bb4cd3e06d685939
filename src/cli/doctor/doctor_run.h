/* doctor_run.h - run a small program to its end and read what it says. */
#pragma once

#include <stddef.h>

/* Run `words` (the first found in PATH) with stdout and stderr into `text`, which is cut to fit, and
 * LD_PRELOAD set to `preload` (NULL: as it is). Returns its exit status; -1 when it cannot be run, was ended
 * by a signal, or took above 5 s. */
int doctor_run(char *const *words, const char *preload, char *text, size_t bytes);
