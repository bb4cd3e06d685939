/* context_cost.h - what a context costs on a GPU, measured once a GPU and driver.
 *
 * A context is made by the driver before anybody can say how many bytes it takes. From what NVML shows for a
 * process that has just made its first one, less what its slot holds, the daemon learns it; from then on it
 * stands in every policy, and for a real card in the state file. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct context_measurement;
struct daemon;
struct process;

/* It is so many bytes on that GPU, unless that is known already. */
void context_cost_keep(struct daemon *daemon, unsigned gpu, uint64_t bytes);

/* Measure for `process`, on GPU `policy_gpu` of its session. `done` gets the cost, or 0 when it cannot be told
 * within 100 ms. False: without memory, `done` will not be called. At most one at a time for a process. */
bool context_cost_measure(struct process *process, unsigned policy_gpu,
                          void (*done)(void *argument, uint64_t bytes), void *argument);
/* The process, or the one that asked for its sake, has gone: `done` will not be called. Nothing without a
 * measurement. */
void context_cost_cancel(struct process *process);
