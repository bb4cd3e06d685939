/* driver_calls - times driver calls from inside one process, for bench/run.
 *
 *   driver_calls alloc N    median and p99 ns of cuMemAlloc + cuMemFree of 4 KiB, over N pairs, in a program
 *                           of several threads, as one with NVIDIA's driver always is
 *   driver_calls alloc1 N   the same in a program of one thread, for which the C library's mutexes take no
 *                           locked instructions: the first thread more, ours too, ends that
 *   driver_calls launch N   of cuLaunchKernel of an empty grid's worth of work, over N launches; here and in what follows, too, in a
 *                           program of several threads
 *   driver_calls launch2 N  the same on the default stream and another in turn
 *   driver_calls own N      the same on the thread's own default stream
 *   driver_calls ex N, copy N, set N, graph N
 *                           of cuLaunchKernelEx, and of a copy, a memset and a graph of one kernel on the default stream
 *   driver_calls threads N  of cuLaunchKernel by two threads at once, on a stream each
 *   driver_calls shared N   the same on one stream
 *   driver_calls attach N   ns of the first context's creation (in a session that is where the process attaches),
 *                           beside N threads that rest
 *   driver_calls hold B     allocate B bytes, print "holding", and wait for standard input to end
 *   driver_calls watch      answer each byte on standard input with the ns (CLOCK_MONOTONIC) at which
 *                           cuMemGetInfo first shows more free memory than when the byte came
 *   driver_calls storm N S  N random allocations and frees with seed S; prints how many were granted and denied
 *
 * Calls are timed in batches, so that reading the clock does not count. */
#include <pthread.h>
#include <stdbool.h>
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

struct times {
    double median, p99;
};

/* Of `step`, per call, over `count` calls in batches. */
static struct times time_batches(long count, void (*step)(void *), void *argument)
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
    struct times of_one = {(double)times[batches / 2] / BATCH, (double)times[batches * 99 / 100] / BATCH};
    free(times);
    return of_one;
}

static void print_times(struct times times)
{
    printf("%.2f %.2f\n", times.median, times.p99);
}

static void alloc_and_free(void *unused)
{
    (void)unused;
    CUdeviceptr address;
    CHECK(cuMemAlloc_v2(&address, 4096));
    CHECK(cuMemFree_v2(address));
}

static CUfunction nothing;
static CUstream other_stream;

static void launch(void *stream)
{
    CHECK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

static void launch_on_next(void *unused)
{
    static CUstream stream;
    (void)unused;
    launch(stream);
    stream = stream ? NULL : other_stream;
}

static void launch_by_configuration(void *stream)
{
    const CUlaunchConfig one = {.gridDimX = 1,
                                .gridDimY = 1,
                                .gridDimZ = 1,
                                .blockDimX = 1,
                                .blockDimY = 1,
                                .blockDimZ = 1,
                                .hStream = stream};
    CHECK(cuLaunchKernelEx(&one, nothing, NULL, NULL));
}

static void copy(void *buffer)
{
    CUdeviceptr there = (CUdeviceptr)(uintptr_t)buffer;
    CHECK(cuMemcpyDtoDAsync_v2(there, there + 64, 64, NULL));
}

static void set(void *buffer)
{
    CHECK(cuMemsetD8Async((CUdeviceptr)(uintptr_t)buffer, 0, 64, NULL));
}

static void launch_graph(void *graph)
{
    CHECK(cuGraphLaunch(graph, NULL));
}

static void *make_buffer(void)
{
    CUdeviceptr address;
    CHECK(cuMemAlloc_v2(&address, 4096));
    return (void *)(uintptr_t)address;
}

static CUstream make_stream(void)
{
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUgraphExec make_graph(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuGraphCreate(&graph, 0));
    add_kernel(graph, NULL, nothing, NULL);
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

/* A thread that launches beside others. */
struct launcher {
    pthread_t thread;
    CUcontext context;
    CUstream stream;
    long count;
    pthread_barrier_t *begin;
    struct times times;
};

static void *launch_beside(void *argument)
{
    struct launcher *launcher = argument;
    CHECK(cuCtxSetCurrent(launcher->context));
    pthread_barrier_wait(launcher->begin);
    launcher->times = time_batches(launcher->count, launch, launcher->stream);
    return NULL;
}

static struct times launch_by_two(CUcontext context, long count, CUstream first, CUstream second)
{
    pthread_barrier_t begin;
    struct launcher launchers[2] = {{.stream = first}, {.stream = second}};
    pthread_barrier_init(&begin, NULL, 2);
    for (int i = 0; i < 2; i++) {
        launchers[i].context = context;
        launchers[i].count = count;
        launchers[i].begin = &begin;
        if (pthread_create(&launchers[i].thread, NULL, launch_beside, &launchers[i]) != 0)
            exit(1);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(launchers[i].thread, NULL);
    return (struct times){(launchers[0].times.median + launchers[1].times.median) / 2,
                          (launchers[0].times.p99 + launchers[1].times.p99) / 2};
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

/* How long calls that give the GPU work take; false: no such mode. */
static bool time_work(const char *mode, long count, struct times *times)
{
    start_a_thread();
    CUcontext context = use_gpu(0);
    nothing = find_kernel(load_module(PTX(PTX_NOTHING)), "nothing");
    other_stream = make_stream();
    if (strcmp(mode, "launch") == 0)
        *times = time_batches(count, launch, NULL);
    else if (strcmp(mode, "launch2") == 0)
        *times = time_batches(count, launch_on_next, NULL);
    else if (strcmp(mode, "own") == 0)
        *times = time_batches(count, launch, CU_STREAM_PER_THREAD);
    else if (strcmp(mode, "ex") == 0)
        *times = time_batches(count, launch_by_configuration, NULL);
    else if (strcmp(mode, "copy") == 0)
        *times = time_batches(count, copy, make_buffer());
    else if (strcmp(mode, "set") == 0)
        *times = time_batches(count, set, make_buffer());
    else if (strcmp(mode, "graph") == 0)
        *times = time_batches(count, launch_graph, make_graph());
    else if (strcmp(mode, "threads") == 0)
        *times = launch_by_two(context, count, other_stream, make_stream());
    else if (strcmp(mode, "shared") == 0)
        *times = launch_by_two(context, count, other_stream, other_stream);
    else
        return false;
    return true;
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

int main(int count, char **arguments)
{
    const char *mode = count > 1 ? arguments[1] : "";
    long number = count > 2 ? atol(arguments[2]) : 0;
    struct times times;
    CHECK(cuInit(0));
    if (strcmp(mode, "alloc") == 0) {
        start_a_thread();
        use_gpu(0);
        print_times(time_batches(number, alloc_and_free, NULL));
    } else if (strcmp(mode, "alloc1") == 0) {
        use_gpu(0);
        print_times(time_batches(number, alloc_and_free, NULL));
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
    } else if (time_work(mode, number, &times)) {
        print_times(times);
    } else {
        fprintf(stderr, "usage: driver_calls "
                        "alloc|alloc1|launch|launch2|own|ex|copy|set|graph|threads|shared|attach|hold|"
                        "watch|storm [N] [SEED]\n");
        return 2;
    }
    return 0;
}
