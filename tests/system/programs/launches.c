/* launches - launches kernels, and marks where in its system calls it does.
 *
 *   launches ROUNDS COUNT KERNEL_US
 *
 * After COUNT launches to begin with: ROUNDS times COUNT launches of KERNEL_US each between two calls of
 * getppid(), which nothing else here makes. Then it waits for all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda/prototypes.h"

static void check(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "launches: %s answered %d\n", call, (int)result);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

static CUfunction spin;

static void launch(long count, unsigned long long kernel_us)
{
    for (long i = 0; i < count; i++)
        CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&kernel_us}, NULL));
}

int main(int count, char **words)
{
    static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry "
                              "gs_spin_us(.param .u64 us)\n{\n ret;\n}\n";
    CUdevice device;
    CUcontext context;
    CUmodule module;
    if (count != 4)
        return 2;
    long rounds = strtol(words[1], NULL, 10), launches = strtol(words[2], NULL, 10);
    unsigned long long kernel_us = strtoull(words[3], NULL, 10);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&spin, module, "gs_spin_us"));
    launch(launches, kernel_us);
    for (long round = 0; round < rounds; round++) {
        getppid();
        launch(launches, kernel_us);
        getppid();
    }
    CHECK(cuCtxSynchronize());
    return 0;
}
