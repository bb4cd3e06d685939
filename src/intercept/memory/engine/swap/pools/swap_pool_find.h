/* swap_pool_find.h - finds the allocations that swap_pool.c gave out. */
#pragma once

#include "cuda/driver.h"
#include "intercept/memory/engine/swap/pools/pool_blocks.h"

/* Without the lock: whether an allocation of ours begins there. */
bool swap_pool_has(CUdeviceptr address);

/* The rest under the lock. The taken block that begins at `address`; NULL: none. */
struct block *swap_pool_block(CUdeviceptr address);
/* The same, if it is of a pool with handle types. */
struct block *swap_pool_exportable(CUdeviceptr address);

/* Find the allocation around an address. */
struct pool_place {
    uint64_t base, bytes;
    uint64_t number; /* struct block: `allocation` */
    CUmemoryPool pool;
};
bool swap_pool_find(CUdeviceptr address, struct pool_place *place);
