/* events.h - for execution.c: events that wait to be told when they happened; and what they do not count. */
#pragma once

#include "simgpu/driver/sim.h"

/* Under execution_lock(): our work has come further; settle those events whose marks are reached, while the
 * timeline still knows the time. */
void events_settle(unsigned gpu);

/* The thread spent so long on computing a kernel's results in the GPU's place, right before it submits the kernel: if an
 * event is the last that it recorded in the stream, which was idle, the GPU reaches it so much later. So the time between
 * events is that of the GPU's work. */
void event_spare(CUcontext context, CUstream stream, uint64_t spent_ns);
