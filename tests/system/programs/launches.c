/* launches - launches kernels, and marks where in its system calls it does.
 *
 *   launches ROUNDS COUNT KERNEL_US
 *
 * After COUNT launches to begin with: ROUNDS times COUNT launches of KERNEL_US each between two calls of
 * getppid(), which nothing else here makes. Then it waits for all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "driver_program.h"

static CUfunction spin;

static void launch(long count, unsigned long long kernel_us)
{
    for (long i = 0; i < count; i++)
        CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&kernel_us}, NULL));
}

int main(int count, char **words)
{
    if (count != 4)
        return 2;
    long rounds = strtol(words[1], NULL, 10), launches = strtol(words[2], NULL, 10);
    unsigned long long kernel_us = strtoull(words[3], NULL, 10);
    CHECK(cuInit(0));
    use_gpu(0);
    spin = find_kernel(load_module(PTX(PTX_SPIN)), "gs_spin_us");
    launch(launches, kernel_us);
    for (long round = 0; round < rounds; round++) {
        getppid();
        launch(launches, kernel_us);
        getppid();
    }
    CHECK(cuCtxSynchronize());
    return 0;
}
