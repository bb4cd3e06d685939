/* fixture.h - what tests of charging have in common: a context on the first GPU of the fake driver, and the bytes that
 * the ledger holds there. Each test gets a context of its own; whatever it did, all is given back with it. */
#pragma once

#include "fake_driver.h"
#include "intercept/memory/charge.h"
#include "intercept/resolve/real.h"

#define MIB (UINT64_C(1) << 20)
#define LIMIT (64 * MIB)

static CUcontext context;

static inline uint64_t used(void)
{
    static const uint8_t first[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    int gpu = session_gpu(first, 0);
    return gpu < 0 ? 0 : ledger_used(&session_slot()->ledger, (unsigned)gpu);
}

static inline int make_context(void **state)
{
    context = fake_context(0);
    return context ? 0 : -1;
}

static inline int destroy_context(void **state)
{
    if (cuCtxDestroy_v2(context) != CUDA_SUCCESS)
        return -1;
    return used() == 0 ? 0 : -1;
}

static inline CUdeviceptr linear(size_t bytes)
{
    CUdeviceptr address = 0;
    return cuMemAlloc_v2(&address, bytes) == CUDA_SUCCESS ? address : 0;
}
