/* uncovered.h - programs that hold GPU memory outside of every session: told of as events, and, where
 * gpuslice.conf says so, ended. For a system daemon: a user's own has no say over others' programs. */
#pragma once

#include "base/error.h"

struct daemon;

/* Begin to look with every sample of NVML's. */
int uncovered_start(struct daemon *daemon, struct error *error);
void uncovered_stop(struct daemon *daemon);
