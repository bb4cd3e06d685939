/* synchronous.h - memory of cuMemAlloc that the program set to SYNC_MEMOPS, where it is ours.
 *
 * The driver guarantees for such memory that synchronous copies and memsets are done when they return, which they need not be
 * otherwise (driver API reference, "API synchronization behavior"). It refuses that for memory of cuMemCreate, which is what the
 * swap engine gives out in the place of cuMemAlloc's. So the engine notes it, and from then on the process waits after each such
 * call (hook_submit.c): programs set it for what a network card reads, which has no other way to know. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "cuda/driver.h"

extern atomic_bool synchronous_in_use;

/* Whether any memory of the process was ever set. */
static inline bool synchronous_is_in_use(void)
{
    return atomic_load_explicit(&synchronous_in_use, memory_order_relaxed);
}

/* Some was set. */
static inline void synchronous_begin(void)
{
    atomic_store_explicit(&synchronous_in_use, true, memory_order_relaxed);
}

/* A synchronous copy or memset was put into `stream`, and answered `result`: wait for it if it succeeded. */
CUresult synchronous_end(CUstream stream, CUresult result);
