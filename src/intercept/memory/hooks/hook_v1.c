/* hook_v1.c - the 32-bit forms of before CUDA 3.2 that allocate, free and tell linear memory. */
#include "intercept/memory/charge.h"
#include "intercept/memory/pool_charge.h"
#include "intercept/resolve/real.h"

/* Charge what was taken, or take it back from the program. */
static CUresult settle(struct charge *charge, CUresult result, const CUdeviceptr_v1 *address)
{
    if (result == CUDA_SUCCESS && !charge_keep(charge, RECORD_POINTER, *address)) {
        real(cuMemFree)(*address);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS)
        charge_return(charge);
    return result;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned int bytes)
{
    struct charge charge;
    if (!real_ready() || !real(cuMemAlloc) || !real(cuMemFree))
        return real_absent();
    if (!address || !bytes)
        return real(cuMemAlloc)(address, bytes);
    switch (charge_take_current(&charge, bytes)) {
    case CHARGE_PASS:
        return real(cuMemAlloc)(address, bytes);
    case CHARGE_REFUSED:
        return charge_refused();
    case CHARGE_TAKEN:
        break;
    }
    charge_enter();
    CUresult result = settle(&charge, real(cuMemAlloc)(address, bytes), address);
    charge_leave();
    return result;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned int *pitch, unsigned int width,
                         unsigned int height, unsigned int element_bytes)
{
    struct charge charge;
    if (!real_ready() || !real(cuMemAllocPitch) || !real(cuMemFree))
        return real_absent();
    if (!address || !pitch || !width || !height ||
        (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
        return real(cuMemAllocPitch)(address, pitch, width, height, element_bytes);
    switch (charge_take_current(&charge, (uint64_t)width * height)) {
    case CHARGE_PASS:
        return real(cuMemAllocPitch)(address, pitch, width, height, element_bytes);
    case CHARGE_REFUSED:
        return charge_refused();
    case CHARGE_TAKEN:
        break;
    }
    charge_enter();
    CUresult result = real(cuMemAllocPitch)(address, pitch, width, height, element_bytes);
    uint64_t real_bytes = result == CUDA_SUCCESS ? (uint64_t)*pitch * height : 0;
    if (real_bytes > charge.bytes && !charge_more(&charge, real_bytes - charge.bytes)) {
        real(cuMemFree)(*address);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = settle(&charge, result, address);
    charge_leave();
    return result;
}

CUresult cuMemFree(CUdeviceptr_v1 address)
{
    struct record record;
    if (!real_ready() || !real(cuMemFree))
        return real_absent();
    bool recorded = charge_drop(RECORD_POINTER, address, &record);
    charge_enter();
    CUresult result = real(cuMemFree)(address);
    charge_leave();
    if (recorded)
        charge_dropped(&record, result);
    else if (address)
        pool_charge_refresh();
    return result;
}

/* What 32 bits can tell of it. */
static unsigned int narrow(size_t bytes)
{
    return bytes < UINT32_MAX ? (unsigned int)bytes : UINT32_MAX;
}

/* Whatever these forms answer on a large card, the smaller GPU's figures come from the wide ones. */
CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes)
{
    size_t wide_free, wide_total;
    if (!real_ready() || !real(cuMemGetInfo))
        return real_absent();
    CUresult result = real(cuMemGetInfo)(free_bytes, total_bytes);
    if (result != CUDA_SUCCESS || charge_depth || session_mode() == SESSION_OUTSIDE ||
        cuMemGetInfo_v2(&wide_free, &wide_total) != CUDA_SUCCESS)
        return result;
    if (free_bytes)
        *free_bytes = narrow(wide_free);
    if (total_bytes)
        *total_bytes = narrow(wide_total);
    return result;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    size_t wide;
    if (!real_ready() || !real(cuDeviceTotalMem))
        return real_absent();
    CUresult result = real(cuDeviceTotalMem)(bytes, device);
    if (result == CUDA_SUCCESS && bytes && charge_depth == 0 && session_mode() != SESSION_OUTSIDE &&
        cuDeviceTotalMem_v2(&wide, device) == CUDA_SUCCESS)
        *bytes = narrow(wide);
    return result;
}
