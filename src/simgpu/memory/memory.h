/* memory.h - what a device address means in this process.
 *
 * Device addresses are host virtual addresses, so that built-in kernels compute real results on them; the
 * bytes of physical memory they take are the device's (device.h).
 *
 * allocation   one range of addresses that was allocated or mapped as one */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"

enum memory_kind {
    MEMORY_NONE,
    MEMORY_DEVICE,     /* cuMemAlloc, cuMemAllocPitch */
    MEMORY_MANAGED,    /* cuMemAllocManaged */
    MEMORY_POOL,       /* cuMemAllocAsync; flags: enum pool_place */
    MEMORY_MODULE,     /* a module's globals; flags: whether declared __managed__ */
    MEMORY_MAPPED,     /* cuMemMap of device memory */
    MEMORY_MULTICAST,  /* cuMemMap of a multicast object: only multimem instructions reach anything there */
    MEMORY_HOST,       /* cuMemHostAlloc, cuMemAllocHost; cuMemMap of host memory */
    MEMORY_REGISTERED, /* cuMemHostRegister */
    MEMORY_EXTERNAL,   /* a buffer of external memory; owner: its handle, or none */
    MEMORY_IPC,        /* another process's cuMemAlloc; owner: what ipc.c opened */
    MEMORY_ARRAY,      /* an array's; no pointer leads there */
    MEMORY_GRAPH,      /* an allocation of a graph, there while that one is launched or until it is freed */
};

/* What cuMemFree and a module's end give back. */
#define MEMORY_LINEAR_KINDS (1u << MEMORY_DEVICE | 1u << MEMORY_MANAGED | 1u << MEMORY_MODULE)

struct memory_allocation {
    uint64_t address;
    uint64_t bytes; /* as requested; 0: free */
    CUcontext context;
    enum memory_kind kind;
    unsigned gpu;
    unsigned flags;
    uint64_t reached_by;        /* MAPPED: a bit for each device that cuMemSetAccess gave access */
    uint64_t id;                /* never used twice in a process */
    struct device_share *share; /* when other processes can have it (device.h) */
    bool is_synchronous;        /* SYNC_MEMOPS was set for it */
    bool is_abandoned;          /* freed here, but another process goes on with it */
    void *owner;                /* the pool, or the handle that is mapped */
};

/* What `address` lies in; false if nothing is there. */
bool memory_find(uint64_t address, struct memory_allocation *allocation);

/* Whether a kernel may touch all of [address, address + bytes). */
bool memory_is_accessible(uint64_t address, uint64_t bytes);

/* The same, and by work of the device: memory that is mapped only where cuMemSetAccess named it, unless the constant REACH_ALL
 * says that all reach it. */
bool memory_is_reachable(CUdevice device, uint64_t address, uint64_t bytes);

/* Whether other devices may reach the memory where it is. */
bool memory_is_for_rdma(const struct memory_allocation *allocation);

/* Whether a synchronous copy or fill in the context, of what is at the address, returns when it is done: SYNC_MEMOPS is set for the
 * memory, or for the context. */
bool memory_is_synchronous(CUcontext context, uint64_t address);

/* Take `bytes` of the GPU's memory for a context, with an address. OUT_OF_MEMORY, or CUDA_SUCCESS with
 * `*address`. */
CUresult memory_take(CUcontext context, unsigned gpu, enum memory_kind kind, uint64_t bytes, unsigned flags,
                     uint64_t *address);
/* The same for bytes that are accounted for already (a pool's). */
CUresult memory_place(CUcontext context, unsigned gpu, enum memory_kind kind, uint64_t bytes, unsigned flags,
                      void *owner, uint64_t *address);

/* Give back what begins at `address`; false if nothing does, or not of a kind that memory_take() makes. Bytes
 * of kind MEMORY_POOL stay charged: they are their pool's. */
bool memory_give_back(uint64_t address, struct memory_allocation *allocation);

/* Give back everything that dies with a context. */
void memory_give_back_context(CUcontext context);

/* Let go of what pools have and do not use, as synchronising does (pool_memory.c). */
void pool_settle(unsigned gpu);
/* Free memory that cuMemAllocAsync gave (pool_memory.c). */
bool pool_free(uint64_t address);

/* When the process's last context of a GPU goes: pointers that were imported there (pool_share.c), and memory that graphs
 * allocated (graph_memory.c). The driver API reference says of neither what becomes of it. */
void pool_imports_drop(unsigned gpu);
void graph_memory_drop(unsigned gpu);
/* Free memory that a graph allocated; and whether it is there at present (graph_memory.c). */
bool graph_memory_free_at(uint64_t address);
bool graph_memory_is_accessible(const struct memory_allocation *allocation);

/* Unmap a buffer of external memory (external.c); close what was opened of another process's (ipc.c). */
void external_unmap(const struct memory_allocation *mapping);
void ipc_close(const struct memory_allocation *opened);

/* Ranges that are not of the heap: host memory and mappings (ranges.c). */
void ranges_add(const struct memory_allocation *allocation);
bool ranges_remove(uint64_t address, struct memory_allocation *allocation);
bool ranges_find(uint64_t address, struct memory_allocation *allocation);
/* Any one range of a context; false when there is none. */
bool ranges_find_context(CUcontext context, struct memory_allocation *allocation);
void ranges_set_access(uint64_t address, unsigned flags, uint64_t reached_by);
bool ranges_overlap(uint64_t address, uint64_t bytes);
