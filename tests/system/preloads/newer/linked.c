/* linked.c - a program that is linked with a function that no table of ours has. It takes 64 MiB, says "ready" and calls the
 * function at a line. */
#include <stdio.h>

#include "cuda/prototypes.h"

CUresult cuBrandNew(CUdeviceptr address);

int main(void)
{
    CUcontext context;
    CUdeviceptr address;
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0) || cuMemAlloc_v2(&address, 64u << 20))
        return 1;
    puts("ready");
    fflush(stdout);
    return getchar() == EOF || cuBrandNew(address) != CUDA_SUCCESS;
}
