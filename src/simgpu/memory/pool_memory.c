/* pool_memory.c - stream-ordered memory. A pool takes the device's memory in steps of 2 MiB (reserved), gives it out
 * (used), and gives the unused above its release threshold back when the program synchronises. No context owns it:
 * what is allocated lives until it is freed (driver API reference: cuCtxDestroy). Pools of host memory count in the
 * same way, but no device has the memory.
 *
 * Memory is the next taker's as soon as it is freed, in the order of calls: data moves at calls too (sim.h).
 */
#include "simgpu/memory/pool.h"

#include <string.h>

#include "simgpu/graph/capture.h"
#include "simgpu/memory/blocks.h"
#include "simgpu/memory/heap.h"
#include "simgpu/time/execution.h"

void pool_trim(CUmemoryPool pool, uint64_t keep_bytes)
{
    uint64_t keep = pool_steps(keep_bytes > pool->used_bytes ? keep_bytes : pool->used_bytes);
    if (pool->reserved_bytes <= keep)
        return;
    uint64_t unused = pool->reserved_bytes - keep;
    if (pool->place == POOL_MANAGED)
        blocks_give_back(pool->gpu, MEMORY_MANAGED, unused);
    else if (pool->place == POOL_ON_DEVICE)
        device_credit(pool->gpu, unused);
    pool->reserved_bytes = keep;
}

/* Steps are whole blocks on a device; NVML does not show those of managed memory. */
static bool take_steps(CUmemoryPool pool, uint64_t bytes)
{
    switch (pool->place) {
    case POOL_ON_DEVICE:
        return device_charge(pool->gpu, bytes);
    case POOL_MANAGED:
        return blocks_take(pool->gpu, MEMORY_MANAGED, bytes);
    default:
        return true;
    }
}

/* Reserve `missing` bytes more, if the pool may grow so far and the device has them. */
static bool pool_grow(CUmemoryPool pool, uint64_t missing)
{
    uint64_t most = pool->properties.maxSize ? pool_steps(pool->properties.maxSize) : UINT64_MAX;
    if (missing > most || pool->reserved_bytes > most - missing)
        return false;
    if (missing > 0 && !take_steps(pool, missing))
        return false;
    pool->reserved_bytes += missing;
    return true;
}

static CUresult pool_take(CUmemoryPool pool, CUcontext context, uint64_t bytes, uint64_t *address)
{
    if (bytes > UINT64_MAX / 4)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&pool->lock);
    uint64_t used = pool->used_bytes + pool_grains(bytes);
    uint64_t missing = used > pool->reserved_bytes ? pool_steps(used - pool->reserved_bytes) : 0;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (pool_grow(pool, missing)) {
        result = memory_place(context, pool->gpu, MEMORY_POOL, bytes, pool->place, pool, address);
        if (result == CUDA_SUCCESS)
            pool->used_bytes = used;
        else
            pool_trim(pool, pool->reserved_bytes - missing);
    }
    if (pool->reserved_bytes > pool->reserved_high_bytes)
        pool->reserved_high_bytes = pool->reserved_bytes;
    if (pool->used_bytes > pool->used_high_bytes)
        pool->used_high_bytes = pool->used_bytes;
    pthread_mutex_unlock(&pool->lock);
    return result;
}

bool pool_free(uint64_t address)
{
    struct memory_allocation allocation;
    if (!heap_find(address, &allocation))
        return pool_import_free(address);
    if (allocation.kind != MEMORY_POOL)
        return false;
    CUmemoryPool pool = allocation.owner;
    pthread_mutex_lock(&pool->lock);
    /* Again: another thread may have exported or freed it. */
    bool found = heap_find(address, &allocation) && allocation.address == address && allocation.owner == pool;
    if (found && pool_share_leave(pool, &allocation))
        heap_abandon(address);
    found = found && heap_free(address, 1u << MEMORY_POOL, &allocation);
    if (found)
        pool->used_bytes -= pool_grains(allocation.bytes);
    if (found && pool->is_destroyed)
        pool_trim(pool, 0);
    pthread_mutex_unlock(&pool->lock);
    return found;
}

void pool_settle(unsigned gpu)
{
    for (CUmemoryPool pool = pool_first(); pool; pool = pool->next) {
        if (pool->gpu != gpu)
            continue;
        pthread_mutex_lock(&pool->lock);
        if (pool->release_threshold_bytes < pool->reserved_bytes)
            pool_trim(pool, pool->release_threshold_bytes);
        pthread_mutex_unlock(&pool->lock);
    }
}

/* --- Allocating ------------------------------------------------------------------------------------ */

static CUresult allocate(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream handle,
                         bool per_thread)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pointer && bytes > 0);
    CUresult result;
    if (capture_is_possible() &&
        capture_allocation(handle, per_thread, pool ? (int)pool->gpu : -1, bytes, pointer, &result))
        return result;
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    if (!pool && !(pool = pool_current(context->gpu)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    SIM_REQUIRE(!pool->is_imported); /* an imported pool only takes pointers in */
    uint64_t address;
    SIM_TRY(pool_take(pool, context, bytes, &address));
    *pointer = address;
    return CUDA_SUCCESS;
}

SIM_FORMS(cuMemAllocAsync, _ptsz, (CUdeviceptr * pointer, size_t bytes, CUstream stream),
          allocate(pointer, bytes, NULL, stream, per_thread))

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    SIM_TRY(pool_check(pool));
    return allocate(pointer, bytes, pool, stream, false);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    SIM_TRY(pool_check(pool));
    return allocate(pointer, bytes, pool, stream, true);
}

/* Frees what cuMemAlloc gave too. */
static CUresult free_async(CUdeviceptr pointer, CUstream handle, bool per_thread)
{
    CUcontext context;
    CUstream stream;
    if (capture_is_possible()) {
        CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {pointer}};
        CUresult result;
        if (capture_node(handle, per_thread, &params, &result))
            return result;
    }
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    struct memory_allocation allocation;
    SIM_REQUIRE(pointer && memory_find(pointer, &allocation) && allocation.address == pointer);
    if (allocation.kind == MEMORY_POOL)
        return pool_free(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (allocation.kind == MEMORY_GRAPH)
        return graph_memory_free_at(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    SIM_REQUIRE(allocation.kind == MEMORY_DEVICE || allocation.kind == MEMORY_MANAGED);
    stream_wait(context, stream);
    return memory_give_back(pointer, &allocation) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_FORMS(cuMemFreeAsync, _ptsz, (CUdeviceptr pointer, CUstream stream),
          free_async(pointer, stream, per_thread))
