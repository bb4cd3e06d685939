/* context_probe.h - what a context costs on each GPU, found out before a quota needs it.
 *
 * probe   a process of ours that makes a context on one GPU, says so, and ends when its input does
 *
 * The daemon starts one for each GPU of which it does not know the cost, looks at what NVML shows for it, and ends it. So the
 * first program of a session meets the same quota as the second. Where NVML has no figure for the process, what the
 * whole GPU's figure rose by counts, if it falls by as much again when the probe ends: then nobody else changed it. A
 * probe that fails leaves the cost to be measured at a program's first context (context_cost.h). */
#pragma once

#include <stdbool.h>

#include "base/error.h"

struct daemon;

/* Learn what is not known, before the loop serves anybody. Takes some seconds at most, and never fails the daemon. */
int context_probe_start(struct daemon *daemon, struct error *error);

/* The probe itself: `gpusliced --probe-context UUID`. Its exit status. */
int context_probe_run(const char *uuid, bool is_simulated);
