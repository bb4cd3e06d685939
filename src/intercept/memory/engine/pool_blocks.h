/* pool_blocks.h - which addresses of the swap engine's memory pools are whose.
 *
 * region    addresses that were reserved for a pool at once
 * block     a piece of a region: taken (the program has it), free (there is memory, or its copy in the arena), or absent
 *           (addresses alone)
 * order     whose work may still use a free block: that of a stream, up to an event. Later work of the same stream may
 *           have the block at once, anybody else when the event has happened
 * waiting   a free block that has an order
 *
 * Free blocks beside each other are one, but where their orders differ. Nothing here calls the driver, and nothing is
 * thread-safe: the engine has a lock. Memory comes from mmap, as in extents.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "intercept/memory/ranges.h"

#define BLOCK_GRAIN_BYTES UINT64_C(512) /* alignment of the driver's own allocations */
#define BLOCK_BINS 40u

struct order {
    CUevent event; /* NULL: nobody's work */
    CUcontext context;
    uint64_t stream; /* the driver's number of it; 0: not known, and then like no other */
    uint64_t number; /* later orders have higher ones */
};

struct block {
    uint64_t address, bytes;
    /* Taken: what the program asked for, and in which context. */
    uint64_t asked_bytes;
    CUcontext context;
    uint32_t pool; /* number of its pool */
    struct order order;
    enum { BLOCK_UNUSED, BLOCK_ABSENT, BLOCK_FREE, BLOCK_TAKEN } state;
    /* Each an index + 1: around it in its region; in the list of its kind; among those that wait. */
    uint32_t left, right, previous, next, previous_waiting, next_waiting;
};

struct blocks {
    struct block *table; /* of BLOCKS_MAX; pages that nobody touches cost nothing */
    uint32_t end, spare; /* as in struct extents */
    struct ranges taken;
    /* An order is not needed any more. */
    void (*forget)(const struct order *order);
};

/* The blocks of one pool. */
struct pool_blocks {
    uint32_t number;
    uint32_t bins[BLOCK_BINS]; /* free ones: index + 1 of the first, by the logarithm of their size */
    uint32_t absent, waiting;  /* likewise */
    uint64_t taken_bytes, present_bytes;
};

/* A new region: absent. False without memory. */
bool blocks_add_region(struct blocks *blocks, struct pool_blocks *pool, uint64_t address, uint64_t bytes);

/* The smallest of some free blocks that have `bytes` and may be used by work of `stream`; or by anybody's, in time. */
struct block *blocks_find_free(struct blocks *blocks, struct pool_blocks *pool, uint64_t bytes,
                               uint64_t stream, bool in_time);

/* Take the beginning of a free block. False without memory. */
bool blocks_take(struct blocks *blocks, struct pool_blocks *pool, struct block *block, uint64_t bytes,
                 uint64_t asked_bytes);

/* The taken block that begins there, or is around the address; NULL: none. */
struct block *blocks_find_taken(struct blocks *blocks, uint64_t address);

/* A taken block is free. */
void blocks_free(struct blocks *blocks, struct pool_blocks *pool, struct block *block,
                 const struct order *order);

/* Let go of the orders of which `is_over` says so. */
void blocks_settle(struct blocks *blocks, struct pool_blocks *pool, bool (*is_over)(const struct order *));

/* For work of `stream`: what is free for anybody beside blocks that wait for this stream becomes part of those. */
void blocks_join(struct blocks *blocks, struct pool_blocks *pool, uint64_t stream);

/* The absent blocks one after the other: NULL begins, and ends; and what is free to the left of one for `stream`, or NULL. */
struct block *blocks_next_absent(struct blocks *blocks, const struct pool_blocks *pool,
                                 const struct block *before);
struct block *blocks_free_left(struct blocks *blocks, const struct block *absent, uint64_t stream);

/* There is memory for the first `bytes` of an absent block: the free block of which that is part now. NULL without memory. */
struct block *blocks_bring(struct blocks *blocks, struct pool_blocks *pool, struct block *absent,
                           uint64_t bytes, uint64_t stream);

/* Free blocks that wait for nobody, one after the other; and there is no memory for a part of one any more. False without
 * memory. */
struct block *blocks_next_idle(struct blocks *blocks, const struct pool_blocks *pool,
                               const struct block *before);
bool blocks_send(struct blocks *blocks, struct pool_blocks *pool, struct block *block, uint64_t from,
                 uint64_t bytes);

/* All that is taken is free, and waits for nobody. */
void blocks_free_all(struct blocks *blocks, struct pool_blocks *pool);

/* A pool without any memory ends: its next region, which is forgotten. False: there is none left. */
bool blocks_remove_region(struct blocks *blocks, struct pool_blocks *pool, uint64_t *address,
                          uint64_t *bytes);
