/* managed_work.h - what tests of managed memory share: a GPU whose link has 1 GB/s, and how long it takes for what is
 * submitted while the stream is still busy. Times are the simulated ones. */
#pragma once

#include "simulated.h"

#define LINK_MS(bytes) ((double)(bytes) / 1e6)
/* Longer than it takes to submit what is timed, also where memory is set by instrumented code. */
#ifdef __SANITIZE_THREAD__
#define BUSY_US 1000000
#else
#define BUSY_US 250000
#endif

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

static void work_begins(void)
{
    uint64_t busy_us = BUSY_US;
    launch("gs_spin_us", (void *[]){&busy_us});
    assert_cuda(cuEventRecord(work_begin, stream));
}

/* How long the stream is kept by what was submitted since. */
static double work_ms(void)
{
    float ms;
    assert_cuda(cuEventRecord(work_end, stream));
    assert_cuda(cuEventSynchronize(work_end));
    assert_cuda(cuEventElapsedTime_v2(&ms, work_begin, work_end));
    return (double)ms;
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
