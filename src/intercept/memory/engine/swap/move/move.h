/* move.h - how memory of the swap engine moves, in either direction: context by context, in batches.
 *
 * way        a context whose extents move, with the streams and events that the engine has there (tools.h)
 * batch      extents that follow each other in the table. When a batch's copies are done, and those of the next one run,
 *            its memory is given back (or reported as restored)
 * direction  what moving out and moving in do differently (swap_move.c)
 *
 * A process that comes to the card while this one leaves uses the memory that is given back, so it is two batches
 * behind: therefore batches are a small part of the whole. But cuMemUnmap may wait for all that runs in the context
 * (measure), and then the link is idle from the end of the next batch's copies until those of the one after are
 * submitted. So batches must not be so small that this is long beside them: after a batch that took less than some
 * milliseconds, the next ones are larger. */
#pragma once

#include "intercept/memory/engine/swap/move/clean.h"
#include "intercept/memory/engine/swap/state.h"

#define WAYS_MAX SWAP_CONTEXTS_MAX

struct way {
    CUcontext context;
    CUdevice device;
    bool is_own; /* it was made for this move alone */
};

struct move {
    struct swap *swap;
    void (*progress)(void);
    struct way ways[WAYS_MAX];
    uint32_t way_count;
    uint64_t batch_bytes, batch_most_bytes;
    uint64_t batch_done_ns; /* when the copies of the last batch were done; 0: no batch's were yet */
    uint64_t copied_bytes;  /* submitted, in all batches */
    /* The way whose extents move now. */
    const struct way *way;
    struct swap_tools *tools; /* of its context */
    bool takes_digests;
    unsigned digester_tries; /* how often it may still try to begin with that */
};

/* Indices in the table, from `begin` up to `end`. */
struct batch {
    uint32_t begin, end;
    uint64_t bytes, copied_bytes;
    bool is_timed; /* its copies began with an event */
};

struct direction {
    bool (*is_to_move)(const struct extent *extent);
    /* Called for a batch before its copies are submitted, while those of the batch before run; and while its own run.
     * NULL: nothing to do. */
    void (*prepare)(struct move *move, const struct batch *batch);
    void (*go_on)(struct move *move, const struct batch *batch);
    /* Make the extent's memory, which is opened with that of its neighbours. NULL: it is there. */
    CUresult (*make)(struct extent *extent);
    /* Submit the extent's copies; and what follows once the batch's copies are done. */
    CUresult (*submit)(struct move *move, struct extent *extent);
    CUresult (*finish)(struct extent *extent);
};

/* The extents one after the other. */
static inline struct extent *move_first(struct move *move)
{
    return extents_next(&move->swap->extents, NULL);
}

static inline struct extent *move_next(struct move *move, struct extent *extent)
{
    return extents_next(&move->swap->extents, extent);
}

/* --- ways.c ---------------------------------------------------------------------------------------- */

/* Take the locks that keep contexts alive, and then the engine's. */
void move_lock_all(struct swap *swap);
void move_unlock_all(struct swap *swap);

/* Find all contexts of the process. They live on while their locks are held. */
void move_find_ways(struct move *move);

/* Physical memory that the program made itself outlives contexts. Where its device has no context left, it comes back
 * by a context that is made for that. It must not be the primary one, since the program may have a handle of that
 * which must stay dead. */
void move_add_own_ways(struct move *move);
void move_end_own_ways(struct move *move);

/* Whether the extent is copied by the way that moves now: by that of its own context, or by the first of its
 * device. */
bool move_goes_this_way(const struct move *move, const struct extent *extent);

/* --- batches.c ------------------------------------------------------------------------------------- */

/* Choose the sizes of batches for a move of at most `all_bytes`. */
void move_size_batches(struct move *move, uint64_t all_bytes);

/* Find the address to copy from and to, which has to be opened first. */
CUresult move_open(struct extent *extent);
CUdeviceptr move_address(const struct extent *extent);

/* Submit the copies of one extent. */
CUresult move_copy(struct move *move, struct extent *extent, bool is_out);

/* Whether the extent with this index moves by the present way in this direction. */
bool move_takes(const struct move *move, const struct direction *direction, uint32_t index);

/* Move everything that is to move in this direction, by all ways. When this returns, no copy goes on. */
CUresult move_all(struct move *move, const struct direction *direction);
