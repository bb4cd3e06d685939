#include "intercept/memory/pool_road.h"

#include "intercept/memory/charge.h"
#include "intercept/memory/engine/as_driver.h"
#include "intercept/memory/engine/engine.h"
#include "intercept/memory/full_card.h"
#include "intercept/memory/pool_charge.h"
#include "intercept/memory/refusal.h"
#include "intercept/resolve/real.h"

/* While the stream is captured, an allocation becomes a node of a graph and takes nothing yet. A stream for which the
 * driver cannot tell is left to the driver as well: it will refuse. */
static bool takes_memory(const struct allocation *wanted)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult (*is_capturing)(CUstream, CUstreamCaptureStatus *) =
        wanted->pooled.is_per_thread ? real(cuStreamIsCapturing_ptsz) : real(cuStreamIsCapturing);
    return !is_capturing || (is_capturing(wanted->pooled.stream, &status) == CUDA_SUCCESS &&
                             status == CU_STREAM_CAPTURE_STATUS_NONE);
}

bool pool_road_is_linear(const struct allocation *wanted, CUcontext *context)
{
    return engine_of_process()->has_no_pools && !wanted->pooled.pool && own_calls_depth == 0 &&
           session_mode() == SESSION_INSIDE && takes_memory(wanted) &&
           as_driver_context_of(wanted->pooled.stream, context);
}

/* The device whose own pool this is. False: it is a pool that somebody made. */
static bool device_of_own(CUmemoryPool named, CUdevice *device)
{
    CUmemoryPool pool;
    CUuuid uuid;
    for (*device = 0; *device < (int)LEDGER_GPUS && charge_device_uuid(*device, &uuid); ++*device)
        if ((real(cuDeviceGetMemPool) && real(cuDeviceGetMemPool)(&pool, *device) == CUDA_SUCCESS &&
             pool == named) ||
            (real(cuDeviceGetDefaultMemPool) &&
             real(cuDeviceGetDefaultMemPool)(&pool, *device) == CUDA_SUCCESS && pool == named))
            return true;
    return false;
}

/* What a pool gives. */
struct given {
    bool is_of_host, is_managed;
    CUdevice device;
};

static bool read_given(CUdeviceptr address, struct given *given)
{
    CUmemorytype type;
    unsigned is_managed = 0;
    if (engine_plain.pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS)
        return false;
    given->is_of_host = type == CU_MEMORYTYPE_HOST;
    if (given->is_of_host)
        return true;
    if (engine_plain.pointer_attribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) == CUDA_SUCCESS)
        given->is_managed = is_managed != 0;
    return engine_plain.pointer_attribute(&given->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) ==
           CUDA_SUCCESS;
}

/* Ask a byte of a pool that no call has told us of. Inside own calls, in the stream's context. */
static CUresult ask_pool(const struct allocation *wanted, struct given *given)
{
    CUdeviceptr address = 0;
    struct allocation byte = *wanted;
    byte.bytes = 1;
    byte.got = &address;
    *given = (struct given){.device = -1};
    if (device_of_own(wanted->pooled.pool, &given->device))
        return CUDA_SUCCESS;
    CUresult result = plain_allocate(&byte);
    if (result != CUDA_SUCCESS)
        return result;
    if (!read_given(address, given))
        result = CUDA_ERROR_OUT_OF_MEMORY; /* what is unknown is refused */
    plain_release(alloc_rows[wanted->way].undo, address, wanted->pooled.stream);
    return result;
}

/* Inside own calls: the device's current pool, from which allocations that name none come. */
static CUresult find_current(struct given *given, CUmemoryPool *pool)
{
    *given = (struct given){.device = -1};
    CUresult result = real(cuCtxGetDevice)(&given->device);
    return result == CUDA_SUCCESS && real(cuDeviceGetMemPool) ? real(cuDeviceGetMemPool)(pool, given->device)
                                                              : CUDA_ERROR_NOT_SUPPORTED;
}

/* Where the memory of a pool is charged. Managed memory that prefers no device is charged on the GPU of the program's
 * context. */
static enum gpu_place place_of(const struct given *given, uint32_t *gpu)
{
    struct charge charge;
    enum gpu_place place =
        given->device < 0 ? charge_place_current(&charge) : charge_place_device(&charge, given->device);
    *gpu = charge.gpu;
    return place;
}

/* The pool is remembered. PLACE_FORBIDDEN also if there are more pools than we can account for. */
static enum gpu_place remember(CUmemoryPool handle, const struct given *given, struct pool **pool,
                               uint32_t *gpu)
{
    struct own_calls calls;
    enum gpu_place place = place_of(given, gpu);
    if (place != PLACE_ON_GPU)
        return place;
    own_calls_begin(&calls, NULL);
    *pool = pool_charge_get(handle, *gpu, given->is_managed);
    own_calls_end(&calls);
    return *pool ? PLACE_ON_GPU : PLACE_FORBIDDEN;
}

/* Where the allocation is charged: the pool's memory decides, not the stream. PLACE_NOWHERE: it is memory of the host, or the
 * driver will refuse. */
static enum gpu_place find_pool(const struct allocation *wanted, struct pool **pool, uint32_t *gpu)
{
    struct own_calls calls;
    CUcontext context;
    struct given given;
    CUmemoryPool handle = wanted->pooled.pool;
    if (!takes_memory(wanted))
        return PLACE_NOWHERE;
    *pool = handle && session_mode() == SESSION_INSIDE ? pool_charge_find(handle) : NULL;
    if (*pool) {
        *gpu = (*pool)->gpu;
        return (*pool)->is_of_host ? PLACE_NOWHERE : PLACE_ON_GPU;
    }
    if (!as_driver_context_of(wanted->pooled.stream, &context) || !own_calls_begin(&calls, context))
        return PLACE_NOWHERE;
    CUresult result = handle ? ask_pool(wanted, &given) : find_current(&given, &handle);
    if (result == CUDA_SUCCESS && given.is_of_host)
        pool_charge_note_host(handle);
    own_calls_end(&calls);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return PLACE_FORBIDDEN;
    return result != CUDA_SUCCESS || given.is_of_host ? PLACE_NOWHERE : remember(handle, &given, pool, gpu);
}

/* Called with the pool's lock, which it gives back. */
static CUresult allocate_from(struct pool *pool, const struct alloc_row *row, const struct allocation *wanted,
                              bool *is_full)
{
    CUresult result = engine_allocate(wanted, NULL);
    *is_full = result == CUDA_ERROR_OUT_OF_MEMORY;
    if (pool_charge_correct(pool)) {
        pool_charge_done(pool);
        return result;
    }
    /* The pool needed more than was asked: it takes whole blocks, or its unused memory was in pieces. */
    if (result == CUDA_SUCCESS)
        engine_release(row->undo, *(CUdeviceptr *)wanted->got, wanted->pooled.stream);
    uint32_t gpu = pool->gpu;
    pool_charge_give_up(pool);
    refusal_by_limit(gpu, wanted->bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Names the pool to the engine even where the program named none. `*is_full`: the allocation fits the quota, but the
 * card had no room. */
static CUresult allocate_charged(struct pool *pool, uint32_t gpu, const struct alloc_row *row,
                                 const struct allocation *wanted, bool *is_full)
{
    struct allocation named = *wanted;
    named.pooled.pool = (CUmemoryPool)atomic_load_explicit(&pool->handle, memory_order_relaxed);
    *is_full = false;
    if (!pool_charge_prepare(pool, wanted->bytes)) {
        refusal_by_limit(gpu, wanted->bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    charge_begin_move();
    charge_enter();
    CUresult result = allocate_from(pool, row, &named, is_full);
    charge_leave();
    return result;
}

CUresult pool_road_allocate(const struct alloc_row *row, const struct allocation *wanted)
{
    struct pool *pool = NULL;
    uint32_t gpu = 0;
    enum gpu_place place = PLACE_NOWHERE;
    if (own_calls_depth == 0 && session_mode() != SESSION_OUTSIDE)
        place = find_pool(wanted, &pool, &gpu);
    if (place == PLACE_NOWHERE)
        return plain_allocate(wanted);
    if (place == PLACE_FORBIDDEN) {
        refusal_of_gpu();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool is_full;
    CUresult result = allocate_charged(pool, gpu, row, wanted, &is_full);
    for (unsigned attempt = 0; is_full && full_card_wait(gpu, wanted->bytes, wanted->bytes, false, attempt);
         attempt++)
        result = allocate_charged(pool, gpu, row, wanted, &is_full);
    return result;
}
