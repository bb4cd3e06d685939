/* published.h - a table in shared memory that changes as one, though any writer may stop or die at any
 * instruction.
 *
 * current   one word: which buffer is the table now, and a tag that is new with every change
 * buffers   two for each slot; only the slot's owner writes there, and only where current does not point
 *
 * To change the table: copy the current buffer to one of your own, ask whether what was copied was still
 * current all the time (else the copy may be torn), change the copy, and make it current by compare-and-swap;
 * begin again if another process was faster. No process waits for another: one that fails has seen another
 * succeed. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef _Atomic uint64_t published_current;

static inline uint32_t published_buffer(uint64_t current)
{
    return (uint32_t)(current & 0xffff);
}

/* Which of its two buffers `slot` may write now. */
static inline uint32_t published_own_buffer(uint64_t current, uint32_t slot)
{
    return published_buffer(current) == slot * 2 ? slot * 2 + 1 : slot * 2;
}

static inline uint64_t published_load(const published_current *current)
{
    return atomic_load_explicit(current, memory_order_acquire); /* with published_replace's release */
}

/* Whether what was read from the buffers since `seen` was loaded is whole. */
static inline bool published_is_still(const published_current *current, uint64_t seen)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(current, memory_order_relaxed) == seen;
}

static inline bool published_replace(published_current *current, uint64_t seen, uint32_t own_buffer)
{
    uint64_t next = ((seen >> 16) + 1) << 16 | own_buffer;
    return atomic_compare_exchange_strong_explicit(current, &seen, next, memory_order_release,
                                                   memory_order_relaxed);
}
