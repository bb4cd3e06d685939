#include "intercept/memory/engine/swap/pools/swap_pool_find.h"

#include "intercept/memory/engine/swap/state.h"
#include "intercept/resolve/guard.h"

/* The taken block around `address`; NULL: none. */
static struct block *find_taken(CUdeviceptr address)
{
    struct blocks *blocks = &swap_state()->pools.blocks;
    return blocks->table ? blocks_find_taken(blocks, address) : NULL;
}

static const struct swap_pool *pool_of(const struct block *block)
{
    return &swap_state()->pools.table[block->pool - 1];
}

struct block *swap_pool_block(CUdeviceptr address)
{
    struct block *block = find_taken(address);
    return block && block->address == address ? block : NULL;
}

bool swap_pool_has(CUdeviceptr address)
{
    guard_lock(&swap_state()->lock);
    bool has = swap_pool_block(address) != NULL;
    guard_unlock(&swap_state()->lock);
    return has;
}

struct block *swap_pool_exportable(CUdeviceptr address)
{
    struct block *block = swap_pool_block(address);
    return block && pool_of(block)->is_exportable ? block : NULL;
}

bool swap_pool_find(CUdeviceptr address, struct pool_place *place)
{
    const struct block *block = find_taken(address);
    if (!block || address - block->address >= block->asked_bytes)
        return false;
    *place = (struct pool_place){.base = block->address,
                                 .bytes = block->asked_bytes,
                                 .number = block->allocation,
                                 .pool = pool_of(block)->handle};
    return true;
}
