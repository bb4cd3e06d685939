/* Prints how fast memory of the swap engine leaves a simulated card and comes back, beside copies of the same bytes alone,
 * each a line of a name and GB/s: time_swap [MIB] [EXTENT_MIB] [own], with LD_LIBRARY_PATH leading to the simulated driver.
 * With "own", each line has instead, for each GiB: the milliseconds of CPU time that the engine itself took, without what
 * its calls took in the driver, and the number of these calls. There is a line less of copies, and one more:
 *
 *   first     out, for the first time, where host memory was made and page-locked ahead
 *   cold      out, where the arena has no memory yet: it is made and page-locked on the way
 *   out, in   with a warm arena, of memory that has changed since
 *   clean     out, of memory that has not
 *   copy_out, copy_in  the same bytes copied between page-locked memory and the card, and nothing else */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "intercept/memory/charge.h"
#include "intercept/memory/engine/swap/extents/resident.h"
#include "intercept/memory/engine/swap/move/swap_move.h"
#include "intercept/memory/engine/swap/swap.h"
#include "memory/counted_driver.h"

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
static uint64_t begun_cpu_ns, all_bytes;
static bool counts_own;

static void begin(void)
{
    in_driver.ns = in_driver.calls = 0;
    begun_cpu_ns = thread_cpu_ns();
    begun = seconds();
}

static void say(const char *what)
{
    double gib = (double)all_bytes / (double)(UINT64_C(1) << 30);
    double cpu_ns = (double)(thread_cpu_ns() - begun_cpu_ns),
           driver_ns = (double)(in_driver.ns + in_driver.calls * in_driver.clock_ns);
    if (counts_own)
        printf("%s %.4f %.0f\n", what, (cpu_ns - driver_ns) * 1e-6 / gib, (double)in_driver.calls / gib);
    else
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
    begin();
    expect(swap_evict(NULL), "swap_evict");
    say(what);
}

static void time_in(const char *what)
{
    begin();
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
    begin();
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

/* As the daemon and the agent do while a program works or rests. */
static void make_arena(void)
{
    expect(arena_has_room(&swap_state()->arena, all_bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY,
           "arena");
    while (page_lock_next() == PAGE_LOCK_DONE)
        continue;
}

int main(int count, char **arguments)
{
    char name[32], path[96];
    extent_bytes = (count > 2 ? strtoull(arguments[2], NULL, 10) : 64) * MIB;
    extents = (count > 1 ? strtoull(arguments[1], NULL, 10) : 512) * MIB / extent_bytes;
    counts_own = count > 3 && strcmp(arguments[3], "own") == 0;
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
    if (counts_own) {
        make_arena();
        count_driver_calls();
    }
    time_out(counts_own ? "first" : "cold");
    time_in(counts_own ? "first_in" : "cold_in");
    change_all(2);
    time_out("out");
    time_in("in");
    time_out("clean");
    time_in("clean_in");
    if (!counts_own) {
        time_copies(true);
        time_copies(false);
    }
    unlink(path);
    return 0;
}
