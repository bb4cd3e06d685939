#include "intercept/memory/pool_road.h"

#include "intercept/agent/agent.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/engine/as_driver.h"
#include "intercept/memory/engine/engine.h"
#include "intercept/memory/pool_charge.h"
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

/* The pool that the allocation takes from, if we account for it: a device's current or default pool, or a known one. */
static CUmemoryPool pool_of(CUmemoryPool named, CUdevice device)
{
    CUmemoryPool current = NULL, standard = NULL;
    if (real(cuDeviceGetMemPool) && real(cuDeviceGetMemPool)(&current, device) != CUDA_SUCCESS)
        current = NULL;
    if (!named || named == current)
        return current;
    if (pool_charge_find(named))
        return named;
    if (real(cuDeviceGetDefaultMemPool) && real(cuDeviceGetDefaultMemPool)(&standard, device) != CUDA_SUCCESS)
        standard = NULL;
    return named == standard ? standard : NULL;
}

/* Inside own calls, in the stream's context. */
static enum gpu_place find_in_context(CUmemoryPool named, struct pool **pool, uint32_t *gpu)
{
    struct charge charge;
    CUdevice device;
    CUmemoryPool handle = NULL;
    enum gpu_place place = charge_place_inside(&charge);
    *gpu = charge.gpu;
    if (place != PLACE_ON_GPU)
        return place;
    if (real(cuCtxGetDevice)(&device) == CUDA_SUCCESS)
        handle = pool_of(named, device);
    if (!handle)
        return PLACE_NOWHERE;
    *pool = pool_charge_get(handle, charge.gpu, false);
    return *pool ? PLACE_ON_GPU : PLACE_FORBIDDEN; /* more pools than we can account for */
}

/* Where the allocation is charged. PLACE_NOWHERE also for pools that we do not account for. */
static enum gpu_place find_pool(const struct allocation *wanted, struct pool **pool, uint32_t *gpu)
{
    struct own_calls calls;
    CUcontext context;
    CUmemoryPool named = wanted->pooled.pool;
    if (!takes_memory(wanted))
        return PLACE_NOWHERE;
    *pool = named && session_mode() == SESSION_INSIDE ? pool_charge_find(named) : NULL;
    if (*pool) {
        *gpu = (*pool)->gpu;
        return PLACE_ON_GPU;
    }
    if (!as_driver_context_of(wanted->pooled.stream, &context) || !own_calls_begin(&calls, context))
        return PLACE_NOWHERE;
    enum gpu_place place = find_in_context(named, pool, gpu);
    own_calls_end(&calls);
    return place;
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
    charge_say_refused(true, gpu, wanted->bytes);
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
        charge_say_refused(true, gpu, wanted->bytes);
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
        charge_say_refused(false, gpu, wanted->bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool is_full;
    CUresult result = allocate_charged(pool, gpu, row, wanted, &is_full);
    for (unsigned attempt = 0; is_full && agent_wait_for_room(gpu, wanted->bytes, false, attempt); attempt++)
        result = allocate_charged(pool, gpu, row, wanted, &is_full);
    return result;
}
