#include "intercept/submit/work_estimate.h"

#define CHUNKS_AHEAD 3u
#define CHUNKS_AHEAD_MOST 6u
#define CHUNK_MOST 1024u
/* The estimate is a mean in which all earlier calls together weigh as much as this many calls. */
#define CALLS_BEFORE 7u
/* With each wait that was not too long, the bound on what a stream may have before it loses one in this many parts of what
 * it has above its least value. It loses more where the lease sets a lower value, since the latency of another session then
 * counts more than the GPU's idling because of a late thread. */
#define AHEAD_DECAY 256u
#define AHEAD_DECAY_BOUNDED 64u

static void set(struct work_estimate *estimate, uint64_t piece_ns, uint64_t chunk)
{
    chunk = chunk < 1 ? 1 : chunk > CHUNK_MOST ? CHUNK_MOST : chunk;
    atomic_store_explicit(&estimate->piece_ns, piece_ns, memory_order_relaxed);
    atomic_store_explicit(&estimate->chunk, (uint32_t)chunk, memory_order_relaxed);
}

void work_estimate_reset(struct work_estimate *estimate)
{
    set(estimate, 0, 1);
}

void work_estimate_measured(struct work_estimate *estimate, uint64_t pieces, uint64_t took_ns,
                            uint64_t ahead_ns)
{
    uint64_t piece_ns = work_estimate_piece_ns(estimate), chunk = work_estimate_chunk(estimate);
    uint64_t each_ns = took_ns / pieces ? took_ns / pieces : 1;
    uint64_t mean_ns = (piece_ns * CALLS_BEFORE + each_ns * pieces) / (CALLS_BEFORE + pieces);
    /* If the program left a gap, `took_ns` is too much, so the estimate at most doubles. */
    piece_ns = !piece_ns ? each_ns : mean_ns > 2 * piece_ns ? 2 * piece_ns : mean_ns ? mean_ns : 1;
    uint64_t chunks = ahead_ns <= 2 * AHEAD_LEAST_NS ? CHUNKS_AHEAD : CHUNKS_AHEAD_MOST;
    uint64_t fitting = ahead_ns / chunks / piece_ns;
    set(estimate, piece_ns, fitting > chunk * 4 ? chunk * 4 : fitting);
}

void work_estimate_bounded(struct work_estimate *estimate, uint64_t pieces, uint64_t most_ns)
{
    uint64_t piece_ns = work_estimate_piece_ns(estimate), chunk = work_estimate_chunk(estimate);
    if (most_ns / pieces < piece_ns)
        piece_ns = most_ns / pieces;
    set(estimate, piece_ns, most_ns < AHEAD_LEAST_NS / CHUNKS_AHEAD ? chunk * 2 : chunk);
}

uint64_t work_estimate_left_ns(const struct work_estimate *estimate, uint64_t pieces, uint64_t passed_ns,
                               uint64_t others)
{
    uint64_t piece_ns = work_estimate_piece_ns(estimate);
    if (piece_ns * pieces > passed_ns)
        return piece_ns * pieces - passed_ns + piece_ns * others;
    return passed_ns / pieces * others; /* `pieces` take longer than the estimate, so `others` may too */
}

uint64_t work_estimate_ahead(uint64_t ns, uint64_t least_ns, bool dry)
{
    if (ns < least_ns)
        ns = least_ns;
    if (!dry)
        return ns - (ns - least_ns) / (least_ns < AHEAD_LEAST_NS ? AHEAD_DECAY_BOUNDED : AHEAD_DECAY);
    return ns * 3 / 2 < AHEAD_MOST_NS ? ns * 3 / 2 : AHEAD_MOST_NS > ns ? AHEAD_MOST_NS : ns;
}

uint64_t work_estimate_ahead_of_gap(uint64_t ns)
{
    return ns * 3 / 2 < AHEAD_OF_GAP_MOST_NS ? ns * 3 / 2 : AHEAD_OF_GAP_MOST_NS;
}
