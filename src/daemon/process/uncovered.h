/* uncovered.h - programs that hold GPU memory outside of every session: reported as events and, where gpuslice.conf says
 * so, ended. Only in a system daemon: a user's own daemon has no say over other users' programs. */
#pragma once

#include "base/error.h"

struct daemon;

/* Start to look, with every sample of NVML's. */
int uncovered_start(struct daemon *daemon, struct error *error);
void uncovered_stop(struct daemon *daemon);
