/* driver_program.h - what small programs on the driver API share, those of tests and of the bench. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cuda/prototypes.h"

/* The text of a module with these entries; the simulated GPU has kernels of these names built in. */
#define PTX(entries) ".version 7.0\n.target sm_70\n.address_size 64\n" entries
/* Needs the GPU's time, where a kernel that watches a clock is over though another process had the GPU meanwhile. */
#define PTX_STEPS ".visible .entry gs_steps_u32(.param .u64 steps, .param .u64 out)\n{\n ret;\n}\n"
#define STEPS_KERNEL "gs_steps_u32"
/* For so many microseconds of the simulated GPU, on which a step is 20 ns. */
#define STEPS_FOR_US(us)                                                                                     \
    ((void *[]){&(unsigned long long){50ULL * (unsigned long long)(us)}, &(unsigned long long){0}})
#define PTX_NOTHING ".visible .entry nothing()\n{\n ret;\n}\n"

/* Say which call failed, and end. */
static inline void check(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s: %s answered %d\n", program_invocation_short_name, call, (int)result);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

static inline long now_ns(void)
{
    return (long)monotonic_ns();
}

/* After cuInit(): the GPU's primary context, which is the thread's now. */
static inline CUcontext use_gpu(int gpu)
{
    CUdevice device;
    CUcontext context;
    CHECK(cuDeviceGet(&device, gpu));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    return context;
}

static inline CUmodule load_module(const char *ptx)
{
    CUmodule module;
    CHECK(cuModuleLoadData(&module, ptx));
    return module;
}

static inline CUfunction find_kernel(CUmodule module, const char *name)
{
    CUfunction function;
    CHECK(cuModuleGetFunction(&function, module, name));
    return function;
}

/* A kernel of one thread behind another node, or NULL, of a graph. */
static inline CUgraphNode add_kernel(CUgraph graph, CUgraphNode after, CUfunction function, void **arguments)
{
    CUgraphNode node;
    const CUDA_KERNEL_NODE_PARAMS params = {.func = function,
                                            .gridDimX = 1,
                                            .gridDimY = 1,
                                            .gridDimZ = 1,
                                            .blockDimX = 1,
                                            .blockDimY = 1,
                                            .blockDimZ = 1,
                                            .kernelParams = arguments};
    CHECK(cuGraphAddKernelNode_v2(&node, graph, &after, after ? 1 : 0, &params));
    return node;
}
