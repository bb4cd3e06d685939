/* engine.h - how a session's device memory is backed.
 *
 * plain   the driver's own calls (plain.c)
 *
 * The road (road.h) charges and records; the engine has the memory made and taken back, and answers what the
 * program asks about addresses. An engine is fixed when the process attaches. One that puts memory at addresses of its
 * own makes what alloc.def says MOVES, and passes everything else on to plain. */
#pragma once

#include <stddef.h>

#include "intercept/memory/allocation.h"
#include "intercept/resolve/real.h"

struct engine {
    /* Pointers are entered in the range map: the engine answers by it. */
    bool uses_ranges;

    /* What the driver would do and answer. */
    CUresult (*allocate)(const struct allocation *wanted);
    CUresult (*release)(enum release_way way, uint64_t key, CUstream stream);
    CUresult (*address_range)(CUdeviceptr *base, size_t *bytes, CUdeviceptr address);
    CUresult (*pointer_attribute)(void *value, CUpointer_attribute which, CUdeviceptr address);
    CUresult (*pointer_attributes)(unsigned count, CUpointer_attribute *which, void **values,
                                   CUdeviceptr address);
};

extern const struct engine engine_plain;

/* This process's. Set before its first allocation and never changed. */
extern const struct engine *engine_in_use;

/* What plain does, for engines that pass on what they do not do themselves (plain.c). */
CUresult plain_allocate(const struct allocation *wanted);
CUresult plain_release(enum release_way way, uint64_t key, CUstream stream);

/* Most processes are plain, and programs call two ways in their loops: these go to the driver from here, as each call
 * by a pointer, and each from file to file, costs nanoseconds. */
static inline CUresult engine_allocate(const struct allocation *wanted)
{
    if (__builtin_expect(engine_in_use != &engine_plain, false))
        return engine_in_use->allocate(wanted);
    return wanted->way == WAY_cuMemAlloc_v2 ? real(cuMemAlloc_v2)(wanted->got, wanted->bytes)
                                            : plain_allocate(wanted);
}

static inline CUresult engine_release(enum release_way way, uint64_t key, CUstream stream)
{
    if (__builtin_expect(engine_in_use != &engine_plain, false))
        return engine_in_use->release(way, key, stream);
    return way == RELEASE_cuMemFree_v2 ? real(cuMemFree_v2)(key) : plain_release(way, key, stream);
}
