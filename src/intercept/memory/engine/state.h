/* state.h - what the swap engine remembers of this process. All of it is changed under its lock. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "intercept/memory/area.h"
#include "intercept/memory/engine/arena.h"
#include "intercept/memory/engine/clean.h"
#include "intercept/memory/engine/extents.h"
#include "intercept/memory/engine/pool_blocks.h"
#include "intercept/memory/engine/tools.h"

/* --- Mappings of the program's own (mappings.h) ---------------------------------------------------- */

#define ACCESS_MAX 33u /* GPUs, and the host, that a mapping is open to */

struct mapping {
    uint64_t address, bytes;
    uint32_t extent; /* index */
    uint32_t next,
        previous; /* index + 1 of those of the same extent; of an unused one: the next unused one */
    uint32_t access_count;
    CUmemAccessDesc access[ACCESS_MAX];
};

struct program {
    struct mapping *table; /* of MAPPINGS_MAX; pages that nobody touches cost nothing */
    uint32_t end, spare;   /* as in struct extents */
    uint32_t made_count;   /* handles */
    struct ranges by_address, reserved;
    struct ranges others; /* where it mapped what does not move: of the host, or imported */
};

/* --- Pools (swap_pool.h) --------------------------------------------------------------------------- */

#define SWAP_POOLS_MAX 1024u
#define SWAP_EVENTS 64u

struct swap_pool {
    CUmemoryPool handle; /* NULL: an unused place */
    bool is_drivers;     /* not served: nothing of the below holds */
    bool is_opportunistic,
        waits_for_others; /* CU_MEMPOOL_ATTR_REUSE_ALLOW_... OPPORTUNISTIC, INTERNAL_DEPENDENCIES */
    CUdevice device;
    uint64_t most_bytes; /* 0: as many as there are */
    uint64_t threshold_bytes, present_high_bytes, taken_high_bytes;
    struct pool_blocks blocks;
    uint8_t access[LEDGER_GPUS]; /* enum CUmemAccess_flags of each device, but its own */
};

/* An event for the next order in its context. */
struct swap_event {
    CUcontext context;
    CUevent event;
};

struct swap_pools {
    struct swap_pool *table; /* of SWAP_POOLS_MAX */
    uint32_t count;          /* places from here on were never used */
    uint32_t event_count;
    struct blocks blocks;
    uint64_t orders; /* numbers given */
    struct swap_event events[SWAP_EVENTS];
};

/* --- Legacy IPC (swap_ipc.h) ------------------------------------------------------------------------ */

/* Another process's memory that is open here. */
struct swap_import {
    uint32_t count; /* how often; 0: an unused place */
    int32_t pid;    /* of the handle, as the two below */
    uint64_t secret, number;
    CUcontext context;
    CUdevice device;
    CUdeviceptr address; /* of the extent, or all pieces of it */
    uint64_t mapped_bytes, piece_bytes;
    uint64_t base, bytes; /* of the allocation in it */
};

struct swap_imports {
    struct swap_import *table; /* of IMPORTS_MAX */
    uint32_t end;              /* places from here on were never used */
};

/* --- The whole ------------------------------------------------------------------------------------- */

struct swap {
    pthread_mutex_t lock;
    struct extents extents;
    /* Where a small allocation had room last; NULL, or unused by now. */
    struct extent *had_room;
    /* Shared extents in which nothing is allocated. */
    uint32_t empty_count;
    struct arena arena;
    struct program program;
    struct swap_pools pools;
    struct swap_imports imports;
    enum clean_mode clean_mode; /* of the process */
    struct swap_tools *tools;   /* of SWAP_CONTEXTS_MAX; NULL: no context was met yet */
    /* Of each device, by ordinal: a bit for each that may reach its extents (cuCtxEnablePeerAccess). */
    uint64_t open_to[LEDGER_GPUS];
    /* How large pieces are on each device, by ordinal; 0: not known yet. */
    uint64_t piece_bytes[LEDGER_GPUS];
    /* Whether extents on each device are made for RDMA, by ordinal. */
    enum extents_for_rdma { RDMA_UNKNOWN, RDMA_CAPABLE, RDMA_INCAPABLE } for_rdma[LEDGER_GPUS];
    /* No extent is resident, and new ones are born so. Changed under the lock. */
    atomic_bool is_evicted;
    /* Of extents that can move; changed under the lock. */
    _Atomic uint64_t resident_bytes, evicted_bytes;
    /* Of those that cannot any more. */
    _Atomic uint64_t pinned_bytes;
};

_Static_assert(sizeof(struct swap) <= MEMORY_ENGINE_BYTES, "it has room in the memory area");

static inline struct swap *swap_state(void)
{
    return (struct swap *)(void *)memory_area()->engine;
}
