/* swap_pool.h - memory of cuMemAllocAsync and of pools, so that it can leave the card.
 *
 * A pool that is served has addresses of its own (pool_blocks.h) and extents behind some of them. Its handle, its
 * properties and its place as the current one of a device are the driver's own, but nothing is allocated from that.
 * What a stream frees, the same stream may have again at once; others when the stream has got there, or they wait for it.
 * Pools of the host, of managed memory, and those that other processes may import stay the driver's.
 *
 * Called without the engine's lock, but where it says so. */
#pragma once

#include "intercept/memory/engine/engine.h"

extern const struct engine_pools swap_pools;

/* By cuMemAllocAsync and the like, with the pool named. */
CUresult swap_pool_allocate(const struct allocation *wanted);

/* Whether an allocation of ours begins there; and free it by this way. */
bool swap_pool_has(CUdeviceptr address);
CUresult swap_pool_free(enum release_way way, CUdeviceptr address, CUstream stream);

/* Under the lock: the allocation around an address. */
struct pool_place {
    uint64_t base, bytes;
    CUcontext context; /* that it was made in; it may have gone */
    CUmemoryPool pool;
};
bool swap_pool_find(CUdeviceptr address, struct pool_place *place);

/* Under the lock: give back to the card what nobody has of all pools. `is_idle`: nothing that was submitted goes on. True where
 * that was anything. */
bool swap_pool_give_back(bool is_idle);

/* Under the lock: a context has gone, and its events. */
void swap_pool_forget_context(CUcontext context);
