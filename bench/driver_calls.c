/* driver_calls - times driver calls from inside one process, for bench/run.
 *
 *   driver_calls alloc N    median and p99 ns of cuMemAlloc + cuMemFree of 4 KiB, over N pairs, in a program
 *                           of several threads, as one with NVIDIA's driver always is
 *   driver_calls alloc1 N   the same in a program of one thread, for which the C library's mutexes take no
 *                           locked instructions: the first thread more, ours too, ends that
 *   driver_calls launch N   of cuLaunchKernel of an empty grid's worth of work, over N launches
 *   driver_calls launch2 N  the same on the default stream and another in turn
 *   driver_calls attach N   ns of the first context's creation (in a session that is where the process attaches),
 *                           beside N threads that rest
 *   driver_calls hold B     allocate B bytes, print "holding", and wait for standard input to end
 *   driver_calls watch      answer each byte on standard input with the ns (CLOCK_MONOTONIC) at which
 *                           cuMemGetInfo first shows more free memory than when the byte came
 *   driver_calls storm N S  N random allocations and frees with seed S; prints how many were granted and denied
 *
 * Calls are timed in batches, so that reading the clock does not count. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "driver_program.h"

#define BATCH 32

static int compare_long(const void *left, const void *right)
{
    long a = *(const long *)left, b = *(const long *)right;
    return (a > b) - (a < b);
}

/* Print median and p99 of `step`, per call, over `count` calls in batches. */
static void time_batches(long count, void (*step)(void *), void *argument)
{
    long batches = (count + BATCH - 1) / BATCH;
    long *times = calloc((size_t)batches, sizeof(*times));
    if (!times)
        exit(1);
    for (int i = 0; i < 4 * BATCH; i++)
        step(argument);
    for (long batch = 0; batch < batches; batch++) {
        long start = now_ns();
        for (int i = 0; i < BATCH; i++)
            step(argument);
        times[batch] = now_ns() - start;
    }
    qsort(times, (size_t)batches, sizeof(*times), compare_long);
    printf("%.2f %.2f\n", (double)times[batches / 2] / BATCH, (double)times[batches * 99 / 100] / BATCH);
    free(times);
}

static void alloc_and_free(void *unused)
{
    (void)unused;
    CUdeviceptr address;
    CHECK(cuMemAlloc_v2(&address, 4096));
    CHECK(cuMemFree_v2(address));
}

static void launch(void *function)
{
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

static CUstream other_stream;

static void launch_on_next(void *function)
{
    static CUstream stream;
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    stream = stream ? NULL : other_stream;
}

static void hold(size_t bytes)
{
    CUdeviceptr address;
    char letter;
    use_gpu(0);
    if (bytes)
        CHECK(cuMemAlloc_v2(&address, bytes));
    puts("holding");
    fflush(stdout);
    while (read(STDIN_FILENO, &letter, 1) > 0)
        ;
}

static void watch(void)
{
    char letter;
    use_gpu(0);
    puts("watching");
    fflush(stdout);
    while (read(STDIN_FILENO, &letter, 1) == 1) {
        size_t before, free_bytes, total;
        CHECK(cuMemGetInfo_v2(&before, &total));
        printf("seen %zu\n", before);
        fflush(stdout);
        long deadline = now_ns() + 5000000000L, at;
        do {
            CHECK(cuMemGetInfo_v2(&free_bytes, &total));
            at = now_ns();
            usleep(20);
        } while (free_bytes <= before && at < deadline);
        printf("%ld\n", free_bytes > before ? at : -1);
        fflush(stdout);
    }
}

static void storm(long count, unsigned seed)
{
    enum { KEPT = 64 };
    CUdeviceptr kept[KEPT] = {0};
    long granted = 0, denied = 0;
    use_gpu(0);
    for (long i = 0; i < count; i++) {
        CUdeviceptr *place = &kept[(unsigned)rand_r(&seed) % KEPT];
        if (*place) {
            CHECK(cuMemFree_v2(*place));
            *place = 0;
            continue;
        }
        CUresult result = cuMemAlloc_v2(place, 1 + (size_t)rand_r(&seed) % (1 << 20));
        if (result == CUDA_SUCCESS) {
            granted++;
        } else {
            if (result != CUDA_ERROR_OUT_OF_MEMORY)
                check(result, "cuMemAlloc_v2");
            *place = 0;
            denied++;
        }
    }
    printf("%ld %ld\n", granted, denied);
}

static void *rest(void *unused)
{
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

static void start_a_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, rest, NULL) != 0)
        exit(1);
}

int main(int count, char **arguments)
{
    const char *mode = count > 1 ? arguments[1] : "";
    long number = count > 2 ? atol(arguments[2]) : 0;
    CHECK(cuInit(0));
    if (strcmp(mode, "alloc") == 0) {
        start_a_thread();
        use_gpu(0);
        time_batches(number, alloc_and_free, NULL);
    } else if (strcmp(mode, "alloc1") == 0) {
        use_gpu(0);
        time_batches(number, alloc_and_free, NULL);
    } else if (strcmp(mode, "launch") == 0) {
        use_gpu(0);
        time_batches(number, launch, find_kernel(load_module(PTX(PTX_NOTHING)), "nothing"));
    } else if (strcmp(mode, "launch2") == 0) {
        use_gpu(0);
        CHECK(cuStreamCreate(&other_stream, CU_STREAM_NON_BLOCKING));
        time_batches(number, launch_on_next, find_kernel(load_module(PTX(PTX_NOTHING)), "nothing"));
    } else if (strcmp(mode, "attach") == 0) {
        for (; number > 0; number--)
            start_a_thread();
        long start = now_ns();
        use_gpu(0);
        printf("%ld\n", now_ns() - start);
    } else if (strcmp(mode, "hold") == 0) {
        hold((size_t)number);
    } else if (strcmp(mode, "watch") == 0) {
        watch();
    } else if (strcmp(mode, "storm") == 0) {
        storm(number, count > 3 ? (unsigned)atol(arguments[3]) : 1);
    } else {
        fprintf(stderr,
                "usage: driver_calls alloc|alloc1|launch|launch2|attach|hold|watch|storm [N] [SEED]\n");
        return 2;
    }
    return 0;
}
