/* road.h - the one road for memory: what every hook that allocates or frees calls.
 *
 *   CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
 *   {
 *       return allocate(&(struct allocation){
 *           .way = WAY_cuMemAlloc_v2, .is_uncharged = !address || !bytes, .bytes = bytes, .got = address});
 *   }
 *
 * A hook says what the program wants, as data. The road is the same for all: charge the session's ledger, have the
 * engine make the memory (engine/engine.h), and enter it in the records; or take everything back and answer as the
 * driver would. */
#pragma once

#include "intercept/memory/allocation.h"

/* Returns the driver's answer, or CUDA_ERROR_OUT_OF_MEMORY where the session's quota refuses the allocation. */
CUresult road_allocate(const struct allocation *wanted, const void *caller);

/* Give back, by this way, what has this key. `stream`: for ways that take one. Returns the driver's answer. */
CUresult road_release(enum release_way way, uint64_t key, CUstream stream, const void *caller);

/* For hooks. The `caller` that the road gets is the code that called the hook. */
__attribute__((always_inline)) static inline CUresult allocate(const struct allocation *wanted)
{
    return road_allocate(wanted, __builtin_return_address(0));
}

__attribute__((always_inline)) static inline CUresult release_allocation(enum release_way way, uint64_t key,
                                                                         CUstream stream)
{
    return road_release(way, key, stream, __builtin_return_address(0));
}
