/* managed_work.h - what tests of managed memory share: a GPU whose link has 1 GB/s, and how long it takes for what is
 * submitted while the stream is still busy. Times are the simulated ones. */
#pragma once

#include <stdbool.h>

#include "simulated.h"

#define LINK_MS(bytes) ((double)(bytes) / 1e6)
static CUcontext context;
static CUmodule module;
static CUstream stream;
static CUevent work_begin, work_end;

static CUdeviceptr managed(size_t bytes)
{
    CUdeviceptr made;
    assert_cuda(cuMemAllocManaged(&made, bytes, CU_MEM_ATTACH_GLOBAL));
    return made;
}

static void launch(const char *name, void **parameters)
{
    CUfunction function;
    assert_cuda(cuModuleGetFunction(&function, module, name));
    assert_cuda(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

/* How long the stream is busy with what comes first. Where that was too short the test is done anew, with twice as long. */
static uint64_t busy_us = 50000;
static bool is_late;

static void work_begins(void)
{
    launch("gs_spin_us", (void *[]){&busy_us});
    assert_cuda(cuEventRecord(work_begin, stream));
}

/* How long the stream is kept by what was submitted since. */
static double work_ms(void)
{
    float ms;
    assert_cuda(cuEventRecord(work_end, stream));
    is_late |= cuEventQuery(work_begin) != CUDA_ERROR_NOT_READY;
    assert_cuda(cuEventSynchronize(work_end));
    assert_cuda(cuEventElapsedTime_v2(&ms, work_begin, work_end));
    return (double)ms;
}

static void assert_work_ms(double least, double most)
{
    double ms = work_ms();
    if (!is_late && (ms < least || ms > most))
        fail_msg("%.3f ms, expected %.3f to %.3f", ms, least, most);
}

/* A test that leaves nothing behind, by its function as the first state. */
static void do_until_in_time(void **state)
{
    void (*test)(void **) = (void (*)(void **))(uintptr_t)*state;
    for (unsigned times = 0; times < 10; times++, busy_us *= 2) {
        is_late = false;
        test(NULL);
        if (!is_late)
            return;
    }
    fail_msg("never in time");
}

#define managed_unit_test(name)                                                                              \
    {                                                                                                        \
#name, do_until_in_time, NULL, NULL, (void *)(uintptr_t)(name)                                       \
    }

/* After simulated_choose(). */
static int managed_prepare(void)
{
    static const char ptx[] = SIMULATED_PTX
        ".visible .entry gs_checksum_u32(.param .u64 p, .param .u64 n, .param .u64 out){ret;}\n";
    assert_cuda(cuInit(0));
    assert_cuda(cuCtxCreate_v2(&context, 0, 0));
    assert_cuda(cuModuleLoadData(&module, ptx));
    assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuEventCreate(&work_begin, 0));
    assert_cuda(cuEventCreate(&work_end, 0));
    return 0;
}

static int managed_remove(void **state)
{
    (void)state;
    assert_cuda(cuCtxDestroy_v2(context));
    simulated_remove();
    return 0;
}
