/* hook_visible_memory.c - the driver's answers about memory, as a smaller GPU would give them. */
#include "intercept/memory/charge.h"
#include "intercept/resolve/real.h"
#include "intercept/session/visible_memory.h"

static struct visible_memory of_current_gpu(struct visible_memory card)
{
    struct charge charge;
    enum gpu_place place = charge_place_current(&charge);
    return visible_memory_of(place, charge.gpu, card);
}

static uint64_t total_of_device(CUdevice device, uint64_t card_bytes)
{
    struct charge charge;
    enum gpu_place place = charge_place_device(&charge, device);
    return visible_memory_of(place, charge.gpu, (struct visible_memory){.total_bytes = card_bytes})
        .total_bytes;
}

/* Either pointer may be NULL, if the driver accepts that. */
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    real_needed(cuMemGetInfo_v2);
    CUresult result = real(cuMemGetInfo_v2)(free_bytes, total_bytes);
    if (result != CUDA_SUCCESS)
        return result;
    struct visible_memory visible =
        of_current_gpu((struct visible_memory){.total_bytes = total_bytes ? *total_bytes : SIZE_MAX,
                                               .free_bytes = free_bytes ? *free_bytes : SIZE_MAX});
    if (free_bytes)
        *free_bytes = visible.free_bytes;
    if (total_bytes)
        *total_bytes = visible.total_bytes;
    return result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    real_needed(cuDeviceTotalMem_v2);
    CUresult result = real(cuDeviceTotalMem_v2)(bytes, device);
    if (result == CUDA_SUCCESS && bytes)
        *bytes = total_of_device(device, *bytes);
    return result;
}

/* The form from before CUDA 3.2 cannot tell the size of a large card, so that is asked by the present form. */
CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    size_t card_bytes;
    real_needed(cuDeviceTotalMem);
    CUresult result = real(cuDeviceTotalMem)(bytes, device);
    if (result == CUDA_SUCCESS && bytes && own_calls_depth == 0 && session_mode() != SESSION_OUTSIDE &&
        real(cuDeviceTotalMem_v2) && real(cuDeviceTotalMem_v2)(&card_bytes, device) == CUDA_SUCCESS) {
        uint64_t visible_bytes = total_of_device(device, card_bytes);
        *bytes = visible_bytes < UINT32_MAX ? (unsigned)visible_bytes : UINT32_MAX;
    }
    return result;
}
