/* road.h - the one road for memory.
 *
 *   CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
 *   {
 *       return allocate(&(struct allocation){
 *           .way = WAY_cuMemAlloc_v2, .is_uncharged = !address || !bytes, .bytes = bytes, .got = address});
 *   }
 *
 * A hook says what the program wants, in data. The road is the same for all: charge the session's ledger, let the
 * engine have the memory made (engine/engine.h), enter it in the records; or take everything back and answer as the
 * driver would. */
#pragma once

#include "intercept/memory/allocation.h"

/* The driver's answer, or CUDA_ERROR_OUT_OF_MEMORY where the session's quota refuses it. */
CUresult road_allocate(const struct allocation *wanted, const void *caller);

/* Give back what has this key, by this way; `stream`: where the way has one. The driver's answer. */
CUresult road_release(enum release_way way, uint64_t key, CUstream stream, const void *caller);

/* For hooks: `caller` is who called the hook. */
__attribute__((always_inline)) static inline CUresult allocate(const struct allocation *wanted)
{
    return road_allocate(wanted, __builtin_return_address(0));
}

__attribute__((always_inline)) static inline CUresult release_allocation(enum release_way way, uint64_t key,
                                                                         CUstream stream)
{
    return road_release(way, key, stream, __builtin_return_address(0));
}
