/* checkpoint_run.h - the program that has the driver take one process off the card, or bring it back
 * (moves_checkpoint.c). */
#pragma once

#include <stdbool.h>

/* `gpusliced --checkpoint out:PID`, or in:PID. Returns its exit status; writes what went wrong to stdout. */
int checkpoint_run(const char *order, bool is_simulated);
