/* state.h - what the swap engine remembers of this process. All of it changes under the engine's lock only. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "intercept/memory/area.h"
#include "intercept/memory/engine/swap/extents/extents.h"
#include "intercept/memory/engine/swap/move/arena.h"
#include "intercept/memory/engine/swap/pools/pool_blocks.h"

/* --- Mappings of the program (mappings.h) ---------------------------------------------------------- */

#define ACCESS_MAX 33u   /* GPUs, and the host, that a mapping is open to */
#define ACCEPTED_MAX 16u /* programs ask for memory of one or two kinds on each GPU */

struct mapping {
    uint64_t address, bytes;
    uint64_t number; /* no other mapping of this process ever has the same */
    uint32_t extent; /* index */
    /* Index + 1 of the mappings of the same extent; for an unused one, `next` is the next unused one. */
    uint32_t next, previous;
    uint32_t access_count;
    CUmemAccessDesc access[ACCESS_MAX];
};

struct program {
    struct mapping *table; /* of MAPPINGS_MAX; pages that nobody touches cost nothing */
    uint32_t end, spare;   /* as in struct extents */
    uint32_t made_count;   /* how many handles were made */
    uint64_t mapped;       /* how many mappings there were in all */
    /* Properties that the driver has made memory with, the latest ACCEPTED_MAX; how many there were in all. */
    CUmemAllocationProp accepted[ACCEPTED_MAX];
    uint64_t accepted_count;
    struct ranges by_address, reserved;
    struct ranges others; /* where the program mapped memory that does not move: the host's, or imported */
};

/* --- Pools (swap_pool.h) --------------------------------------------------------------------------- */

#define SWAP_POOLS_MAX 1024u
#define SWAP_EVENTS 64u

struct swap_pool {
    CUmemoryPool handle; /* NULL: an unused place */
    bool is_drivers;     /* the driver serves it, and nothing below holds */
    /* The program has exported it: from then on the driver serves it. What was given out before is still ours. */
    bool is_exported;
    bool is_exportable;     /* made with handle types */
    bool is_for_decompress; /* its memory is made with CU_MEM_CREATE_USAGE_HW_DECOMPRESS */
    bool is_wish_proven;    /* cuMemSetAccess has worked on such memory */
    /* CU_MEMPOOL_ATTR_REUSE_ALLOW_... OPPORTUNISTIC, INTERNAL_DEPENDENCIES. */
    bool is_opportunistic, waits_for_others;
    CUdevice device;
    uint64_t most_bytes; /* 0: no limit */
    uint64_t threshold_bytes, present_high_bytes, taken_high_bytes;
    struct pool_blocks blocks;
    uint8_t access[LEDGER_GPUS]; /* enum CUmemAccess_flags of each device, but its own */
};

/* An event that is kept for the next order in its context. */
struct swap_event {
    CUcontext context;
    CUevent event;
};

struct swap_pools {
    struct swap_pool *table; /* of SWAP_POOLS_MAX */
    uint32_t count;          /* places from here on were never used */
    uint32_t event_count;
    struct blocks blocks;
    struct ranges regions;        /* addresses that are reserved for pools, each by one call */
    uint64_t orders, allocations; /* numbers that were given */
    struct swap_event events[SWAP_EVENTS];
};

/* --- Legacy IPC and pointers into pools (hand_over.h) ---------------------------------------------- */

/* Another process's memory that is open here. */
struct swap_import {
    uint32_t count;      /* how often it was opened; 0: an unused place */
    uint64_t allocation; /* a number that no other import of this process ever has */
    int32_t pid;         /* from the handle, like the two below */
    uint64_t secret, number;
    CUcontext context; /* NULL: it is a pointer into a pool, which goes with no context */
    CUdevice device;
    CUdeviceptr address;                /* of the extent, or of all pieces together */
    uint64_t mapped_bytes, piece_bytes; /* of each piece but the last (extent_piece()) */
    uint64_t *pieces;                   /* bytes of each piece, where they differ; else NULL */
    uint64_t piece_count;
    uint64_t base, bytes; /* of the allocation that lies in it */
};

struct swap_imports {
    struct swap_import *table; /* of IMPORTS_MAX */
    uint32_t end;              /* places from here on were never used */
    uint64_t made;             /* how many there were in all */
};

/* Which memory is copied again that has a copy already. */
enum clean_mode { CLEAN_TRUST, CLEAN_VERIFY, CLEAN_COPY };

/* --- The whole ------------------------------------------------------------------------------------- */

struct swap {
    pthread_mutex_t lock;
    struct extents extents;
    /* Where a small allocation found room last; may be NULL, or not in use any more. */
    struct extent *had_room;
    /* How many shared extents are empty; and how many extents are dying (dying.h). */
    uint32_t empty_count, dying_count;
    /* How many extents ever began to die; and how many contexts have gone. */
    uint64_t deaths, contexts_gone;
    struct arena arena;
    struct program program;
    struct swap_pools pools;
    struct swap_imports imports;
    enum clean_mode clean_mode; /* of the process (clean.h) */
    /* Numbers of allocations in shared extents, for those about which the program has asked, by where they begin. No other
     * allocation of this process ever has the same; `small_count` were given. */
    struct ranges small;
    uint32_t small_count;
    struct swap_tools *tools; /* of SWAP_CONTEXTS_MAX; NULL: no context was met yet */
    /* For each device, by ordinal: a bit for each device that may reach its extents (cuCtxEnablePeerAccess). */
    uint64_t open_to[LEDGER_GPUS];
    /* How large pieces are on each device, by ordinal; 0: unknown yet. */
    uint64_t piece_bytes[LEDGER_GPUS];
    /* Whether extents on each device are made for RDMA, by ordinal. */
    enum extents_for_rdma { RDMA_UNKNOWN, RDMA_CAPABLE, RDMA_INCAPABLE } for_rdma[LEDGER_GPUS];
    bool is_rdma_proven[LEDGER_GPUS]; /* cuMemSetAccess has worked on such extents */
    /* All memory is away, but for what is pinned or came ahead. New extents are made as
     * swap_makes_away() says. */
    atomic_bool is_evicted;
    /* All memory of the process stays on the card for good (swap_unknown.h), and is made on the card. */
    atomic_bool is_pinned;
    /* Bytes of extents that can move, but for those that are stuck. */
    _Atomic uint64_t resident_bytes, evicted_bytes;
    /* Bytes of extents that cannot move any more, or are stuck, by why. */
    _Atomic uint64_t pinned_bytes[WIRE_STAYS_COUNT];
};

_Static_assert(sizeof(struct swap) <= MEMORY_ENGINE_BYTES, "it has room in the memory area");

static inline struct swap *swap_state(void)
{
    return (struct swap *)(void *)memory_area()->engine;
}

static inline bool swap_is_pinned(void)
{
    return atomic_load_explicit(&swap_state()->is_pinned, memory_order_relaxed);
}

/* Whether new memory that can move is made without physical memory, which it gets when all comes back. */
static inline bool swap_makes_away(void)
{
    return atomic_load_explicit(&swap_state()->is_evicted, memory_order_relaxed) && !swap_is_pinned();
}
