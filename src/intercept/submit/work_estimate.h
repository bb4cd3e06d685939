/* work_estimate.h - an estimate of how long the work of one call takes on the GPU, and so of how many calls there should
 * be from one mark to the next. It is learned from marks that were reached. Pure: the caller has the clock and the driver.
 *
 * piece    the work of one call
 * chunk    the calls from one mark to the next: about a third of what a stream may have before it, or a sixth if that is
 *          more than 3 ms */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* How much work a stream may have before it when a thread adds to it. The bound rises from the first value to the second
 * if the machine's CPUs are busy and threads wake up late. */
#define AHEAD_LEAST_NS UINT64_C(1500000)
#define AHEAD_MOST_NS UINT64_C(6000000)
/* The same for a program that does other things between its calls. */
#define AHEAD_OF_GAP_MOST_NS UINT64_C(12000000)

/* Written under the entry's lock; may be read without it. */
struct work_estimate {
    /* 0: unknown. */
    _Atomic uint64_t piece_ns;
    _Atomic uint32_t chunk;
};

void work_estimate_reset(struct work_estimate *estimate);

/* The GPU took `took_ns` for `pieces`, by its own clock or by the clock of a thread that watched it. `ahead_ns`: what the
 * stream may have before it. `pieces` is not 0. */
void work_estimate_measured(struct work_estimate *estimate, uint64_t pieces, uint64_t took_ns,
                            uint64_t ahead_ns);
/* It is only known that `pieces`, which is not 0, took no longer than `most_ns`. */
void work_estimate_bounded(struct work_estimate *estimate, uint64_t pieces, uint64_t most_ns);

/* How long `pieces`, begun `passed_ns` ago, and `others` behind them should still take. `pieces` is not 0. */
uint64_t work_estimate_left_ns(const struct work_estimate *estimate, uint64_t pieces, uint64_t passed_ns,
                               uint64_t others);

/* The new bound on what a stream may have before it, after a thread has waited for room. `ns` is the bound so far,
 * `least_ns` its least value. `dry`: the thread woke so late that nothing was left before the stream. */
uint64_t work_estimate_ahead(uint64_t ns, uint64_t least_ns, bool dry);
/* The same if a thread had waited for room and then submitted its next work only after the stream had run out of it. */
uint64_t work_estimate_ahead_of_gap(uint64_t ns);

static inline uint64_t work_estimate_piece_ns(const struct work_estimate *estimate)
{
    return atomic_load_explicit(&estimate->piece_ns, memory_order_relaxed);
}

static inline uint32_t work_estimate_chunk(const struct work_estimate *estimate)
{
    return atomic_load_explicit(&estimate->chunk, memory_order_relaxed);
}
