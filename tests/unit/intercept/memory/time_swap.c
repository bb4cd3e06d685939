/* Prints how fast memory of the swap engine leaves a simulated card and comes back, beside copies of the same bytes alone;
 * run it by hand, with LD_LIBRARY_PATH leading to the simulated driver: time_swap [MIB] [EXTENT_MIB] */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "intercept/memory/charge.h"
#include "intercept/memory/engine/swap_parts.h"

#define MIB (UINT64_C(1) << 20)

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void expect(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "time_swap: %s: %d\n", what, (int)result);
    exit(1);
}

static double begun;
static uint64_t all_bytes;

static void say(const char *what)
{
    double took = seconds() - begun;
    printf("%-28s %6.2f GB/s\n", what, (double)all_bytes / took * 1e-9);
}

int main(int count, char **arguments)
{
    uint64_t extent_bytes = (count > 2 ? strtoull(arguments[2], NULL, 10) : 64) * MIB;
    uint64_t extents = (count > 1 ? strtoull(arguments[1], NULL, 10) : 512) * MIB / extent_bytes;
    char name[32], path[96];
    snprintf(name, sizeof(name), "timeswap%d", (int)getpid());
    snprintf(path, sizeof(path), "/dev/shm/fakecuda-%u-%s", (unsigned)geteuid(), name);
    setenv("FAKECUDA_NAME", name, 1);
    setenv("GPUSLICE_MEMORY_LIMIT", "64GiB", 1);
    setenv("GPUSLICE_OVERSUBSCRIBE", "swap", 1);
    CUcontext context;
    CUdeviceptr *addresses = calloc(extents, sizeof(*addresses));
    if (!addresses || !real_find(true))
        return 1;
    expect(((CUresult(*)(unsigned))real_driver_function(CUDA_ID_cuInit))(0), "cuInit");
    expect(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
    all_bytes = extents * extent_bytes;
    for (uint64_t i = 0; i < extents; i++) {
        expect(cuMemAlloc_v2(&addresses[i], extent_bytes), "cuMemAlloc");
        expect(cuMemsetD8_v2(addresses[i], (unsigned char)i, extent_bytes), "cuMemsetD8");
    }
    for (unsigned round = 0; round < 3; round++) {
        begun = seconds();
        expect(swap_evict(NULL), "swap_evict");
        say(round ? "out" : "out, the arena is made");
        begun = seconds();
        expect(swap_restore(NULL), "swap_restore");
        say("in");
    }
    const unsigned char *arena = swap_state()->arena.base;
    begun = seconds();
    for (uint64_t i = 0; i < extents; i++)
        expect(cuMemcpyDtoH_v2((void *)(uintptr_t)(arena + i * extent_bytes), addresses[i], extent_bytes),
               "copy");
    say("the copies out alone");
    begun = seconds();
    for (uint64_t i = 0; i < extents; i++)
        expect(cuMemcpyHtoD_v2(addresses[i], arena + i * extent_bytes, extent_bytes), "copy");
    say("the copies in alone");
    unlink(path);
    return 0;
}
