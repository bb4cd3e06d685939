/* busy.c - keeps the GPU busy with kernels of half a millisecond, and says which part of its time it got.
 *
 *   busy [SECONDS]    how long, 5 without
 *
 * The kernels do a fixed number of steps, so only time in which they have the GPU counts. A kernel that watched a clock
 * for half a millisecond would end on time even if another program had the GPU meanwhile. */
#include <time.h>

#include "check.h"
#include "kernels_ptx.h"

#define KERNEL_US 500
#define TRIES 10
#define AHEAD 4 /* kernels submitted before the oldest is waited for */

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void launch(CUfunction work, uint64_t steps)
{
    uint64_t nowhere = 0;
    CHECK(cuLaunchKernel(work, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&steps, &nowhere}, NULL));
}

/* How long a kernel of `steps` steps takes, in microseconds: the shortest of TRIES runs, the one that other programs
 * slowed least. */
static double time_steps(CUfunction work, uint64_t steps)
{
    CUevent begin, end;
    float least_ms = 0;
    CHECK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    for (int i = 0; i < TRIES; i++) {
        float ms;
        CHECK(cuEventRecord(begin, NULL));
        launch(work, steps);
        CHECK(cuEventRecord(end, NULL));
        CHECK(cuEventSynchronize(end));
        CHECK(cuEventElapsedTime(&ms, begin, end));
        if (i == 0 || ms < least_ms)
            least_ms = ms;
    }
    CHECK(cuEventDestroy_v2(begin));
    CHECK(cuEventDestroy_v2(end));
    return (double)least_ms * 1e3;
}

/* How many steps take KERNEL_US, by the fastest step seen, because other programs can only slow steps down. The difference
 * of two such times could be near 0 if one of them was slowed. */
static uint64_t find_steps(CUfunction work)
{
    uint64_t steps = 1024;
    double us = time_steps(work, steps), least_us = us / (double)steps;
    while (us < 4 * KERNEL_US) {
        steps *= 2;
        us = time_steps(work, steps);
        if (us / (double)steps < least_us)
            least_us = us / (double)steps;
    }
    return (uint64_t)(KERNEL_US / least_us);
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
    CUfunction work;
    CUevent done[AHEAD];
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuModuleGetFunction(&work, module, "gs_steps_u32"));
    for (int i = 0; i < AHEAD; i++)
        CHECK(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING));

    uint64_t steps = find_steps(work), kernels = 0;
    double start = now_seconds(), end = start;
    for (; end - start < seconds; kernels++, end = now_seconds()) {
        CUevent oldest = done[kernels % AHEAD];
        if (kernels >= AHEAD)
            CHECK(cuEventSynchronize(oldest));
        launch(work, steps);
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
