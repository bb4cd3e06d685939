/* swap_pool.h - makes memory of cuMemAllocAsync and of pools so that it can leave the card.
 *
 * A pool that is served has addresses of its own (pool_blocks.h), with extents behind some of them. The driver still
 * has the pool's handle and properties, and knows which pool is current on a device, but nothing is allocated from
 * the driver's pool. What a stream frees, the same stream may get again at once; other streams get it once the first
 * one's work has reached that point, or they wait for it. Pools of host memory or managed memory stay the driver's.
 *
 * A pool that the program exports is the driver's from then on: other processes import what the driver allocates in it.
 * Programs export pools before they allocate. What they allocated before stays in our extents, and goes to other
 * processes by descriptors of ours (swap_pool_share.h).
 *
 * Called without the engine's lock, except where it says so. */
#pragma once

#include "intercept/memory/engine/engine.h"
#include "intercept/memory/engine/swap/pools/pool_blocks.h"

extern const struct engine_pools swap_pools;

/* For cuMemAllocAsync and the like, with the pool named. */
CUresult swap_pool_allocate(const struct allocation *wanted);

/* Free an allocation of ours by this way. */
CUresult swap_pool_free(enum release_way way, CUdeviceptr address, CUstream stream);

/* Under the lock: give the card back what nobody has of all pools. `is_idle`: no work goes on. Returns whether it
 * gave anything back. */
bool swap_pool_give_back(bool is_idle);

/* Under the lock: a context is gone, and its events with it. */
void swap_pool_forget_context(CUcontext context);
