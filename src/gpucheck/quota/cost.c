/* cost.c - what the driver takes for itself, and what our hooks add to the time of a call. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpucheck/checks.h"
#include "gpucheck/nvml.h"
#include "gpucheck/part.h"
#include "gpucheck/work.h"

/* 64 MiB of globals, and 16 KiB of local memory for each thread, addressed in a way that is known only at run time. */
static const char heavy_ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                ".visible .global .align 16 .b8 gc_globals[67108864];\n"
                                ".visible .entry gc_local(.param .u64 out, .param .u32 place)\n{\n"
                                ".local .align 16 .b8 stack[16384];\n"
                                ".reg .u64 %to, %at, %offset;\n.reg .u32 %place, %value;\n"
                                "ld.param.u64 %to, [out];\nld.param.u32 %place, [place];\n"
                                "cvta.to.global.u64 %to, %to;\n"
                                "mov.u64 %at, stack;\n"
                                "and.b32 %place, %place, 16380;\ncvt.u64.u32 %offset, %place;\n"
                                "add.u64 %at, %at, %offset;\n"
                                "mov.u32 %value, %tid.x;\n"
                                "st.local.u32 [%at], %value;\nld.local.u32 %value, [stack+64];\n"
                                "st.global.u32 [%to], %value;\nret;\n}\n";

/* Runs outside: measures what a context, a module and local memory cost on this card. */
void check_driver_costs(const struct check *check)
{
    CUmodule module;
    CUfunction function;
    CUdeviceptr out, globals;
    size_t globals_bytes;
    CUdevice device;
    CUcontext context;
    const char *reason = driver_open(DRIVER_BY_DLSYM);
    if (reason)
        fail_and_end("no driver: %s", reason);
    must(cuInit(0));
    /* Without a context NVML does not list the process, so the first figure is the device's. */
    uint64_t before = nvml_used_bytes(0), previous = before;
    must(cuDeviceGet(&device, 0));
    must(cuDevicePrimaryCtxRetain(&context, device));
    must(cuCtxSetCurrent(context));
    must(cuCtxSynchronize());
    uint64_t now = nvml_used_bytes(0);
    figure("context", (double)(int64_t)(now - previous), "bytes");
    if (now <= before)
        fail("a context takes no memory by NVML: %llu bytes before, %llu with it", (unsigned long long)before,
             (unsigned long long)now);
    must(cuMemAlloc_v2(&out, 4096));
    previous = nvml_used_bytes(0);
    figure("first_small_allocation", (double)(int64_t)(previous - now), "bytes");

    double start = now_s();
    must(cuModuleLoadData(&module, heavy_ptx));
    must(cuModuleGetGlobal_v2(&globals, &globals_bytes, module, "gc_globals"));
    figure("module_load", (now_s() - start) * 1e3, "ms");
    now = nvml_used_bytes(0);
    figure("module_with_64MiB_of_globals", (double)(int64_t)(now - previous), "bytes");
    if ((int64_t)(now - previous) < (int64_t)(64 * MIB))
        fail("a module with 64 MiB of globals takes %lld bytes by NVML", (long long)(now - previous));

    must(cuModuleGetFunction(&function, module, "gc_local"));
    uint32_t place = 64;
    void *parameters[] = {&out, &place};
    previous = now;
    must(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
    must(cuCtxSynchronize());
    figure("local_memory_16KiB_a_thread", (double)(int64_t)(nvml_used_bytes(0) - now), "bytes");
    must(cuModuleUnload(module));
    now = nvml_used_bytes(0);
    figure("left_after_unload", (double)(int64_t)(now - previous + 64 * MIB), "bytes");
}

/* --- Calls ----------------------------------------------------------------------------------------- */

#define BATCH_S 0.004

static void step_alloc(void)
{
    CUdeviceptr address;
    must(cuMemAlloc_v2(&address, 4096));
    must(cuMemFree_v2(address));
}

static void step_alloc_block(void)
{
    CUdeviceptr address;
    must(cuMemAlloc_v2(&address, 8 * MIB));
    must(cuMemFree_v2(address));
}

static void step_launch(void)
{
    work_launch_steps(0, NULL);
}

/* Limits on the added time, in microseconds and as a fraction of the call outside. They are far above what is
 * expected (0.2 and 0.01 us, docs/internals/budgets.md), so that a busy machine passes, and far below what a slow path
 * (a system call, a request to the daemon, a held lock) would add to every call. */
static const struct call {
    const char *name;
    void (*step)(void);
    double most_added_us, most_added_ratio;
} calls[] = {
    {"cost-alloc", step_alloc, 5, 0.1},
    {"cost-alloc-8MiB", step_alloc_block, 10, 0.1},
    {"cost-launch", step_launch, 2, 0.1},
};

static const struct call *find_call(const char *name)
{
    for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (strcmp(calls[i].name, name) == 0)
            return &calls[i];
    fail_and_end("there is no call '%s'", name);
}

/* cost CALL: for each line, one batch; answers microseconds for each call. */
void part_cost(const char *argument)
{
    const struct call *call = find_call(argument);
    open_context();
    for (unsigned i = 0; i < 100; i++)
        call->step();
    must(cuCtxSynchronize());
    /* Launches go into a queue of 1,024; when that is full, a launch waits for the card. */
    enum { MOST = 512 };
    double start = now_s();
    call->step();
    double count = BATCH_S / (now_s() - start);
    unsigned batch = count > MOST ? MOST : count < 8 ? 8 : (unsigned)count;
    must(cuCtxSynchronize());
    for (;;) {
        part_listen();
        start = now_s();
        for (unsigned i = 0; i < batch; i++)
            call->step();
        double end = now_s();
        must(cuCtxSynchronize());
        part_tell("%.9f", (end - start) / batch * 1e6);
    }
}

/* What a call costs more inside, in microseconds, compared by the fastest tenth of the rounds: other programs on
 * the machine can make calls slower, but never faster. */
static double added_us(struct part *outside, struct part *inside, double *outside_us)
{
    enum { ROUNDS = 41 };
    double plain[ROUNDS], sliced[ROUNDS], added[ROUNDS];
    for (unsigned i = 0; i < ROUNDS; i++) {
        part_say(outside, "batch");
        plain[i] = part_hear_number(outside);
        part_say(inside, "batch");
        sliced[i] = part_hear_number(inside);
        added[i] = sliced[i] - plain[i];
    }
    *outside_us = median(plain, ROUNDS);
    figure("outside", *outside_us, "us");
    figure("inside", median(sliced, ROUNDS), "us");
    figure("added", median(added, ROUNDS), "us");
    return quantile(sliced, ROUNDS, 0.1) - quantile(plain, ROUNDS, 0.1);
}

void check_cost(const struct check *check)
{
    enum { TRIES = 3 }; /* a slow path is slow each time, a busy machine is not */
    const struct call *call = find_call(check->name);
    struct part outside, inside;
    double outside_us, least_us = 0, most_us = 0;
    part_start(&outside, PART_OUTSIDE, "cost", check->name);
    part_start(&inside, PART_IN_SESSION, "cost", check->name);
    for (unsigned i = 0; i < TRIES && (!i || least_us > most_us); i++) {
        least_us = added_us(&outside, &inside, &outside_us);
        most_us = fmax(call->most_added_us, call->most_added_ratio * outside_us);
    }
    part_end(&outside);
    part_end(&inside);
    if (least_us > most_us)
        fail("a call costs %.2f us more inside a session (%.2f outside); at most %.2f are allowed", least_us,
             outside_us, most_us);
}
