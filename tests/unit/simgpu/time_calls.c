/* time_calls - what the simulated driver's own calls cost, for people: not a test. Prints medians of 11
 * rounds. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cuda/prototypes.h"

#define ROUNDS 11

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry unknown(.param .u64 a){ret;}\n"
                          ".visible .entry gs_spin_us(.param .u64 us){ret;}\n";

static CUfunction unknown, spin;
static CUstream stream;
static CUevent event;

static double now_ns(void)
{
    return (double)monotonic_ns();
}

static void launch(void)
{
    unsigned long long value = 1;
    void *arguments[] = {&value};
    cuLaunchKernel(unknown, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

static void launch_timed(void)
{
    unsigned long long microseconds = 1;
    void *arguments[] = {&microseconds};
    cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

static void allocate_4kib(void)
{
    CUdeviceptr pointer;
    if (cuMemAlloc_v2(&pointer, 4096) == CUDA_SUCCESS)
        cuMemFree_v2(pointer);
}

static void allocate_64mib(void)
{
    CUdeviceptr pointer;
    if (cuMemAlloc_v2(&pointer, 64 << 20) == CUDA_SUCCESS)
        cuMemFree_v2(pointer);
}

static void allocate_async(void)
{
    CUdeviceptr pointer;
    if (cuMemAllocAsync(&pointer, 4096, stream) == CUDA_SUCCESS)
        cuMemFreeAsync(pointer, stream);
}

static void record(void)
{
    cuEventRecord(event, stream);
}

static void information(void)
{
    size_t free_bytes, total_bytes;
    cuMemGetInfo_v2(&free_bytes, &total_bytes);
}

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void measure(const char *name, void (*call)(void), unsigned count)
{
    double rounds[ROUNDS];
    for (unsigned round = 0; round < ROUNDS; round++) {
        double begin = now_ns();
        for (unsigned i = 0; i < count; i++)
            call();
        rounds[round] = (now_ns() - begin) / count;
        cuCtxSynchronize();
    }
    qsort(rounds, ROUNDS, sizeof(rounds[0]), compare);
    printf("%-40s %10.1f ns\n", name, rounds[ROUNDS / 2]);
}

int main(void)
{
    CUcontext context;
    CUmodule module;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuModuleLoadData(&module, ptx) || cuModuleGetFunction(&unknown, module, "unknown") ||
        cuModuleGetFunction(&spin, module, "gs_spin_us") || cuStreamCreate(&stream, 0) ||
        cuEventCreate(&event, 0)) {
        fprintf(stderr, "time_calls: the simulated GPU does not start\n");
        return 1;
    }
    measure("launch, takes no time", launch, 200000);
    measure("launch, takes 1 us (queue not full)", launch_timed, 1000);
    measure("alloc + free, 4 KiB", allocate_4kib, 100000);
    measure("alloc + free, 64 MiB", allocate_64mib, 2000);
    measure("allocAsync + freeAsync, 4 KiB", allocate_async, 100000);
    measure("event record, idle stream", record, 100000);
    measure("memGetInfo", information, 20000);
    return 0;
}
