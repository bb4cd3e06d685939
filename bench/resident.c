/* resident - a job that needs all of its memory on the GPU.
 *
 *   resident BYTES BUFFERS KERNELS CPU_US [clean]
 *
 * Allocates BYTES in BUFFERS parts, fills them, and prints "ready". For each line on standard input that is a number, does so
 * many cycles and prints when they began and ended (CLOCK_MONOTONIC, ns):
 *
 *   BEGAN_NS ENDED_NS
 *
 * A cycle is KERNELS kernels, each on one buffer after the other, for a few of which it waits at a time; and then CPU_US
 * without the GPU. Each cycle changes every buffer; with `clean` none. How long a kernel takes is FAKECUDA_KERNEL_NS. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver_program.h"

#define BUFFERS_MOST 4096
#define AHEAD 4
#define PTX_WORK ".visible .entry work_on(.param .u64 buffer)\n{\n ret;\n}\n"

static CUdeviceptr buffers[BUFFERS_MOST];
static CUfunction work_on;
static long count, kernels, cpu_us, number;
static int changes = 1;

static void do_cycle(void)
{
    number++;
    for (long i = 0; i < count && changes; i++)
        CHECK(cuMemsetD32Async(buffers[i], (unsigned)number, 1, NULL));
    for (long i = 0; i < kernels; i++) {
        CHECK(cuLaunchKernel(work_on, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&buffers[i % count]}, NULL));
        if (i % AHEAD == AHEAD - 1)
            CHECK(cuCtxSynchronize());
    }
    CHECK(cuCtxSynchronize());
    struct timespec pause = {cpu_us / 1000000, cpu_us % 1000000 * 1000};
    nanosleep(&pause, NULL);
}

int main(int words, char **word)
{
    char line[32];
    if (words < 5)
        return 2;
    size_t bytes = strtoull(word[1], NULL, 10);
    count = strtol(word[2], NULL, 10);
    kernels = strtol(word[3], NULL, 10);
    cpu_us = strtol(word[4], NULL, 10);
    changes = words < 6 || strcmp(word[5], "clean") != 0;
    if (count < 1 || count > BUFFERS_MOST)
        return 2;
    CHECK(cuInit(0));
    use_gpu(0);
    work_on = find_kernel(load_module(PTX(PTX_WORK)), "work_on");
    for (long i = 0; i < count; i++) {
        CHECK(cuMemAlloc_v2(&buffers[i], bytes / (size_t)count));
        CHECK(cuMemsetD8_v2(buffers[i], (unsigned char)i, bytes / (size_t)count));
    }
    CHECK(cuCtxSynchronize());
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        long began_ns = now_ns();
        for (long left = strtol(line, NULL, 10); left > 0; left--)
            do_cycle();
        printf("%ld %ld\n", began_ns, now_ns());
        fflush(stdout);
    }
    return 0;
}
