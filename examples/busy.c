/* busy.c - keeps the GPU busy with kernels of half a millisecond, and says which part of its time it got.
 *
 *   busy [SECONDS]    how long, 5 without */
#include <time.h>

#include "check.h"
#include "kernels_ptx.h"

#define KERNEL_US 500
#define AHEAD 4 /* kernels submitted before the oldest is waited for */

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int count, char **words)
{
    double seconds = count > 1 ? atof(words[1]) : 5;
    if (count > 2 || !(seconds > 0 && seconds <= 86400)) {
        fprintf(stderr, "usage: busy [SECONDS]\n");
        return 2;
    }
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction spin;
    CUevent done[AHEAD];
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuModuleGetFunction(&spin, module, "gs_spin_us"));
    for (int i = 0; i < AHEAD; i++)
        CHECK(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING));

    uint64_t microseconds = KERNEL_US, kernels = 0;
    void *arguments[] = {&microseconds};
    double start = now_seconds(), end = start;
    for (; end - start < seconds; kernels++, end = now_seconds()) {
        CUevent oldest = done[kernels % AHEAD];
        if (kernels >= AHEAD)
            CHECK(cuEventSynchronize(oldest));
        CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
        CHECK(cuEventRecord(oldest, NULL));
    }
    CHECK(cuCtxSynchronize());
    end = now_seconds();
    printf("busy: %llu kernels of %.1f ms in %.1f s: %.0f%% of the GPU's time\n", (unsigned long long)kernels,
           KERNEL_US / 1e3, end - start, (double)kernels * KERNEL_US / 1e4 / (end - start));

    for (int i = 0; i < AHEAD; i++)
        CHECK(cuEventDestroy_v2(done[i]));
    CHECK(cuModuleUnload(module));
    CHECK(cuDevicePrimaryCtxRelease_v2(device));
    return 0;
}
