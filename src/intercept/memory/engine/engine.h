/* engine.h - how a session's device memory is backed.
 *
 * plain   the driver's own calls (plain.c)
 * swap    physical memory of ours behind addresses that stay, so that it can leave the card and come back (swap.h)
 * managed managed memory, which the driver pages (managed.h)
 *
 * The road (road.h) charges and records. For what is charged by a size that the program names, the engine has the memory
 * made and taken back, and answers what the program asks about addresses. Everything else is the driver's. An engine is
 * fixed before the process's first allocation. One that puts memory at addresses of its own makes what alloc.def says
 * MOVES, and passes the rest on to plain. */
#pragma once

#include <stddef.h>

#include "intercept/memory/allocation.h"
#include "intercept/resolve/real.h"

/* The program's own physical memory and addresses. */
struct engine_vmm {
    /* What the driver would do and answer. */
    CUresult (*reserve)(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                        unsigned long long flags);
    CUresult (*free_addresses)(CUdeviceptr address, size_t bytes);
    CUresult (*map)(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags);
    CUresult (*unmap)(CUdeviceptr address, size_t bytes);
    CUresult (*set_access)(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count);
    CUresult (*get_access)(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address);
    CUresult (*retain)(CUmemGenericAllocationHandle *handle, void *address);
    CUresult (*properties)(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle);
    /* Somebody else gets hold of the memory, so it stays where it is from now on. In place of the program's handle, the
     * driver's. Both may wait at the gate. */
    CUresult (*pin)(CUmemGenericAllocationHandle *handle);
    void (*pin_range)(CUdeviceptr address, size_t bytes); /* of all allocations that lie there */
    /* cuPointerSetAttribute, of all of the allocation. */
    CUresult (*set_attribute)(const void *value, CUpointer_attribute which, CUdeviceptr address);
};

/* Memory pools. What is not said here is the driver's, as the handles are. */
struct engine_pools {
    /* What the driver would do and answer. */
    CUresult (*get_attribute)(CUmemoryPool pool, CUmemPool_attribute which, void *value);
    CUresult (*set_attribute)(CUmemoryPool pool, CUmemPool_attribute which, void *value);
    CUresult (*set_access)(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count);
    CUresult (*trim)(CUmemoryPool pool, size_t keep_bytes);
    CUresult (*destroy)(CUmemoryPool pool);
    /* Whether what is charged for it can leave the card. */
    bool (*moves)(CUmemoryPool pool);
    /* The program has made one. */
    void (*made)(CUmemoryPool pool, const CUmemPoolProps *properties);
    /* The program has waited for work of its own, and pools give back what they may. */
    void (*waited)(void);
};

struct engine {
    /* Pointers are entered in the range map: the engine answers by it. */
    bool uses_ranges;
    /* NVML shows nothing of the pointers that it makes for rows that MOVE. */
    bool is_hidden;
    /* It has no pools: what programs allocate in a stream's order, and from no pool that they name, is linear memory. */
    bool has_no_pools;

    /* What the driver would do and answer. `context`: that the memory goes with. */
    CUresult (*allocate)(const struct allocation *wanted, CUcontext context);
    CUresult (*release)(enum release_way way, uint64_t key, CUstream stream);
    /* There is a new context, and the program has nothing in it yet. NULL: nothing is to be done. */
    void (*meet_context)(CUcontext context);
    /* The context is gone, and the records of all that was its own with it. NULL: nothing is left to be done. */
    void (*forget_context)(CUcontext context);
    /* Whether it put physical memory of its own there, of which the program knows nothing. NULL: it has none. */
    bool (*has_physical_memory)(CUdeviceptr address);
    CUresult (*address_range)(CUdeviceptr *base, size_t *bytes, CUdeviceptr address);
    CUresult (*pointer_attribute)(void *value, CUpointer_attribute which, CUdeviceptr address);
    CUresult (*pointer_attributes)(unsigned count, CUpointer_attribute *which, void **values,
                                   CUdeviceptr address);
    const struct engine_vmm *vmm;
    const struct engine_pools *pools; /* NULL: the driver's */
    /* The device `peer` may reach all of the process's memory on `device` from now on. NULL: the driver sees to that. */
    void (*open_to_peer)(CUdevice device, CUdevice peer);
    /* cuIpcGetMemHandle. NULL: the driver's. */
    CUresult (*ipc_handle)(CUipcMemHandle *handle, CUdeviceptr address);
};

extern const struct engine engine_plain;
extern const struct engine_vmm plain_vmm;
extern const struct engine_pools plain_pools;

/* This process's: plain, unless another one was chosen with its first context. */
extern const struct engine *_Atomic engine_in_use;

static inline const struct engine *engine_of_process(void)
{
    return atomic_load_explicit(&engine_in_use, memory_order_relaxed);
}

static inline const struct engine_pools *engine_pools(void)
{
    const struct engine_pools *pools = engine_of_process()->pools;
    return pools ? pools : &plain_pools;
}

/* What the driver does and answers, by any way. */
CUresult plain_allocate_by_row(const struct allocation *wanted);
CUresult plain_release_by_row(enum release_way way, uint64_t key, CUstream stream);

/* Programs call two ways in their loops: these go to the driver from here, as each call by a pointer, and each from file
 * to file, costs nanoseconds. */
static inline CUresult plain_allocate(const struct allocation *wanted)
{
    return wanted->way == WAY_cuMemAlloc_v2 ? real(cuMemAlloc_v2)(wanted->got, wanted->bytes)
                                            : plain_allocate_by_row(wanted);
}

static inline CUresult plain_release(enum release_way way, uint64_t key, CUstream stream)
{
    return way == RELEASE_cuMemFree_v2 ? real(cuMemFree_v2)(key) : plain_release_by_row(way, key, stream);
}

/* Most processes are plain. */
static inline CUresult engine_allocate(const struct allocation *wanted, CUcontext owner)
{
    if (__builtin_expect(engine_of_process() != &engine_plain, false))
        return engine_of_process()->allocate(wanted, owner);
    return plain_allocate(wanted);
}

static inline CUresult engine_release(enum release_way way, uint64_t key, CUstream stream)
{
    if (__builtin_expect(engine_of_process() != &engine_plain, false))
        return engine_of_process()->release(way, key, stream);
    return plain_release(way, key, stream);
}
