#include "intercept/memory/engine/swap/pools/pool_blocks.h"

#include <stddef.h>

#include "base/check.h"
#include "intercept/memory/engine/swap/extents/extents.h"

#define BLOCKS_MAX 1048576u
#define LOOKED_AT 64u /* blocks of one bin, to find the smallest that has room */

/* --- The table ------------------------------------------------------------------------------------- */

static uint32_t number_of(const struct blocks *blocks, const struct block *block)
{
    return block ? (uint32_t)(block - blocks->table) + 1 : 0;
}

static struct block *block_at(const struct blocks *blocks, uint32_t number)
{
    return number ? &blocks->table[number - 1] : NULL;
}

static struct block *new_block(struct blocks *blocks)
{
    if (!blocks->table && !(blocks->table = extents_make_table(BLOCKS_MAX * sizeof(struct block))))
        return NULL;
    if (!blocks->spare && blocks->end == BLOCKS_MAX)
        return NULL;
    struct block *block = blocks->spare ? block_at(blocks, blocks->spare) : &blocks->table[blocks->end];
    if (blocks->spare)
        blocks->spare = block->next;
    else
        blocks->end++;
    *block = (struct block){0};
    return block;
}

/* --- Lists ----------------------------------------------------------------------------------------- */

static unsigned bin_of(uint64_t bytes)
{
    uint64_t grains = bytes / BLOCK_GRAIN_BYTES;
    unsigned bin = grains ? 63u - (unsigned)__builtin_clzll(grains) : 0;
    return bin < BLOCK_BINS ? bin : BLOCK_BINS - 1;
}

static uint32_t *list_of(struct pool_blocks *pool, const struct block *block)
{
    return block->state == BLOCK_ABSENT ? &pool->absent : &pool->bins[bin_of(block->bytes)];
}

/* Put a block into the list of its state, and take it out. Taken blocks are in no list. */
static void enter(struct blocks *blocks, struct pool_blocks *pool, struct block *block)
{
    uint32_t *list = list_of(pool, block);
    block->previous = 0;
    block->next = *list;
    if (block->next)
        block_at(blocks, block->next)->previous = number_of(blocks, block);
    *list = number_of(blocks, block);
}

static void leave(struct blocks *blocks, struct pool_blocks *pool, struct block *block)
{
    struct block *previous = block_at(blocks, block->previous), *next = block_at(blocks, block->next);
    *(previous ? &previous->next : list_of(pool, block)) = block->next;
    if (next)
        next->previous = block->previous;
}

static void enter_waiting(struct blocks *blocks, struct pool_blocks *pool, struct block *block)
{
    block->previous_waiting = 0;
    block->next_waiting = pool->waiting;
    if (pool->waiting)
        block_at(blocks, pool->waiting)->previous_waiting = number_of(blocks, block);
    pool->waiting = number_of(blocks, block);
}

static void leave_waiting(struct blocks *blocks, struct pool_blocks *pool, struct block *block)
{
    struct block *previous = block_at(blocks, block->previous_waiting),
                 *next = block_at(blocks, block->next_waiting);
    *(previous ? &previous->next_waiting : &pool->waiting) = block->next_waiting;
    if (next)
        next->previous_waiting = block->previous_waiting;
    block->order = (struct order){0};
}

static void forget_order(struct blocks *blocks, struct pool_blocks *pool, struct block *block)
{
    struct order order = block->order;
    if (!order.event)
        return;
    leave_waiting(blocks, pool, block);
    blocks->forget(&order);
}

/* --- Splitting and joining ------------------------------------------------------------------------- */

/* Split a block that is in no list: what lies behind its first `bytes` becomes a block of its own, also in no list.
 * NULL without memory. */
static struct block *split(struct blocks *blocks, struct block *block, uint64_t bytes)
{
    struct block *rest = new_block(blocks), *right = block_at(blocks, block->right);
    if (!rest)
        return NULL;
    GS_CHECK(bytes > 0 && bytes < block->bytes);
    rest->address = block->address + bytes;
    rest->bytes = block->bytes - bytes;
    rest->state = block->state;
    rest->pool = block->pool;
    rest->left = number_of(blocks, block);
    rest->right = block->right;
    if (right)
        right->left = number_of(blocks, rest);
    block->right = number_of(blocks, rest);
    block->bytes = bytes;
    return rest;
}

/* A block takes in the block to its right. Neither is in the list of its state. */
static void take_in_right(struct blocks *blocks, struct block *block)
{
    struct block *right = block_at(blocks, block->right), *next = block_at(blocks, right->right);
    block->bytes += right->bytes;
    block->right = right->right;
    if (next)
        next->left = number_of(blocks, block);
    right->state = BLOCK_UNUSED;
    right->next = blocks->spare;
    blocks->spare = number_of(blocks, right);
}

static bool is_usable(const struct block *block, uint64_t stream)
{
    return !block->order.event || (stream && block->order.stream == stream);
}

/* Join two free blocks side by side, of which one waits for nothing, or both for the same stream. */
static void join_right(struct blocks *blocks, struct pool_blocks *pool, struct block *block)
{
    struct block *right = block_at(blocks, block->right);
    leave(blocks, pool, block);
    leave(blocks, pool, right);
    if (right->order.event && (!block->order.event || right->order.number > block->order.number)) {
        struct order order = right->order;
        leave_waiting(blocks, pool, right);
        forget_order(blocks, pool, block);
        block->order = order;
        enter_waiting(blocks, pool, block);
    } else {
        forget_order(blocks, pool, right);
    }
    take_in_right(blocks, block);
    enter(blocks, pool, block);
}

static bool are_alike(const struct block *one, const struct block *other)
{
    return one && other && one->state == other->state &&
           (one->state == BLOCK_ABSENT ||
            (one->state == BLOCK_FREE && !one->order.event == !other->order.event &&
             (!one->order.event || (one->order.stream && one->order.stream == other->order.stream))));
}

/* Join a block with its neighbours if they are alike. Returns the block that it is part of then. */
static struct block *join_alike(struct blocks *blocks, struct pool_blocks *pool, struct block *block)
{
    struct block *left = block_at(blocks, block->left);
    if (are_alike(block, block_at(blocks, block->right)))
        join_right(blocks, pool, block);
    if (!are_alike(left, block))
        return block;
    join_right(blocks, pool, left);
    return left;
}

/* --- Taking and freeing ---------------------------------------------------------------------------- */

struct block *blocks_find_free(struct blocks *blocks, struct pool_blocks *pool, uint64_t bytes,
                               uint64_t stream, bool in_time)
{
    struct block *best = NULL;
    for (unsigned bin = bin_of(bytes); bin < BLOCK_BINS && !best; bin++) {
        unsigned count = 0;
        for (struct block *block = block_at(blocks, pool->bins[bin]); block && (count < LOOKED_AT || !best);
             block = block_at(blocks, block->next), count++)
            if (block->bytes >= bytes && (in_time || is_usable(block, stream)) &&
                (!best || block->bytes < best->bytes))
                best = block;
    }
    return best;
}

bool blocks_take(struct blocks *blocks, struct pool_blocks *pool, struct block *block, uint64_t bytes,
                 uint64_t asked_bytes)
{
    struct range range = {block->address, bytes, number_of(blocks, block) - 1};
    struct block *rest = NULL;
    leave(blocks, pool, block);
    if (block->bytes > bytes && !(rest = split(blocks, block, bytes))) {
        enter(blocks, pool, block);
        return false;
    }
    if (!ranges_put(&blocks->taken, range)) {
        if (rest)
            take_in_right(blocks, block);
        enter(blocks, pool, block);
        return false;
    }
    if (rest && block->order.event) {
        rest->order = block->order;
        leave_waiting(blocks, pool, block);
        enter_waiting(blocks, pool, rest);
    }
    if (rest)
        enter(blocks, pool, rest);
    forget_order(blocks, pool, block);
    block->state = BLOCK_TAKEN;
    block->asked_bytes = asked_bytes;
    pool->taken_bytes += bytes;
    return true;
}

struct block *blocks_find_taken(struct blocks *blocks, uint64_t address)
{
    struct range range;
    return ranges_find(&blocks->taken, address, &range) ? &blocks->table[range.kind] : NULL;
}

void blocks_free(struct blocks *blocks, struct pool_blocks *pool, struct block *block,
                 const struct order *order)
{
    GS_CHECK(block->state == BLOCK_TAKEN);
    ranges_remove(&blocks->taken, block->address, number_of(blocks, block) - 1);
    pool->taken_bytes -= block->bytes;
    block->state = BLOCK_FREE;
    block->order = *order;
    if (order->event)
        enter_waiting(blocks, pool, block);
    enter(blocks, pool, block);
    join_alike(blocks, pool, block);
}

void blocks_settle(struct blocks *blocks, struct pool_blocks *pool, bool (*is_over)(const struct order *))
{
    struct block *next;
    for (struct block *block = block_at(blocks, pool->waiting); block; block = next) {
        /* This one waits, so it is not a neighbour that is joined below. */
        next = block_at(blocks, block->next_waiting);
        if (!is_over(&block->order))
            continue;
        forget_order(blocks, pool, block);
        join_alike(blocks, pool, block);
    }
}

/* A block that waits for the stream takes in a free block beside it. False: there is none. */
static bool join_one(struct blocks *blocks, struct pool_blocks *pool, struct block *block, uint64_t stream)
{
    struct block *left = block_at(blocks, block->left), *right = block_at(blocks, block->right);
    if (right && right->state == BLOCK_FREE && is_usable(right, stream)) {
        join_right(blocks, pool, block);
        return true;
    }
    if (!left || left->state != BLOCK_FREE || !is_usable(left, stream))
        return false;
    join_right(blocks, pool, left);
    return true;
}

void blocks_join(struct blocks *blocks, struct pool_blocks *pool, uint64_t stream)
{
    struct block *block = block_at(blocks, stream ? pool->waiting : 0);
    while (block) {
        bool has_joined = block->order.stream == stream && join_one(blocks, pool, block, stream);
        block = block_at(blocks, has_joined ? pool->waiting : block->next_waiting);
    }
}

/* --- Memory that comes and goes -------------------------------------------------------------------- */

bool blocks_add_region(struct blocks *blocks, struct pool_blocks *pool, uint64_t address, uint64_t bytes)
{
    struct block *block = new_block(blocks);
    if (!block)
        return false;
    block->address = address;
    block->bytes = bytes;
    block->pool = pool->number;
    block->state = BLOCK_ABSENT;
    enter(blocks, pool, block);
    return true;
}

struct block *blocks_next_absent(struct blocks *blocks, const struct pool_blocks *pool,
                                 const struct block *before)
{
    return block_at(blocks, before ? before->next : pool->absent);
}

struct block *blocks_free_left(struct blocks *blocks, const struct block *absent, uint64_t stream)
{
    struct block *left = block_at(blocks, absent->left);
    return left && left->state == BLOCK_FREE && is_usable(left, stream) ? left : NULL;
}

struct block *blocks_bring(struct blocks *blocks, struct pool_blocks *pool, struct block *absent,
                           uint64_t bytes, uint64_t stream)
{
    struct block *left = blocks_free_left(blocks, absent, stream), *rest = NULL;
    GS_CHECK(bytes <= absent->bytes);
    leave(blocks, pool, absent);
    if (absent->bytes > bytes && !(rest = split(blocks, absent, bytes))) {
        enter(blocks, pool, absent);
        return NULL;
    }
    if (rest)
        enter(blocks, pool, rest);
    absent->state = BLOCK_FREE;
    enter(blocks, pool, absent);
    pool->present_bytes += bytes;
    if (!left)
        return join_alike(blocks, pool, absent);
    join_right(blocks, pool, left);
    return join_alike(blocks, pool, left);
}

struct block *blocks_next_idle(struct blocks *blocks, const struct pool_blocks *pool,
                               const struct block *before)
{
    struct block *block = before ? block_at(blocks, before->next) : NULL;
    unsigned bin = before ? bin_of(before->bytes) : BLOCK_BINS;
    for (;;) {
        for (; block; block = block_at(blocks, block->next))
            if (!block->order.event)
                return block;
        if (bin-- == 0)
            return NULL;
        block = block_at(blocks, pool->bins[bin]);
    }
}

bool blocks_send(struct blocks *blocks, struct pool_blocks *pool, struct block *block, uint64_t from,
                 uint64_t bytes)
{
    struct block *middle = block, *rest = NULL;
    uint64_t before = from - block->address, whole = block->bytes;
    leave(blocks, pool, block);
    if (before && !(middle = split(blocks, block, before))) {
        enter(blocks, pool, block);
        return false;
    }
    if (before + bytes < whole && !(rest = split(blocks, middle, bytes))) {
        if (before)
            take_in_right(blocks, block);
        enter(blocks, pool, block);
        return false;
    }
    if (before)
        enter(blocks, pool, block);
    if (rest)
        enter(blocks, pool, rest);
    middle->state = BLOCK_ABSENT;
    enter(blocks, pool, middle);
    pool->present_bytes -= bytes;
    join_alike(blocks, pool, middle);
    return true;
}

bool blocks_remove_region(struct blocks *blocks, struct pool_blocks *pool, uint64_t *address, uint64_t *bytes)
{
    struct block *block = block_at(blocks, pool->absent);
    GS_CHECK(!pool->present_bytes);
    if (!block)
        return false;
    *address = block->address;
    *bytes = block->bytes;
    leave(blocks, pool, block);
    block->state = BLOCK_UNUSED;
    block->next = blocks->spare;
    blocks->spare = number_of(blocks, block);
    return true;
}
