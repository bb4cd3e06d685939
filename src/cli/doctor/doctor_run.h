/* doctor_run.h - run a small program to its end and read what it says. */
#pragma once

#include <stddef.h>

/* The environment that a program is run in. */
enum doctor_environment { DOCTOR_PLAIN, DOCTOR_IN_SESSION, DOCTOR_IN_SIMULATED_SESSION };

/* Run `words` (the first found in PATH) with stdout and stderr into `text`, which is cut to fit. Returns its
 * exit status; -1 when it cannot be run, was ended by a signal, or took above 5 s. */
int doctor_run(char *const *words, enum doctor_environment environment, char *text, size_t bytes);
