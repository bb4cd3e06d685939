/* costs.h - the host's time that calls take (constants.def); nothing at all where the constants are 0.
 *
 * the kernel's lock   NVIDIA's kernel module lets one call at a time, of all processes, change or ask what is on the
 *                     card. A call holds the lock for some time; the others wait, whatever they ask
 * the process's lock  while a process page-locks memory, all other calls of it wait
 * the loader's lock   while a process loads code, its other threads' calls that give the GPU work wait */
#pragma once

#include "simgpu/device/constants.h"

/* Spend what the row says. Waits first while another thread of this process loads code. */
void cost_pay_something(enum sim_constant row);
static inline void cost_pay(enum sim_constant row)
{
    if (!constants_are_free)
        cost_pay_something(row);
}

/* Wait for the kernel's lock, and hold it for `ns`. A process that is stopped or dies meanwhile holds it for no
 * longer than that. Valid after device_attach(). */
void cost_hold_kernel_lock(uint64_t ns);

/* The host comes back from a wait for the GPU some time after what it waited for (SIM_WAKE_NS). */
void cost_of_waking(void);

/* What it takes to get `bytes` of the GPU's memory, or to give some back. */
void cost_of_memory(uint64_t bytes);

/* What a call takes for each GiB of `bytes`, by the row. */
void cost_of_bytes(enum sim_constant each_gib, uint64_t bytes);

/* What page-locking memory of the host takes, as its pages are, under the process's lock; and wait while another thread of this
 * process has that lock. Whoever waits has its turn before what is page-locked later. */
void cost_of_registering(uint64_t address, uint64_t bytes);
void cost_wait_for_registering(void);

/* Load code for what the row says, under the loader's lock. */
void cost_load_code(enum sim_constant row);

/* Between the two, this thread's calls are parts of one call that was paid for. */
void cost_suspend(void);
void cost_resume(void);
