/* launches - launches kernels, and marks where in its system calls it does.
 *
 *   launches ROUNDS COUNT KERNEL_US [own | beside]
 *
 * On the legacy stream; `own`: on the thread's own default stream; `beside`: on a stream beside a capture that is open.
 * After COUNT launches to begin with: ROUNDS times COUNT launches of KERNEL_US each between two calls of
 * getppid(), which nothing else here makes. Then it waits for all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver_program.h"

static CUfunction work;
static CUstream stream;

static void launch(long count, unsigned long long kernel_us)
{
    for (long i = 0; i < count; i++)
        CHECK(cuLaunchKernel(work, 1, 1, 1, 1, 1, 1, 0, stream, STEPS_FOR_US(kernel_us), NULL));
}

static CUstream make_stream(void)
{
    CUstream made;
    CHECK(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
}

static void choose_stream(const char *where)
{
    if (strcmp(where, "own") == 0) {
        stream = CU_STREAM_PER_THREAD;
    } else if (strcmp(where, "beside") == 0) {
        stream = make_stream();
        CHECK(cuStreamBeginCapture_v2(make_stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
    }
}

int main(int count, char **words)
{
    if (count < 4)
        return 2;
    long rounds = strtol(words[1], NULL, 10), launches = strtol(words[2], NULL, 10);
    unsigned long long kernel_us = strtoull(words[3], NULL, 10);
    CHECK(cuInit(0));
    use_gpu(0);
    work = find_kernel(load_module(PTX(PTX_STEPS)), STEPS_KERNEL);
    choose_stream(count > 4 ? words[4] : "");
    launch(launches, kernel_us);
    for (long round = 0; round < rounds; round++) {
        getppid();
        launch(launches, kernel_us);
        getppid();
    }
    CHECK(cuStreamSynchronize(stream)); /* a context cannot be waited for beside a capture */
    return 0;
}
