/* checkpoint_run.h - the program that has the driver take one process off the card, or bring it back
 * (moves_checkpoint.c). */
#pragma once

#include <stdbool.h>

/* `gpusliced --checkpoint ORDER`, where the order is one of
 *
 *   lock:PID                   its calls wait from now on
 *   out:PID                    it leaves the card
 *   in:PID[:UUID=BYTES[,...]]  it comes back and goes on. Nothing is begun unless each of these GPUs has so much free: a driver may
 *                              be unable to try again (NVIDIA/cuda-checkpoint, issue 44)
 *
 * Returns its exit status; writes what went wrong to stdout. */
int checkpoint_run(const char *order, bool is_simulated);
