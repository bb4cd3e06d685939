/* loading - a program most of whose time goes into loading code: one module after another, of whose kernel it launches a few.
 *
 * Prints "ready"; for each line on standard input that is a number of ms, does so for that long and prints how many modules
 * that were. Ends at the end of input. */
#include <stdio.h>

#include "driver_program.h"

#define KERNELS 3
#define KERNEL_US 200

static void load_and_launch(void)
{
    CUmodule module = load_module(PTX(PTX_STEPS));
    CUfunction work = find_kernel(module, STEPS_KERNEL);
    for (unsigned i = 0; i < KERNELS; i++)
        CHECK(cuLaunchKernel(work, 1, 1, 1, 1, 1, 1, 0, NULL, STEPS_FOR_US(KERNEL_US), NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
}

int main(void)
{
    long ms;
    CHECK(cuInit(0));
    use_gpu(0);
    setlinebuf(stdout);
    puts("ready");
    while (scanf("%ld", &ms) == 1) {
        unsigned modules = 0;
        for (long until_ns = now_ns() + ms * 1000000; now_ns() < until_ns; modules++)
            load_and_launch();
        printf("%u\n", modules);
    }
    return 0;
}
