/* hook_memory.c - linear, pitched and managed memory. */
#include "intercept/memory/charge.h"
#include "intercept/memory/pool_charge.h"
#include "intercept/resolve/real.h"

/* Charge what was taken, or take it back from the program. */
static CUresult settle(struct charge *charge, CUresult result, const CUdeviceptr *address)
{
    if (result != CUDA_SUCCESS) {
        charge_return(charge);
        return result;
    }
    if (charge_keep(charge, RECORD_POINTER, *address))
        return CUDA_SUCCESS;
    real(cuMemFree_v2)(*address);
    charge_return(charge);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    struct charge charge;
    if (!real_ready() || !real(cuMemAlloc_v2))
        return real_absent();
    if (!address || !bytes)
        return real(cuMemAlloc_v2)(address, bytes);
    switch (charge_take_current(&charge, bytes)) {
    case CHARGE_PASS:
        return real(cuMemAlloc_v2)(address, bytes);
    case CHARGE_REFUSED:
        return charge_refused();
    case CHARGE_TAKEN:
        break;
    }
    charge_enter();
    CUresult result = settle(&charge, real(cuMemAlloc_v2)(address, bytes), address);
    charge_leave();
    return result;
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    struct charge charge;
    if (!real_ready() || !real(cuMemAllocManaged))
        return real_absent();
    if (!address || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return real(cuMemAllocManaged)(address, bytes, flags);
    switch (charge_take_current(&charge, bytes)) {
    case CHARGE_PASS:
        return real(cuMemAllocManaged)(address, bytes, flags);
    case CHARGE_REFUSED:
        return charge_refused();
    case CHARGE_TAKEN:
        break;
    }
    charge_hide(&charge);
    charge_enter();
    CUresult result = settle(&charge, real(cuMemAllocManaged)(address, bytes, flags), address);
    charge_leave();
    return result;
}

/* The rows' real length is known only once the driver has chosen it: at first no more than the program asked
 * for is reserved, so that what fits exactly is not refused. */
static CUresult settle_pitched(struct charge *charge, CUresult result, const CUdeviceptr *address,
                               const size_t *pitch, size_t height)
{
    size_t real_bytes;
    if (result != CUDA_SUCCESS)
        return settle(charge, result, address);
    if (__builtin_mul_overflow(*pitch, height, &real_bytes))
        real_bytes = SIZE_MAX;
    if (real_bytes > charge->bytes && !charge_more(charge, real_bytes - charge->bytes)) {
        real(cuMemFree_v2)(*address);
        charge_return(charge);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return settle(charge, result, address);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                            unsigned int element_bytes)
{
    struct charge charge;
    size_t bytes;
    if (!real_ready() || !real(cuMemAllocPitch_v2))
        return real_absent();
    if (!address || !pitch || !width || !height || __builtin_mul_overflow(width, height, &bytes) ||
        (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
        return real(cuMemAllocPitch_v2)(address, pitch, width, height, element_bytes);
    switch (charge_take_current(&charge, bytes)) {
    case CHARGE_PASS:
        return real(cuMemAllocPitch_v2)(address, pitch, width, height, element_bytes);
    case CHARGE_REFUSED:
        return charge_refused();
    case CHARGE_TAKEN:
        break;
    }
    charge_enter();
    CUresult result = real(cuMemAllocPitch_v2)(address, pitch, width, height, element_bytes);
    result = settle_pitched(&charge, result, address, pitch, height);
    charge_leave();
    return result;
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    struct record record;
    if (!real_ready() || !real(cuMemFree_v2))
        return real_absent();
    if (!charge_drop(RECORD_POINTER, address, &record)) {
        CUresult result = real(cuMemFree_v2)(address);
        if (address)
            pool_charge_refresh(); /* a pool's memory may be freed like this too */
        return result;
    }
    charge_enter();
    CUresult result = real(cuMemFree_v2)(address);
    charge_leave();
    charge_dropped(&record, result);
    return result;
}
