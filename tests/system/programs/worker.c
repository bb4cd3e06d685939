/* worker - keeps a GPU busy with kernels of a known length, and says how much of its time it got.
 *
 *   worker KERNEL_US [streams=N] [graph=N] [busy=MS] [idle=MS]
 *
 *   streams  that kernels are put on in turn (1: the default stream)
 *   graph    kernels in one launch of a graph
 *   busy     after so many ms of kernel time it waits for them and rests for `idle` ms
 *
 * Prints "ready"; for each line on standard input that is a number of ms, works for that long and prints how
 * many ns of kernels ended meanwhile, and how many ns that was. Ends at the end of input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/driver_more.h"
#include "driver_program.h"

#define STREAMS_MOST 16
#define AHEAD_NS 40000000L /* how much work is put before the GPU */
#define BATCHES 4

static CUfunction kernel;
static CUstream streams[STREAMS_MOST];
static CUgraphExec graph;
static long kernel_us, stream_count = 1, graph_kernels, busy_ms, idle_ms;

/* Batches of work; the oldest is waited for before another one. */
static struct {
    CUevent reached[STREAMS_MOST];
    long launches;
} batches[BATCHES];

static void rest(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void launch_kernel(CUstream stream)
{
    CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, STEPS_FOR_US(kernel_us), NULL));
}

static void prepare(void)
{
    CHECK(cuInit(0));
    use_gpu(0);
    kernel = find_kernel(load_module(PTX(PTX_STEPS)), STEPS_KERNEL);
    for (long i = 0; i < stream_count && stream_count > 1; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (unsigned b = 0; b < BATCHES; b++)
        for (long i = 0; i < stream_count; i++)
            CHECK(cuEventCreate(&batches[b].reached[i], CU_EVENT_DISABLE_TIMING));
    if (graph_kernels) {
        CUstream stream;
        CUgraph made;
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        for (long i = 0; i < graph_kernels; i++)
            launch_kernel(stream);
        CHECK(cuStreamEndCapture(stream, &made));
        CHECK(cuGraphInstantiateWithFlags(&graph, made, 0));
    }
}

static long launch_ns(void)
{
    return kernel_us * 1000 * (graph_kernels ? graph_kernels : 1);
}

static void put_batch(unsigned b, long launches)
{
    batches[b].launches = launches;
    for (long i = 0; i < launches; i++) {
        if (graph_kernels)
            CHECK(cuGraphLaunch(graph, streams[i % stream_count]));
        else
            launch_kernel(streams[i % stream_count]);
    }
    for (long i = 0; i < stream_count; i++)
        CHECK(cuEventRecord(batches[b].reached[i], streams[i]));
}

static int is_over(unsigned b)
{
    for (long i = 0; i < stream_count; i++)
        if (cuEventQuery(batches[b].reached[i]) != CUDA_SUCCESS)
            return 0;
    return 1;
}

static long wait_for(unsigned b)
{
    for (long i = 0; i < stream_count; i++)
        CHECK(cuEventSynchronize(batches[b].reached[i]));
    return batches[b].launches;
}

static void work(long ms)
{
    long begin = now_ns(), end = begin + ms * 1000000L, done = 0;
    long per_batch = AHEAD_NS / BATCHES / launch_ns();
    unsigned first = 0, count = 0;
    per_batch = per_batch < stream_count ? stream_count : per_batch;
    if (busy_ms)
        per_batch = busy_ms * 1000000L / launch_ns();
    while (now_ns() < end) {
        if (busy_ms) {
            put_batch(0, per_batch);
            done += wait_for(0);
            rest(idle_ms);
            continue;
        }
        if (count == BATCHES) {
            done += wait_for(first);
            first = (first + 1) % BATCHES;
            count--;
        }
        put_batch((first + count++) % BATCHES, per_batch);
    }
    long over = now_ns();
    for (; count && is_over(first); count--, first = (first + 1) % BATCHES)
        done += batches[first].launches;
    printf("%ld %ld\n", done * launch_ns(), over - begin);
    fflush(stdout);
    for (; count; count--, first = (first + 1) % BATCHES)
        wait_for(first);
}

static long option(int count, char **words, const char *name, long otherwise)
{
    size_t length = strlen(name);
    for (int i = 2; i < count; i++)
        if (strncmp(words[i], name, length) == 0 && words[i][length] == '=')
            return strtol(words[i] + length + 1, NULL, 10);
    return otherwise;
}

int main(int count, char **words)
{
    char line[64];
    if (count < 2 || (kernel_us = strtol(words[1], NULL, 10)) <= 0)
        return 2;
    stream_count = option(count, words, "streams", 1);
    graph_kernels = option(count, words, "graph", 0);
    busy_ms = option(count, words, "busy", 0);
    idle_ms = option(count, words, "idle", 0);
    if (stream_count < 1 || stream_count > STREAMS_MOST)
        return 2;
    prepare();
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin))
        work(strtol(line, NULL, 10));
    return 0;
}
