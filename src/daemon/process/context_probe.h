/* context_probe.h - finds out what a context costs on each GPU, how large the GPU is for programs and what traits it has,
 * before a quota needs it.
 *
 * probe   a process of ours that says how much memory CUDA tells it the GPU has and which traits the driver's attributes show,
 *         makes a context there, and when its input ends tries what only memory can tell, says that and ends
 *
 * The daemon starts a probe for each GPU of which it does not know all, looks at what NVML shows for the probe, and ends it.
 * So the first program of a session meets the same quota as the second. Where NVML has no figure for the process, the
 * daemon takes the rise of the whole GPU's figure, if the figure falls by as much again when the probe ends: then nothing
 * else changed it. If a probe fails, the cost is measured at a program's first context (context_cost.h). */
#pragma once

#include <stdbool.h>

#include "base/error.h"

struct daemon;

/* Find out the costs that are not known, before the loop serves anybody. Takes some seconds at most, and never fails. */
int context_probe_start(struct daemon *daemon, struct error *error);

/* The probe itself: `gpusliced --probe-context UUID`. Returns its exit status. */
int context_probe_run(const char *uuid, bool is_simulated);
