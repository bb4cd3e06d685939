/* engine.h - how a session's device memory is backed.
 *
 * plain   the driver's own calls (plain.c)
 * swap    physical memory of ours behind addresses that stay, so that it can leave the card and come back (swap.h)
 * managed managed memory, which the driver pages (managed.h)
 *
 * The road (road.h) charges and records. The engine makes and takes back what is charged by a size that the program
 * names, and answers what the program asks about addresses. Everything else is the driver's. A process's engine is
 * fixed before its first allocation. An engine that puts memory at addresses of its own makes what alloc.def marks
 * MOVES, and passes the rest on to plain. */
#pragma once

#include <stddef.h>

#include "intercept/memory/allocation.h"
#include "intercept/resolve/real.h"
#include "wire/wire.h"

/* Calls about the program's own physical memory and addresses. */
struct engine_vmm {
    /* As the driver would do and answer. */
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
    /* Whether the engine can take this memory off the card. */
    bool (*moves)(CUmemGenericAllocationHandle handle);
    /* The same. What was exported stays where it is from now on. May wait at the gate. */
    CUresult (*export)(void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                       unsigned long long flags);
    /* Another process or device gets access to the memory, so it stays where it is from now on. Replaces the
     * program's handle by the driver's. Both functions may wait at the gate. */
    CUresult (*pin)(CUmemGenericAllocationHandle *handle, enum wire_stays why);
    void (*pin_range)(CUdeviceptr address, size_t bytes,
                      enum wire_stays why); /* all allocations that lie there */
    /* Nobody got access after all, since the driver refused. `handle` is the program's. */
    void (*unpin)(CUmemGenericAllocationHandle handle, enum wire_stays why);
    void (*unpin_range)(CUdeviceptr address, size_t bytes, enum wire_stays why);
    /* cuPointerSetAttribute, for the whole allocation. */
    CUresult (*set_attribute)(const void *value, CUpointer_attribute which, CUdeviceptr address);
};

/* Calls about memory pools. What is not here, such as handles, is the driver's. */
struct engine_pools {
    /* As the driver would do and answer. */
    CUresult (*get_attribute)(CUmemoryPool pool, CUmemPool_attribute which, void *value);
    CUresult (*set_attribute)(CUmemoryPool pool, CUmemPool_attribute which, void *value);
    CUresult (*set_access)(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count);
    CUresult (*trim)(CUmemoryPool pool, size_t keep_bytes);
    CUresult (*destroy)(CUmemoryPool pool);
    CUresult (*export)(void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type,
                       unsigned long long flags);
    /* May wait at the gate. */
    CUresult (*export_pointer)(CUmemPoolPtrExportData *data, CUdeviceptr address);
    /* How much of what the pool is charged for is the engine's, so that it can leave the card: UINT64_MAX if all is, also
     * what the pool kept for later and has no memory for any more. */
    uint64_t (*engines_bytes)(CUmemoryPool pool);
    /* Whether the program or its work may still use memory that the engine gave out of the pool. Then the pool must not
     * be destroyed. */
    bool (*is_in_use)(CUmemoryPool pool);
    /* The program has made a pool. */
    void (*made)(CUmemoryPool pool, const CUmemPoolProps *properties);
    /* The program has waited for its own work, so pools give back what they may. */
    void (*waited)(void);
};

struct engine {
    /* Pointers are entered in the range map, by which the engine answers. */
    bool uses_ranges;
    /* NVML shows nothing of the pointers that the engine makes for rows that MOVE. */
    bool is_hidden;
    /* The engine has no pools: an allocation in a stream's order that names no pool is made as linear memory. */
    bool has_no_pools;

    /* As the driver would do and answer. `context` is the context that the memory goes with. */
    CUresult (*allocate)(const struct allocation *wanted, CUcontext context);
    CUresult (*release)(enum release_way way, uint64_t key, CUstream stream);
    /* There is a new context, in which the program has made nothing yet. NULL: nothing needs to be done. */
    void (*meet_context)(CUcontext context);
    /* The context is gone, and so are the records of all that belonged to it. NULL: nothing needs to be done. */
    void (*forget_context)(CUcontext context);
    /* Contexts may have gone, and the locks that keep contexts alive are free again. NULL: nothing needs to be done. */
    void (*contexts_ended)(void);
    /* Whether the engine put physical memory there that the program does not know of. NULL: it never does. */
    bool (*has_physical_memory)(CUdeviceptr address);
    CUresult (*address_range)(CUdeviceptr *base, size_t *bytes, CUdeviceptr address);
    CUresult (*pointer_attribute)(void *value, CUpointer_attribute which, CUdeviceptr address);
    CUresult (*pointer_attributes)(unsigned count, CUpointer_attribute *which, void **values,
                                   CUdeviceptr address);
    const struct engine_vmm *vmm;
    const struct engine_pools *pools; /* NULL: the driver's */
    /* From now on the device `peer` may reach all of the process's memory on `device`. NULL: the driver takes care of
     * that. */
    void (*open_to_peer)(CUdevice device, CUdevice peer);
    /* cuIpcGetMemHandle. NULL: the driver's. */
    CUresult (*ipc_handle)(CUipcMemHandle *handle, CUdeviceptr address);
};

extern const struct engine engine_plain;
extern const struct engine_vmm plain_vmm;
extern const struct engine_pools plain_pools;

/* This process's engine: plain, unless another one was chosen with the first context. */
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

/* Have the driver do it, by any way. Returns what the driver answers. */
CUresult plain_allocate_by_row(const struct allocation *wanted);
CUresult plain_release_by_row(enum release_way way, uint64_t key, CUstream stream);

/* Programs call two of the ways in their loops. Those go to the driver directly from here, since a call through a
 * pointer, or into another file, costs nanoseconds. */
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
