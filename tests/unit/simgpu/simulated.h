/* simulated.h - for tests that use the simulated driver as a program does: a GPU of one's own. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/prototypes.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

#define assert_cuda(call) assert_int_equal(call, CUDA_SUCCESS)

/* In a child process, which ends with 1 where it is not so. */
#define EXPECT(what)                                                                                         \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                                       \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

/* Kernels as PTX: what runs is known by name, so the bodies can be empty. */
#define SIMULATED_PTX                                                                                        \
    ".version 7.0\n.target sm_70\n.address_size 64\n"                                                        \
    ".visible .global .align 4 .u32 counter[4] = {1, 2, 3, 4};\n"                                            \
    ".visible .entry unknown(.param .u64 a){ret;}\n"                                                         \
    ".visible .entry gs_spin_us(.param .u64 us){ret;}\n"                                                     \
    ".visible .entry gs_fill_u32(.param .u64 p, .param .u32 v, .param .u64 n){ret;}\n"                       \
    ".visible .entry gs_saxpy_f32(.param .u64 n, .param .f32 a, .param .u64 x, .param .u64 y){ret;}\n"

static inline const char *simulated_path(void)
{
    static char path[128];
    snprintf(path, sizeof(path), "/dev/shm/fakecuda-%u-%s", (unsigned)geteuid(), getenv("FAKECUDA_NAME"));
    return path;
}

/* Before the first call: a GPU that no other test sees, with `settings` ("NAME=value", the last is NULL). */
static inline void simulated_choose(char *const settings[])
{
    static char name[64];
    snprintf(name, sizeof(name), "FAKECUDA_NAME=test-%d", (int)getpid());
    putenv(name);
    unsetenv("CUDA_VISIBLE_DEVICES");
    for (; *settings; settings++)
        putenv(*settings);
}

static inline void simulated_remove(void)
{
    char shares[160];
    snprintf(shares, sizeof(shares), "%s.shares", simulated_path());
    unlink(shares);
    unlink(simulated_path());
}

/* The end of a group of tests. */
static inline int simulated_unmake(void **state)
{
    (void)state;
    simulated_remove();
    return 0;
}

/* Of the current context's GPU. */
static inline uint64_t simulated_free_bytes(void)
{
    size_t bytes, total;
    assert_cuda(cuMemGetInfo_v2(&bytes, &total));
    return bytes;
}
