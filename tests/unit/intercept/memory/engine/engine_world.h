/* engine_world.h - a process on its own with one of the engines, on a simulated machine of two cards. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "intercept/memory/charge.h"

#define MIB (UINT64_C(1) << 20)
#define CARD (256 * MIB)

static CUcontext context;

static inline uint64_t used(void)
{
    return ledger_used(&session_slot()->ledger, 0);
}

static inline CUdeviceptr take(uint64_t bytes)
{
    CUdeviceptr address = 0;
    return cuMemAlloc_v2(&address, bytes) == CUDA_SUCCESS ? address : 0;
}

static inline void remove_machine(void)
{
    char path[96];
    snprintf(path, sizeof(path), "/dev/shm/fakecuda-%u-%s", (unsigned)geteuid(), getenv("FAKECUDA_NAME"));
    unlink(path);
}

/* `engine` as GPUSLICE_OVERSUBSCRIBE takes it. False: there is no simulated driver. */
static inline bool start_machine(const char *engine)
{
    char name[48];
    snprintf(name, sizeof(name), "%s%d", engine, (int)getpid());
    setenv("FAKECUDA_NAME", name, 1);
    atexit(remove_machine);
    setenv("FAKECUDA_TOTAL_MEM", "268435456", 1);
    setenv("FAKECUDA_CONTEXT_BYTES", "0", 1);
    setenv("FAKECUDA_GPUS", "2", 1);
    setenv("GPUSLICE_MEMORY_LIMIT", "1GiB", 1);
    setenv("GPUSLICE_OVERSUBSCRIBE", engine, 1);
    if (!real_find(true) || !real_driver_function(CUDA_ID_cuInit)) {
        fprintf(stderr, "there is no libcuda.so.1: LD_LIBRARY_PATH leads to the simulated one\n");
        return false;
    }
    return ((CUresult(*)(unsigned))real_driver_function(CUDA_ID_cuInit))(0) == CUDA_SUCCESS;
}
