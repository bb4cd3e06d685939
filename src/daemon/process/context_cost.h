/* context_cost.h - what a context costs on a GPU, measured once for each GPU and driver.
 *
 * The driver makes a context before anybody can say how many bytes it takes. The daemon learns the cost from a process that
 * has just made its first context: NVML's figure for the process, less what its slot holds. From then on the cost is in
 * every policy region, and for a real card in the state file. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct context_measurement;
struct daemon;
struct process;

/* Keep `bytes` as the cost on that GPU, unless the cost is known already. */
void context_cost_keep(struct daemon *daemon, unsigned gpu, uint64_t bytes);
/* The same, whether or not a cost is known. */
void context_cost_replace(struct daemon *daemon, unsigned gpu, uint64_t bytes);

/* Measure for `process`, on GPU `policy_gpu` of its session. `done` gets the cost, or 0 when it cannot be told within
 * 90 ms. False: without memory; `done` will not be called. At most one measurement at a time for a process. */
bool context_cost_measure(struct process *process, unsigned policy_gpu,
                          void (*done)(void *argument, uint64_t bytes), void *argument);
/* The process has gone, or the client that asked: `done` will not be called. Nothing without a measurement. */
void context_cost_cancel(struct process *process);
