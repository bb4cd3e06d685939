/* peer_world.h - swap_world.h with two cards that cannot reach each other. The simulated driver refuses what one card would do with
 * mapped memory of the other, as no driver promises it (FAKECUDA_UNKIND). */
#pragma once

#include "memory/engine/swap/swap_world.h"

#include <dlfcn.h>

#include "cuda/driver_more.h"

/* A function of the driver that nobody here hooks or calls. */
#define DRIVERS(symbol) ((__typeof__(&symbol))dlsym(dlopen("libcuda.so.1", RTLD_LAZY), #symbol))

enum { BYTES = 2 << 20 };

static CUcontext other;
static CUdeviceptr here, there, beside; /* `beside` is on the card of `here` */
static CUstream stream;

static inline int make_two(void **state)
{
    if (make_context(state) != 0 || !(here = take(BYTES)) || !(beside = take(BYTES)) ||
        real(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        cuCtxCreate_v2(&other, 0, 1) != CUDA_SUCCESS || !(there = take(BYTES)))
        return -1;
    return cuCtxSetCurrent(context) == CUDA_SUCCESS ? 0 : -1;
}

static inline int end_two(void **state)
{
    CUresult result = cuMemFree_v2(there);
    if (result == CUDA_SUCCESS)
        result = cuCtxDestroy_v2(other);
    if (result == CUDA_SUCCESS)
        result = cuCtxSetCurrent(context);
    return result == CUDA_SUCCESS ? destroy_context(state) : -1;
}

/* By the context that the memory goes with, or could. */
static inline void read_from(void *to, CUdeviceptr from, size_t bytes)
{
    bool is_there = from - there < BYTES;
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(is_there ? other : context), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH_v2(to, from, bytes), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

#define PEERS(name) cmocka_unit_test_setup_teardown(name, make_two, end_two)

/* The simulated machine is the test's alone. False: there is no simulated driver. */
static inline bool start_peers(void)
{
    setenv("FAKECUDA_UNKIND", "1", 1);
    return start_world();
}
