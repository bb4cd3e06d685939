/* Prints how fast memory of the swap engine leaves a simulated card and comes back, beside copies of the same bytes alone,
 * each a line of a name and GB/s: time_swap [MIB] [EXTENT_MIB], with LD_LIBRARY_PATH leading to the simulated driver.
 *
 *   cold      out, where the arena has no memory yet: it is made and page-locked on the way
 *   out, in   with a warm arena, of memory that has changed since
 *   clean     out, of memory that has not
 *   copy_out, copy_in  the same bytes copied between page-locked memory and the card, and nothing else */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "intercept/memory/charge.h"
#include "intercept/memory/engine/resident.h"
#include "intercept/memory/engine/swap.h"
#include "intercept/memory/engine/swap_move.h"

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
    printf("%s %.3f\n", what, (double)all_bytes / (seconds() - begun) * 1e-9);
}

static CUdeviceptr *addresses;
static uint64_t extents, extent_bytes;

static void change_all(unsigned char value)
{
    for (uint64_t i = 0; i < extents; i++)
        expect(cuMemsetD8_v2(addresses[i], (unsigned char)(value + i), extent_bytes), "cuMemsetD8");
    expect(cuCtxSynchronize(), "cuCtxSynchronize");
}

static void time_out(const char *what)
{
    begun = seconds();
    expect(swap_evict(NULL), "swap_evict");
    say(what);
}

static void time_in(const char *what)
{
    begun = seconds();
    expect(swap_restore(NULL), "swap_restore");
    say(what);
}

/* As a program does that has no other cost: all copies behind each other, and one wait. */
static void time_copies(bool is_out)
{
    unsigned char *arena = swap_state()->arena.base;
    CUstream stream;
    expect(cuCtxSynchronize(), "cuCtxSynchronize");
    expect(real(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    begun = seconds();
    for (uint64_t at = 0, piece = 8 * MIB; at < all_bytes; at += piece) {
        CUdeviceptr address = addresses[at / extent_bytes] + at % extent_bytes;
        piece = extent_bytes < 8 * MIB ? extent_bytes : 8 * MIB;
        expect(is_out ? real(cuMemcpyDtoHAsync_v2)(arena + at, address, piece, stream)
                      : real(cuMemcpyHtoDAsync_v2)(address, arena + at, piece, stream),
               "copy");
    }
    expect(real(cuStreamSynchronize)(stream), "cuStreamSynchronize");
    say(is_out ? "copy_out" : "copy_in");
}

int main(int count, char **arguments)
{
    char name[32], path[96];
    extent_bytes = (count > 2 ? strtoull(arguments[2], NULL, 10) : 64) * MIB;
    extents = (count > 1 ? strtoull(arguments[1], NULL, 10) : 512) * MIB / extent_bytes;
    snprintf(name, sizeof(name), "timeswap%d", (int)getpid());
    snprintf(path, sizeof(path), "/dev/shm/fakecuda-%u-%s", (unsigned)geteuid(), name);
    setenv("FAKECUDA_NAME", name, 1);
    setenv("GPUSLICE_MEMORY_LIMIT", "64GiB", 1);
    setenv("GPUSLICE_OVERSUBSCRIBE", "swap", 1);
    CUcontext context;
    addresses = calloc(extents, sizeof(*addresses));
    if (!addresses || !real_find(true))
        return 1;
    expect(((CUresult(*)(unsigned))real_driver_function(CUDA_ID_cuInit))(0), "cuInit");
    expect(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
    all_bytes = extents * extent_bytes;
    for (uint64_t i = 0; i < extents; i++)
        expect(cuMemAlloc_v2(&addresses[i], extent_bytes), "cuMemAlloc");
    change_all(1);
    time_out("cold");
    time_in("cold_in");
    change_all(2);
    time_out("out");
    time_in("in");
    time_out("clean");
    time_in("clean_in");
    time_copies(true);
    time_copies(false);
    unlink(path);
    return 0;
}
