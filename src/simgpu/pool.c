/* pool.c - stream-ordered memory from each device's default pool. A pool takes the device's memory in steps
 * of 2 MiB (reserved), gives it out (used), and gives the unused above its release threshold back when the
 * program synchronises.
 *
 * Memory is the next taker's as soon as it is freed, in the order of calls: data moves at calls too (sim.h).
 */
#include <string.h>

#include "simgpu/capture.h"
#include "simgpu/execution.h"
#include "simgpu/heap.h"
#include "simgpu/memory.h"

#define STEP_BYTES (UINT64_C(2) << 20)
#define GRAIN_BYTES UINT64_C(512) /* what `used` counts in, as addresses are aligned */

struct CUmemPoolHandle_st {
    _Atomic unsigned kind; /* SIM_POOL once it is asked for */
    unsigned gpu;

    pthread_mutex_t turn;
    uint64_t reserved_bytes, reserved_high_bytes;
    uint64_t used_bytes, used_high_bytes;
    uint64_t release_threshold_bytes;
    int reuse_event, reuse_opportunistic, reuse_internal;
};

static struct CUmemPoolHandle_st pools[DEVICE_GPUS] = {
    [0 ... DEVICE_GPUS - 1] = {.turn = PTHREAD_MUTEX_INITIALIZER,
                               .reuse_event = 1,
                               .reuse_opportunistic = 1,
                               .reuse_internal = 1},
};

static CUmemoryPool pool_of_gpu(unsigned gpu)
{
    pools[gpu].gpu = gpu;
    atomic_store(&pools[gpu].kind, SIM_POOL);
    return &pools[gpu];
}

static CUresult pool_check(CUmemoryPool pool)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pool);
    return atomic_load(&pool->kind) == SIM_POOL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static uint64_t grains(uint64_t bytes)
{
    return (bytes + GRAIN_BYTES - 1) & ~(GRAIN_BYTES - 1);
}

static uint64_t steps(uint64_t bytes)
{
    return (bytes + STEP_BYTES - 1) & ~(STEP_BYTES - 1);
}

/* Give back what is reserved beyond `keep_bytes` and not used. Under the pool's lock. */
static void trim(CUmemoryPool pool, uint64_t keep_bytes)
{
    uint64_t keep = steps(keep_bytes > pool->used_bytes ? keep_bytes : pool->used_bytes);
    if (pool->reserved_bytes <= keep)
        return;
    device_credit(pool->gpu, pool->reserved_bytes - keep);
    pool->reserved_bytes = keep;
}

static CUresult pool_take(CUmemoryPool pool, CUcontext context, uint64_t bytes, uint64_t *address)
{
    pthread_mutex_lock(&pool->turn);
    uint64_t used = pool->used_bytes + grains(bytes);
    uint64_t missing = used > pool->reserved_bytes ? steps(used - pool->reserved_bytes) : 0;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (missing == 0 || device_charge(pool->gpu, missing)) {
        pool->reserved_bytes += missing;
        result = memory_place(context, pool->gpu, MEMORY_POOL, bytes, 0, pool, address);
        if (result == CUDA_SUCCESS)
            pool->used_bytes = used;
        else
            trim(pool, pool->reserved_bytes - missing);
    }
    if (pool->reserved_bytes > pool->reserved_high_bytes)
        pool->reserved_high_bytes = pool->reserved_bytes;
    if (pool->used_bytes > pool->used_high_bytes)
        pool->used_high_bytes = pool->used_bytes;
    pthread_mutex_unlock(&pool->turn);
    return result;
}

bool pool_free(uint64_t address)
{
    struct memory_allocation allocation;
    if (!heap_free(address, 1u << MEMORY_POOL, &allocation))
        return false;
    CUmemoryPool pool = allocation.owner;
    pthread_mutex_lock(&pool->turn);
    pool->used_bytes -= grains(allocation.bytes);
    pthread_mutex_unlock(&pool->turn);
    return true;
}

void pool_settle(unsigned gpu)
{
    CUmemoryPool pool = &pools[gpu];
    if (atomic_load_explicit(&pool->kind, memory_order_relaxed) != SIM_POOL)
        return;
    pthread_mutex_lock(&pool->turn);
    trim(pool, pool->release_threshold_bytes < pool->reserved_bytes ? pool->release_threshold_bytes
                                                                    : pool->reserved_bytes);
    pthread_mutex_unlock(&pool->turn);
}

static bool is_of_pool(const struct memory_allocation *allocation, void *pool)
{
    return allocation->kind == MEMORY_POOL && allocation->owner == pool;
}

void pool_drop(unsigned gpu)
{
    CUmemoryPool pool = &pools[gpu];
    heap_free_each(is_of_pool, pool);
    pthread_mutex_lock(&pool->turn);
    pool->used_bytes = 0;
    trim(pool, 0);
    pthread_mutex_unlock(&pool->turn);
}

/* --- Allocating
 * --------------------------------------------------------------------------------------------- */

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
    uint64_t address;
    SIM_TRY(pool_take(pool ? pool : pool_of_gpu(context->gpu), context, bytes, &address));
    *pointer = address;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return allocate(pointer, bytes, NULL, stream, false);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return allocate(pointer, bytes, NULL, stream, true);
}

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

/* Takes what cuMemAlloc gave too. */
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

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    return free_async(pointer, stream, false);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    return free_async(pointer, stream, true);
}

/* --- The pools themselves
 * ------------------------------------------------------------------------------------ */

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pool);
    SIM_TRY(device_check(device));
    *pool = pool_of_gpu(simulator.visible[device]);
    return CUDA_SUCCESS;
}

/* The current pool: the default one, as there are no others yet. */
CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    return cuDeviceGetDefaultMemPool(pool, device);
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    SIM_TRY(pool_check(pool));
    SIM_TRY(device_check(device));
    SIM_REQUIRE(pool->gpu == simulator.visible[device]);
    return CUDA_SUCCESS;
}

static CUresult pool_of_location(CUmemoryPool *pool, const CUmemLocation *location, CUmemAllocationType type)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pool && location);
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    return cuDeviceGetDefaultMemPool(pool, location->id);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    return pool_of_location(pool, location, type);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    return pool_of_location(pool, location, type);
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes)
{
    SIM_TRY(pool_check(pool));
    pthread_mutex_lock(&pool->turn);
    if (keep_bytes < pool->reserved_bytes)
        trim(pool, keep_bytes);
    pthread_mutex_unlock(&pool->turn);
    return CUDA_SUCCESS;
}

/* The number or the switch that an attribute is, or NULL. */
static uint64_t *attribute_number(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->release_threshold_bytes;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved_bytes;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high_bytes;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used_bytes;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high_bytes;
    default:
        return NULL;
    }
}

static int *attribute_switch(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        return &pool->reuse_event;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        return &pool->reuse_opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return &pool->reuse_internal;
    default:
        return NULL;
    }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    SIM_TRY(pool_check(pool));
    SIM_REQUIRE(value);
    pthread_mutex_lock(&pool->turn);
    const uint64_t *number = attribute_number(pool, attribute);
    const int *on = attribute_switch(pool, attribute);
    if (number)
        memcpy(value, number, sizeof(*number));
    else if (on)
        memcpy(value, on, sizeof(*on));
    pthread_mutex_unlock(&pool->turn);
    return number || on ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The marks of highest use can only be set to 0, which begins them anew. */
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    SIM_TRY(pool_check(pool));
    SIM_REQUIRE(value);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&pool->turn);
    int *on = attribute_switch(pool, attribute);
    uint64_t number = 0;
    if (!on)
        memcpy(&number, value, sizeof(number));
    if (on)
        memcpy(on, value, sizeof(*on));
    else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        pool->release_threshold_bytes = number;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && number == 0)
        pool->reserved_high_bytes = pool->reserved_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && number == 0)
        pool->used_high_bytes = pool->used_bytes;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&pool->turn);
    return result;
}
