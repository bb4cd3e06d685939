/* move.h - how memory of the swap engine moves, in either direction: context by context, in batches.
 *
 * way        a context whose extents move, by what the engine has there for that (tools.h)
 * batch      extents that follow each other in the table: when its copies are done, and those of the next one run, its
 *            memory is given back (or told of as restored)
 * direction  what out and in do differently (swap_move.c)
 *
 * Who comes while this process leaves comes into what is given back, so it is two batches behind: batches are a small
 * part of all. But cuMemUnmap may wait for all that runs in the context (measure), and then the link is idle from the end of
 * the next batch's copies until those of the one after are submitted. So batches are never so small that this is long
 * beside them: those that took less than some milliseconds are followed by larger ones. */
#pragma once

#include "intercept/memory/engine/clean.h"
#include "intercept/memory/engine/state.h"

#define WAYS_MAX SWAP_CONTEXTS_MAX

struct way {
    CUcontext context;
    CUdevice device;
    bool is_own; /* made for this move alone */
};

struct move {
    struct swap *swap;
    void (*progress)(void);
    struct way ways[WAYS_MAX];
    uint32_t way_count;
    uint64_t batch_bytes, batch_most_bytes;
    uint64_t batch_done_ns; /* when the copies of the last one were done; 0: of none yet */
    uint64_t copied_bytes;  /* submitted, of all batches */
    /* The way that is gone at present. */
    const struct way *way;
    struct swap_tools *tools; /* of its context */
    struct digester digester;
    unsigned digester_tries; /* that are left, where it could not begin */
};

/* Indices in the table, from `begin` up to `end`. */
struct batch {
    uint32_t begin, end;
    uint64_t bytes, copied_bytes;
};

struct direction {
    bool (*is_to_move)(const struct extent *extent);
    /* Before its copies are submitted, while those of the batch before it go on; and while its own do. NULL: nothing. */
    void (*prepare)(struct move *move, const struct batch *batch);
    void (*go_on)(struct move *move, const struct batch *batch);
    /* Make it ready and submit its copies; and what follows when the batch's copies are done. */
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

/* The locks that keep contexts, and then the engine's. */
void move_lock_all(struct swap *swap);
void move_unlock_all(struct swap *swap);

/* All contexts of the process, which live on while their locks are held. */
void move_find_ways(struct move *move);

/* Physical memory of the program's outlives contexts; it comes back by one that is made for that, where there is none: not by
 * a primary one, as the program may have a handle of that which is to be dead. */
void move_add_own_ways(struct move *move);
void move_end_own_ways(struct move *move);

/* Whether the extent is copied by the way that is gone at present: its own context's, or the first of its device. */
bool move_goes_this_way(const struct move *move, const struct extent *extent);

/* --- batches.c ------------------------------------------------------------------------------------- */

/* Of a move of so much at most. */
void move_size_batches(struct move *move, uint64_t all_bytes);

/* Where it can be copied from and to: it has to be opened for that. */
CUresult move_open(struct extent *extent);
CUdeviceptr move_address(const struct extent *extent);

/* Submit the copies of one extent. */
CUresult move_copy(struct move *move, struct extent *extent, bool is_out);

/* Whether the extent of this index goes this way in this direction. */
bool move_takes(const struct move *move, const struct direction *direction, uint32_t index);

/* Everything that is to move in this direction, by all ways. When this returns, nothing of it goes on. */
CUresult move_all(struct move *move, const struct direction *direction);
