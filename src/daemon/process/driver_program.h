/* driver_program.h - programs of ours that call the driver. The daemon itself never does: a driver call may wait without
 * end, or leave the process with a context. Each such program is `gpusliced` with an option of its own. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

/* Start this executable again with the arguments `words`, `output` as its standard output and, unless it is negative,
 * `input` as its standard input. It is in no session, whatever the daemon's environment says. Returns 0, or a positive
 * errno. */
int driver_program_start(char *const words[], int input, int output, pid_t *program);

/* In such a program: load the driver, or the simulated one. NULL with `error` set. */
void *driver_program_load(bool is_simulated, struct error *error);
