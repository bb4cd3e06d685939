/* exits - submits work and returns from main while it is in flight.
 *
 *   exits KERNEL_US COUNT [THREADS]    COUNT kernels of the default stream; THREADS more that do nothing */
#include <pthread.h>
#include <unistd.h>

#include "driver_program.h"

static void *rest(void *unused)
{
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

int main(int count, char **words)
{
    if (count < 3)
        return 2;
    unsigned long long us = strtoull(words[1], NULL, 10);
    for (int i = count > 3 ? atoi(words[3]) : 0; i > 0; i--) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, rest, NULL) != 0)
            return 1;
    }
    CHECK(cuInit(0));
    use_gpu(0);
    CUfunction spin = find_kernel(load_module(PTX(PTX_SPIN)), "gs_spin_us");
    for (int i = atoi(words[2]); i > 0; i--)
        CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&us}, NULL));
    return 0;
}
