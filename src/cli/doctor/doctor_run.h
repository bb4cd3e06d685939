/* doctor_run.h - run a small program to its end and read its output. */
#pragma once

#include <stddef.h>

/* The environment that a program is run in. */
enum doctor_environment { DOCTOR_PLAIN, DOCTOR_IN_SESSION, DOCTOR_IN_SIMULATED_SESSION };

/* Run `words`, a program from PATH, with its stdout and stderr going to `text`, which is cut to fit. Returns the
 * exit status; -1 when the program could not be run, was ended by a signal, or took more than 5 s. */
int doctor_run(char *const *words, enum doctor_environment environment, char *text, size_t bytes);
