/* hook_old_forms.c - the 32-bit calls for linear memory from before CUDA 3.2. A present driver refuses them with
 * INVALID_CONTEXT in present contexts. Where it would serve them, in contexts of the oldest form, a session answers
 * the same, so that no memory is taken past its quota. */
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"
#include "intercept/session/session.h"

/* Whether the driver has served the program in a session. */
static bool is_served(CUresult result)
{
    return result == CUDA_SUCCESS && own_calls_depth == 0 && session_mode() != SESSION_OUTSIDE;
}

static CUresult take_back(CUdeviceptr_v1 address)
{
    real(cuMemFree)(address);
    return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned int bytes)
{
    real_needed(cuMemAlloc);
    real_needed(cuMemFree);
    CUresult result = real(cuMemAlloc)(address, bytes);
    return is_served(result) ? take_back(*address) : result;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned int *pitch, unsigned int width,
                         unsigned int height, unsigned int element_bytes)
{
    real_needed(cuMemAllocPitch);
    real_needed(cuMemFree);
    CUresult result = real(cuMemAllocPitch)(address, pitch, width, height, element_bytes);
    return is_served(result) ? take_back(*address) : result;
}

/* Frees memory of these forms, which a program in a session does not have. */
CUresult cuMemFree(CUdeviceptr_v1 address)
{
    real_needed(cuMemFree);
    return real(cuMemFree)(address);
}

CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes)
{
    real_needed(cuMemGetInfo);
    CUresult result = real(cuMemGetInfo)(free_bytes, total_bytes);
    return is_served(result) ? CUDA_ERROR_INVALID_CONTEXT : result;
}
