/* hook_pool.c - stream-ordered memory, and the pools of devices that it comes from. Pools of host memory are
 * not charged; what comes from a pool that another process made is charged there (hook_joint.c). */
#include "intercept/memory/charge.h"
#include "intercept/memory/pool_charge.h"
#include "intercept/resolve/real.h"

/* One allocation, in any of its four forms. */
struct request {
    CUdeviceptr *address;
    size_t bytes;
    CUmemoryPool pool; /* NULL: the current one of the stream's device */
    CUstream stream;
    bool per_thread; /* stream 0 is the thread's own */
};

static CUresult ask_driver(const struct request *request)
{
    if (request->pool)
        return (request->per_thread ? real(cuMemAllocFromPoolAsync_ptsz) : real(cuMemAllocFromPoolAsync))(
            request->address, request->bytes, request->pool, request->stream);
    return (request->per_thread ? real(cuMemAllocAsync_ptsz)
                                : real(cuMemAllocAsync))(request->address, request->bytes, request->stream);
}

static void give_back(const struct request *request)
{
    (request->per_thread ? real(cuMemFreeAsync_ptsz) : real(cuMemFreeAsync))(*request->address,
                                                                             request->stream);
}

/* While the stream is captured, an allocation is a node of a graph and takes nothing yet. A stream that
 * cannot tell is left to the driver as well: it will refuse. */
static bool takes_memory(const struct request *request)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult (*is_capturing)(CUstream, CUstreamCaptureStatus *) =
        request->per_thread ? real(cuStreamIsCapturing_ptsz) : real(cuStreamIsCapturing);
    return !is_capturing || (is_capturing(request->stream, &status) == CUDA_SUCCESS &&
                             status == CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Make the stream's context current; `*pushed` says whether it was another. */
static bool enter_context(CUstream stream, bool *pushed)
{
    CUcontext current, own;
    *pushed = false;
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
        !real(cuStreamGetCtx))
        return true;
    if (real(cuStreamGetCtx)(stream, &own) != CUDA_SUCCESS || real(cuCtxGetCurrent)(&current) != CUDA_SUCCESS)
        return false;
    if (own == current)
        return true;
    *pushed = real(cuCtxPushCurrent_v2)(own) == CUDA_SUCCESS;
    return *pushed;
}

/* The pool that the request takes from, if it is one that we account: the current or default one of a device.
 */
static CUmemoryPool pool_of(const struct request *request, CUdevice device)
{
    CUmemoryPool current = NULL, standard = NULL;
    if (real(cuDeviceGetMemPool) && real(cuDeviceGetMemPool)(&current, device) != CUDA_SUCCESS)
        current = NULL;
    if (!request->pool || request->pool == current)
        return current;
    if (pool_charge_find(request->pool))
        return request->pool;
    if (real(cuDeviceGetDefaultMemPool) && real(cuDeviceGetDefaultMemPool)(&standard, device) != CUDA_SUCCESS)
        standard = NULL;
    return request->pool == standard ? standard : NULL;
}

/* Where the request is charged. CHARGE_NOWHERE also for pools that are not ours to account. */
static enum charge_place find_pool(const struct request *request, struct pool **pool, uint32_t *gpu)
{
    struct charge charge;
    CUdevice device;
    CUmemoryPool handle = NULL;
    CUstreamCaptureMode mode;
    bool pushed;
    if (!takes_memory(request))
        return CHARGE_NOWHERE;
    *pool = request->pool && session_mode() == SESSION_INSIDE ? pool_charge_find(request->pool) : NULL;
    if (*pool) {
        *gpu = (*pool)->gpu;
        return CHARGE_ON_GPU;
    }
    if (!enter_context(request->stream, &pushed))
        return CHARGE_NOWHERE;
    enum charge_place place = charge_place_current(&charge);
    *gpu = charge.gpu;
    if (place == CHARGE_ON_GPU) {
        pool_charge_calls_begin(&mode);
        if (real(cuCtxGetDevice)(&device) == CUDA_SUCCESS)
            handle = pool_of(request, device);
        *pool = handle ? pool_charge_get(handle, charge.gpu, false) : NULL;
        pool_charge_calls_end(&mode);
        if (!handle)
            place = CHARGE_NOWHERE;
        else if (!*pool)
            place = CHARGE_FORBIDDEN; /* more pools than we can account */
    }
    if (pushed)
        real(cuCtxPopCurrent_v2)(&charge.context);
    return place;
}

static CUresult allocate(const struct request *request)
{
    struct pool *pool = NULL;
    uint32_t gpu = 0;
    enum charge_place place = CHARGE_NOWHERE;
    if (request->address && request->bytes && charge_depth == 0 && session_mode() != SESSION_OUTSIDE)
        place = find_pool(request, &pool, &gpu);
    if (place == CHARGE_NOWHERE)
        return ask_driver(request);
    if (place == CHARGE_FORBIDDEN || !pool_charge_prepare(pool, request->bytes)) {
        charge_say_refused(place == CHARGE_ON_GPU, gpu, request->bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    charge_moving();
    charge_enter();
    CUresult result = ask_driver(request);
    if (pool_charge_settle(pool)) {
        pool_charge_done(pool);
    } else {
        /* It needed more than asked: whole blocks, or its unused memory was in pieces. */
        if (result == CUDA_SUCCESS)
            give_back(request);
        pool_charge_give_up(pool);
        charge_say_refused(true, gpu, request->bytes);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    charge_leave();
    return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    if (!real_ready() || !real(cuMemAllocAsync) || !real(cuMemFreeAsync))
        return real_absent();
    return allocate(&(struct request){.address = address, .bytes = bytes, .stream = stream});
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    if (!real_ready() || !real(cuMemAllocAsync_ptsz) || !real(cuMemFreeAsync_ptsz))
        return real_absent();
    return allocate(
        &(struct request){.address = address, .bytes = bytes, .stream = stream, .per_thread = true});
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    if (!real_ready() || !real(cuMemAllocFromPoolAsync) || !real(cuMemFreeAsync))
        return real_absent();
    if (!pool || pool_charge_is_dying(pool))
        return real(cuMemAllocFromPoolAsync)(address, bytes, NULL, stream);
    return allocate(&(struct request){.address = address, .bytes = bytes, .pool = pool, .stream = stream});
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    if (!real_ready() || !real(cuMemAllocFromPoolAsync_ptsz) || !real(cuMemFreeAsync_ptsz))
        return real_absent();
    if (!pool || pool_charge_is_dying(pool))
        return real(cuMemAllocFromPoolAsync_ptsz)(address, bytes, NULL, stream);
    return allocate(&(struct request){
        .address = address, .bytes = bytes, .pool = pool, .stream = stream, .per_thread = true});
}

/* Memory of cuMemAlloc may be freed in stream order too: then its record goes, as in cuMemFree. */
static CUresult free_in_order(CUresult (*driver)(CUdeviceptr, CUstream), CUdeviceptr address, CUstream stream)
{
    struct record record;
    bool recorded = charge_drop(RECORD_POINTER, address, &record);
    charge_enter();
    CUresult result = driver(address, stream);
    charge_leave();
    if (recorded)
        charge_dropped(&record, result);
    pool_charge_refresh();
    return result;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    if (!real_ready() || !real(cuMemFreeAsync))
        return real_absent();
    return free_in_order(real(cuMemFreeAsync), address, stream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    if (!real_ready() || !real(cuMemFreeAsync_ptsz))
        return real_absent();
    return free_in_order(real(cuMemFreeAsync_ptsz), address, stream);
}

/* --- Pools ----------------------------------------------------------------------------------------- */

/* The device whose memory a pool takes; false: none's. Managed memory without a device's location
 * (cuda.h 13.0) may come to any: it is charged as that of cuMemAllocManaged is, where the program works; to
 * the first device before that. */
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

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    struct charge charge;
    CUdevice device;
    if (!real_ready() || !real(cuMemPoolCreate) || !real(cuMemPoolDestroy))
        return real_absent();
    if (!pool || !properties || !device_of(&properties->location, properties->allocType, &device))
        return real(cuMemPoolCreate)(pool, properties);
    enum charge_place place = charge_place_device(&charge, device);
    if (place == CHARGE_FORBIDDEN) {
        charge_say_refused(false, 0, 0);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = real(cuMemPoolCreate)(pool, properties);
    if (result == CUDA_SUCCESS && place == CHARGE_ON_GPU &&
        !pool_charge_get_made(*pool, device, charge.gpu,
                              properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED)) {
        real(cuMemPoolDestroy)(*pool); /* more pools than we can account */
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

/* A device's own pools may be allocated from in streams of any device: remember where they are. */
static void remember_pool(CUresult result, const CUmemoryPool *pool, CUdevice device, bool managed)
{
    struct charge charge;
    if (result == CUDA_SUCCESS && pool && *pool && charge_place_device(&charge, device) == CHARGE_ON_GPU)
        pool_charge_get(*pool, charge.gpu, managed);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    if (!real_ready() || !real(cuDeviceGetDefaultMemPool))
        return real_absent();
    CUresult result = real(cuDeviceGetDefaultMemPool)(pool, device);
    remember_pool(result, pool, device, false);
    return result;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    if (!real_ready() || !real(cuDeviceGetMemPool))
        return real_absent();
    CUresult result = real(cuDeviceGetMemPool)(pool, device);
    remember_pool(result, pool, device, false);
    return result;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    CUdevice device;
    if (!real_ready() || !real(cuMemGetDefaultMemPool))
        return real_absent();
    CUresult result = real(cuMemGetDefaultMemPool)(pool, location, type);
    if (location && device_of(location, type, &device))
        remember_pool(result, pool, device, type == CU_MEM_ALLOCATION_TYPE_MANAGED);
    return result;
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    CUdevice device;
    if (!real_ready() || !real(cuMemGetMemPool))
        return real_absent();
    CUresult result = real(cuMemGetMemPool)(pool, location, type);
    if (location && device_of(location, type, &device))
        remember_pool(result, pool, device, type == CU_MEM_ALLOCATION_TYPE_MANAGED);
    return result;
}

/* Calls that name a pool: one that the program has destroyed is none, though the driver's is still there. The
 * driver itself says so, in its own order of checks. */
#define NAMES_POOL(symbol, parameters, arguments)                                                            \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        if (!real_ready() || !real(symbol))                                                                  \
            return real_absent();                                                                            \
        if (pool_charge_is_dying(pool))                                                                      \
            pool = NULL;                                                                                     \
        return real(symbol) arguments;                                                                       \
    }
NAMES_POOL(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute which, void *value),
           (pool, which, value))
NAMES_POOL(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute which, void *value),
           (pool, which, value))
NAMES_POOL(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *access, size_t count),
           (pool, access, count))
NAMES_POOL(cuMemPoolGetAccess, (CUmemAccess_flags * flags, CUmemoryPool pool, CUmemLocation *location),
           (flags, pool, location))
NAMES_POOL(cuMemPoolExportToShareableHandle,
           (void *handle, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags),
           (handle, pool, type, flags))
NAMES_POOL(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool), (device, pool))

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes)
{
    if (!real_ready() || !real(cuMemPoolTrimTo))
        return real_absent();
    CUresult result = real(cuMemPoolTrimTo)(pool_charge_is_dying(pool) ? NULL : pool, keep_bytes);
    pool_charge_refresh();
    return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    if (!real_ready() || !real(cuMemPoolDestroy))
        return real_absent();
    struct pool *pool = charge_holds() ? pool_charge_find(handle) : NULL;
    if (!pool)
        return real(cuMemPoolDestroy)(handle);
    return pool_charge_destroy(pool);
}

/* Calls that wait for work: pools give back what they may there. */
#define WAITS(symbol, parameters, arguments)                                                                 \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        if (!real_ready() || !real(symbol))                                                                  \
            return real_absent();                                                                            \
        CUresult result = real(symbol) arguments;                                                            \
        pool_charge_refresh();                                                                               \
        return result;                                                                                       \
    }
WAITS(cuStreamSynchronize, (CUstream stream), (stream))
WAITS(cuStreamSynchronize_ptsz, (CUstream stream), (stream))
WAITS(cuCtxSynchronize, (void), ())
WAITS(cuCtxSynchronize_v2, (CUcontext context), (context))
WAITS(cuEventSynchronize, (CUevent event), (event))
