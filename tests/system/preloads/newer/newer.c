/* newer.c - the simulated driver with a function that no table of ours has, as a newer driver would have it. */
#include "cuda/driver.h"

__attribute__((visibility("default"))) CUresult cuBrandNew(CUdeviceptr address);

CUresult cuBrandNew(CUdeviceptr address)
{
    return address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
