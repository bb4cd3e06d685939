/* hook_green.c - green contexts: parts of a device's primary context, which they keep alive. The first on a
 * device costs what the primary context costs; memory allocated under one goes with the primary context. */
#include "intercept/memory/hooks/context.h"
#include "intercept/resolve/real.h"

/* Under the GPU's turn: what became of the primary context as `green` was made, and what goes with it. */
static void keep_green(struct charge *charge, CUgreenCtx green, CUdevice device)
{
    CUcontext primary = NULL, own = NULL;
    struct record displaced;
    if (context_primary(device, &primary))
        context_keep(charge, primary);
    if (!real(cuCtxFromGreenCtx) || real(cuCtxFromGreenCtx)(&own, green) != CUDA_SUCCESS || !own)
        own = (CUcontext)green;
    if (!primary) {
        context_keep(charge, own);
        return;
    }
    if (own == primary)
        return; /* the driver has no other context for it */
    struct record record = {.key = (uint64_t)(uintptr_t)own,
                            .owner = (uint64_t)(uintptr_t)primary,
                            .references = 1,
                            .gpu = (uint8_t)charge->gpu,
                            .kind = RECORD_CONTEXT};
    records_put(&private_get()->records, &record, &displaced);
}

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device, unsigned int flags)
{
    struct charge charge = {0};
    if (!real_ready() || !real(cuGreenCtxCreate))
        return real_absent();
    if (!green)
        return real(cuGreenCtxCreate)(green, resources, device, flags);
    enum charge_place place = charge_place_device(&charge, device);
    if (place == CHARGE_NOWHERE)
        return real(cuGreenCtxCreate)(green, resources, device, flags);
    if (place == CHARGE_FORBIDDEN) {
        charge_say_refused(false, 0, 0);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    uint32_t gpu = charge.gpu;
    pthread_mutex_lock(context_turn(gpu));
    if (context_primary_is_active(device) || context_take(&charge, device) == CHARGE_TAKEN) {
        charge_enter();
        result = real(cuGreenCtxCreate)(green, resources, device, flags);
        if (result == CUDA_SUCCESS)
            keep_green(&charge, *green, device);
        else
            charge_return(&charge);
        charge_leave();
    }
    pthread_mutex_unlock(context_turn(gpu));
    session_notice(WIRE_NOTICE_CONTEXT);
    session_forget();
    return result;
}

static bool device_of(CUcontext context, CUdevice *device)
{
    CUcontext popped;
    if (!real(cuCtxPushCurrent_v2) || !real(cuCtxPopCurrent_v2) ||
        real(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS)
        return false;
    bool known = real(cuCtxGetDevice)(device) == CUDA_SUCCESS;
    real(cuCtxPopCurrent_v2)(&popped);
    return known;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    struct record record;
    CUcontext own = NULL, primary;
    CUdevice device;
    if (!real_ready() || !real(cuGreenCtxDestroy))
        return real_absent();
    if (!charge_holds())
        return real(cuGreenCtxDestroy)(green);
    if (!real(cuCtxFromGreenCtx) || real(cuCtxFromGreenCtx)(&own, green) != CUDA_SUCCESS || !own)
        own = (CUcontext)green;
    uint64_t key = (uint64_t)(uintptr_t)own;
    if (!records_find(&private_get()->records, RECORD_CONTEXT, key, &record))
        return real(cuGreenCtxDestroy)(green);
    pthread_mutex_lock(context_turn(record.gpu));
    charge_enter();
    bool known = device_of(own, &device) && context_primary(device, &primary);
    CUresult result = real(cuGreenCtxDestroy)(green);
    bool ended = known && result == CUDA_SUCCESS && !context_primary_is_active(device);
    charge_leave();
    /* One that is the primary context itself lives as long as that is retained. */
    bool gone = result == CUDA_SUCCESS && !(known && own == primary);
    if (gone && record.owner == key)
        context_bury(key, record.gpu);
    else if (gone)
        records_take(&private_get()->records, RECORD_CONTEXT, key, &record);
    if (ended)
        context_bury((uint64_t)(uintptr_t)primary, record.gpu);
    pthread_mutex_unlock(context_turn(record.gpu));
    session_forget();
    return result;
}
