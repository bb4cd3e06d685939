/* work_estimate.h - how long the work of one call takes on the GPU, and how many calls should be before a
 * mark, learned from marks that were reached. Pure: the caller has the clock and the driver.
 *
 * piece    what one call gives the GPU
 * chunk    the calls from one mark to the next: about a third of what a stream may have before it, or a sixth where that
 *          is much */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What a stream has before it when a thread may add to it: as little as the machine's CPUs allow, which may
 * be late in letting a thread go on. */
#define AHEAD_LEAST_NS UINT64_C(1500000)
#define AHEAD_MOST_NS UINT64_C(6000000)
/* The same for a program that does other things between its calls. */
#define AHEAD_OF_GAP_MOST_NS UINT64_C(12000000)

/* Written under the entry's lock; both may be read without. */
struct work_estimate {
    /* 0: not known. */
    _Atomic uint64_t piece_ns;
    _Atomic uint32_t chunk;
};

void work_estimate_reset(struct work_estimate *estimate);

/* The GPU took `took_ns` for `pieces`, by its own clock or by one that watched it. */
void work_estimate_measured(struct work_estimate *estimate, uint64_t pieces, uint64_t took_ns,
                            uint64_t ahead_ns);
/* All that is certain is that `pieces` took no longer than `most_ns`. */
void work_estimate_bounded(struct work_estimate *estimate, uint64_t pieces, uint64_t most_ns);

/* How long `pieces`, begun `passed_ns` ago, and `others` behind them should still take. */
uint64_t work_estimate_left_ns(const struct work_estimate *estimate, uint64_t pieces, uint64_t passed_ns,
                               uint64_t others);

/* What a stream may have before it, after a thread has waited for room; `ns` is what it was, `least_ns` what
 * it is at least. `dry`: the wait was so long that nothing was left before the stream. */
uint64_t work_estimate_ahead(uint64_t ns, uint64_t least_ns, bool dry);
/* The same, where a thread had waited for room and came back too late. */
uint64_t work_estimate_ahead_of_gap(uint64_t ns);

static inline uint64_t work_estimate_piece_ns(const struct work_estimate *estimate)
{
    return atomic_load_explicit(&estimate->piece_ns, memory_order_relaxed);
}

static inline uint32_t work_estimate_chunk(const struct work_estimate *estimate)
{
    return atomic_load_explicit(&estimate->chunk, memory_order_relaxed);
}
