/* older_driver.c - makes the driver one of CUDA 12.8, which lacks what came later, as far as the claims ask for it. */
#include "cuda/prototypes.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED CUresult cuDriverGetVersion(int *version)
{
    *version = 12080;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                                        CUmemcpyAttributes *attributes, size_t *first, size_t attribute_count,
                                        CUstream stream)
{
    return CUDA_ERROR_NOT_FOUND;
}
