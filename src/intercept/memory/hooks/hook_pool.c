/* hook_pool.c - stream-ordered memory, and the pools of devices that it comes from. Pools of host memory are not
 * charged. Memory of a pool that another process made is charged in hook_joint.c. */
#include "intercept/memory/charge.h"
#include "intercept/memory/engine/engine.h"
#include "intercept/memory/pool_charge.h"
#include "intercept/memory/refusal.h"
#include "intercept/memory/road.h"
#include "intercept/resolve/real.h"

/* --- Memory ---------------------------------------------------------------------------------------- */

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return allocate(&(struct allocation){.way = WAY_cuMemAllocAsync,
                                         .is_uncharged = !address || !bytes,
                                         .bytes = bytes,
                                         .got = address,
                                         .pooled = {.stream = stream}});
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return allocate(&(struct allocation){.way = WAY_cuMemAllocAsync_ptsz,
                                         .is_uncharged = !address || !bytes,
                                         .bytes = bytes,
                                         .got = address,
                                         .pooled = {.stream = stream, .is_per_thread = true}});
}

/* NULL for a pool that the program has destroyed, though the driver's pool may still exist. */
static CUmemoryPool living(CUmemoryPool pool)
{
    return pool_charge_is_dying(pool) ? NULL : pool;
}

static CUresult allocate_from_pool(enum alloc_way way, CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                   CUstream stream)
{
    CUmemoryPool named = living(pool);
    return allocate(&(struct allocation){
        .way = way,
        .is_uncharged = !address || !bytes || !named,
        .bytes = bytes,
        .got = address,
        .pooled = {named, stream, .is_per_thread = way == WAY_cuMemAllocFromPoolAsync_ptsz},
    });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return allocate_from_pool(WAY_cuMemAllocFromPoolAsync, address, bytes, pool, stream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return allocate_from_pool(WAY_cuMemAllocFromPoolAsync_ptsz, address, bytes, pool, stream);
}

/* Memory of cuMemAlloc may be freed in stream order too; its record then goes, as with cuMemFree. */
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    return release_allocation(RELEASE_cuMemFreeAsync, address, stream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    return release_allocation(RELEASE_cuMemFreeAsync_ptsz, address, stream);
}

/* --- Pools ----------------------------------------------------------------------------------------- */

/* The device whose memory a pool takes; false: it takes no device's. Managed memory without a device's location
 * (cuda.h 13.0) may come to any device. Like that of cuMemAllocManaged, it is charged where the program works; before
 * the program has a context, on the first device. */
static bool device_of(const CUmemLocation *location, CUmemAllocationType type, CUdevice *device)
{
    *device = location->id;
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        return true;
    if (type != CU_MEM_ALLOCATION_TYPE_MANAGED)
        return false;
    if (!real(cuCtxGetDevice) || real(cuCtxGetDevice)(device) != CUDA_SUCCESS)
        *device = 0;
    return true;
}

/* It takes no device's memory: allocations from it are the driver's alone. */
static CUresult remember_host_pool(CUresult result, const CUmemoryPool *pool)
{
    struct own_calls calls;
    if (result == CUDA_SUCCESS && pool && *pool && own_calls_depth == 0 && session_mode() == SESSION_INSIDE &&
        own_calls_begin(&calls, NULL)) {
        pool_charge_note_host(*pool);
        own_calls_end(&calls);
    }
    return result;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    struct charge charge;
    CUdevice device;
    real_needed(cuMemPoolCreate);
    real_needed(cuMemPoolDestroy);
    if (!pool || !properties)
        return real(cuMemPoolCreate)(pool, properties);
    if (!device_of(&properties->location, properties->allocType, &device))
        return remember_host_pool(real(cuMemPoolCreate)(pool, properties), pool);
    enum gpu_place place = charge_place_device(&charge, device);
    if (place == PLACE_FORBIDDEN) {
        refusal_of_gpu();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = real(cuMemPoolCreate)(pool, properties);
    if (result == CUDA_SUCCESS && place == PLACE_ON_GPU &&
        !pool_charge_get_made(*pool, device, charge.gpu,
                              properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED)) {
        real(cuMemPoolDestroy)(*pool); /* more pools than we can account for */
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS && place == PLACE_ON_GPU)
        engine_pools()->made(*pool, properties);
    return result;
}

/* A device's own pools may be allocated from in streams of any device, so remember whose they are. */
static void remember_pool(CUresult result, const CUmemoryPool *pool, CUdevice device, bool managed)
{
    struct charge charge;
    if (result == CUDA_SUCCESS && pool && *pool && charge_place_device(&charge, device) == PLACE_ON_GPU)
        pool_charge_get(*pool, charge.gpu, managed);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    real_needed(cuDeviceGetDefaultMemPool);
    CUresult result = real(cuDeviceGetDefaultMemPool)(pool, device);
    remember_pool(result, pool, device, false);
    return result;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    real_needed(cuDeviceGetMemPool);
    CUresult result = real(cuDeviceGetMemPool)(pool, device);
    remember_pool(result, pool, device, false);
    return result;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    CUdevice device;
    real_needed(cuMemGetDefaultMemPool);
    CUresult result = real(cuMemGetDefaultMemPool)(pool, location, type);
    if (location && device_of(location, type, &device))
        remember_pool(result, pool, device, type == CU_MEM_ALLOCATION_TYPE_MANAGED);
    return result;
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    CUdevice device;
    real_needed(cuMemGetMemPool);
    CUresult result = real(cuMemGetMemPool)(pool, location, type);
    if (location && device_of(location, type, &device))
        remember_pool(result, pool, device, type == CU_MEM_ALLOCATION_TYPE_MANAGED);
    return result;
}

static CUresult export(void *handle, CUmemoryPool pool, CUmemAllocationHandleType type,
                       unsigned long long flags)
{
    CUresult result = engine_pools()->export(handle, pool, type, flags);
    if (result == CUDA_SUCCESS)
        pool_charge_note_export(pool);
    return result;
}

/* Calls that name a pool. A pool that the program has destroyed becomes NULL, though the driver's still exists: the
 * driver itself then refuses, in its own order of checks. */
#define NAMES_POOL(symbol, answering, parameters, arguments)                                                 \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        pool = living(pool);                                                                                 \
        return answering arguments;                                                                          \
    }
NAMES_POOL(cuMemPoolGetAttribute, engine_pools()->get_attribute,
           (CUmemoryPool pool, CUmemPool_attribute which, void *value), (pool, which, value))
NAMES_POOL(cuMemPoolSetAttribute, engine_pools()->set_attribute,
           (CUmemoryPool pool, CUmemPool_attribute which, void *value), (pool, which, value))
NAMES_POOL(cuMemPoolSetAccess, engine_pools()->set_access,
           (CUmemoryPool pool, const CUmemAccessDesc *access, size_t count), (pool, access, count))
NAMES_POOL(cuMemPoolGetAccess, real(cuMemPoolGetAccess),
           (CUmemAccess_flags * flags, CUmemoryPool pool, CUmemLocation *location), (flags, pool, location))
NAMES_POOL(cuMemPoolExportToShareableHandle, export,
           (void *handle, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags),
           (handle, pool, type, flags))
NAMES_POOL(cuDeviceSetMemPool, real(cuDeviceSetMemPool), (CUdevice device, CUmemoryPool pool), (device, pool))

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes)
{
    real_needed(cuMemPoolTrimTo);
    CUresult result = engine_pools()->trim(living(pool), keep_bytes);
    pool_charge_refresh();
    return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    real_needed(cuMemPoolDestroy);
    struct pool *pool = charge_has_any() ? pool_charge_find(handle) : NULL;
    if (!pool)
        return engine_pools()->destroy(handle);
    return pool_charge_destroy(pool);
}
