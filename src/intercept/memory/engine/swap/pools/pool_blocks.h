/* pool_blocks.h - who has which addresses of the swap engine's memory pools.
 *
 * region    addresses that were reserved for a pool at once
 * block     a piece of a region: taken (the program has it), free (there is memory, or its copy in the arena), or absent
 *           (addresses alone)
 * order     work that may still use a free block: that of one stream, up to an event. Later work of the same stream may
 *           get the block at once; other work may once the event has happened
 * waiting   a free block that has an order
 *
 * Free blocks side by side become one, unless their orders differ. Nothing here calls the driver, and nothing is
 * thread-safe: the engine has a lock. Memory comes from mmap, as in extents.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "intercept/memory/ranges.h"

#define BLOCK_GRAIN_BYTES UINT64_C(512) /* alignment of the driver's own allocations */
#define BLOCK_BINS 40u

struct order {
    CUevent event; /* NULL: no work may use the block */
    CUcontext context;
    uint64_t stream; /* the driver's number of the stream; 0: unknown, and then equal to no other */
    uint64_t number; /* later orders have higher numbers */
};

struct block {
    uint64_t address, bytes;
    /* If taken: what the program asked for, and a number that no other allocation of this process ever has. */
    uint64_t asked_bytes, allocation;
    /* A description of it was handed out under this number (swap_pool_share.h); 0: none was. */
    uint64_t handed_out_as, handed_out_secret;
    uint32_t pool; /* number of its pool */
    struct order order;
    enum { BLOCK_UNUSED, BLOCK_ABSENT, BLOCK_FREE, BLOCK_TAKEN } state;
    /* Index + 1 of other blocks: before and behind it in its region; in the list of its state; among the waiting
     * ones. */
    uint32_t left, right, previous, next, previous_waiting, next_waiting;
};

struct blocks {
    struct block *table; /* of BLOCKS_MAX; pages that nobody touches cost nothing */
    uint32_t end, spare; /* as in struct extents */
    struct ranges taken;
    /* Called when an order is not needed any more. */
    void (*forget)(const struct order *order);
};

/* The blocks of one pool. */
struct pool_blocks {
    uint32_t number;
    uint32_t bins[BLOCK_BINS]; /* free blocks by the logarithm of their size: index + 1 of the first */
    uint32_t absent, waiting;  /* the same */
    uint64_t taken_bytes, present_bytes;
};

/* Add a region, which is absent. False without memory. */
bool blocks_add_region(struct blocks *blocks, struct pool_blocks *pool, uint64_t address, uint64_t bytes);

/* The smallest of some free blocks that have `bytes` and that work of `stream` may use at once. `in_time`: also
 * blocks that have to be waited for. NULL: none. */
struct block *blocks_find_free(struct blocks *blocks, struct pool_blocks *pool, uint64_t bytes,
                               uint64_t stream, bool in_time);

/* Take the first `bytes` of a free block. False without memory. */
bool blocks_take(struct blocks *blocks, struct pool_blocks *pool, struct block *block, uint64_t bytes,
                 uint64_t asked_bytes);

/* The taken block that is around the address; NULL: none. */
struct block *blocks_find_taken(struct blocks *blocks, uint64_t address);

/* A taken block becomes free; `order` is the work that may still use it. */
void blocks_free(struct blocks *blocks, struct pool_blocks *pool, struct block *block,
                 const struct order *order);

/* Forget the orders for which `is_over` is true. */
void blocks_settle(struct blocks *blocks, struct pool_blocks *pool, bool (*is_over)(const struct order *));

/* For work of `stream`: join blocks that wait for this stream with the free blocks beside them that nobody else waits
 * for. */
void blocks_join(struct blocks *blocks, struct pool_blocks *pool, uint64_t stream);

/* The absent blocks one after the other, from NULL to NULL. And the free block to the left of an absent one, if work
 * of `stream` may use it; or NULL. */
struct block *blocks_next_absent(struct blocks *blocks, const struct pool_blocks *pool,
                                 const struct block *before);
struct block *blocks_free_left(struct blocks *blocks, const struct block *absent, uint64_t stream);

/* The first `bytes` of an absent block have memory now. Returns the free block that they are part of; NULL without
 * memory. */
struct block *blocks_bring(struct blocks *blocks, struct pool_blocks *pool, struct block *absent,
                           uint64_t bytes, uint64_t stream);

/* The free blocks that wait for nothing, one after the other. And: `bytes` at `from` of such a block have no memory
 * any more, so they become absent; false without memory. */
struct block *blocks_next_idle(struct blocks *blocks, const struct pool_blocks *pool,
                               const struct block *before);
bool blocks_send(struct blocks *blocks, struct pool_blocks *pool, struct block *block, uint64_t from,
                 uint64_t bytes);

/* A pool without memory ends: take out its next region, and return where it was. False: there is none left. */
bool blocks_remove_region(struct blocks *blocks, struct pool_blocks *pool, uint64_t *address,
                          uint64_t *bytes);
