/* area.h - what the memory room remembers of this process: its part of the private area (session/private.h).
 *
 * Locks, in the order in which a thread may take them. A thread that holds one takes only locks further down.
 *
 *   the gate               entered before all of them: a thread that waits there holds no lock
 *   context_locks[gpu]     while a context of that GPU is destroyed, and while one is entered in the records; not while
 *                          memory is page-locked: the context is held meanwhile (context_locks.h)
 *   deciding               session.c: while this process attaches
 *   pools_lock             to add a pool
 *   pool->lock             while the program allocates from a pool, and while the pool's charge is corrected; a second
 *                          one only by trylock
 *   the swap engine's      while its extents change, or move
 *   a shard of `records`   for a few dozen instructions
 *   the range map          the same
 *   slot_lock              of this process's slot in the ledger; the same */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "intercept/memory/records.h"
#include "intercept/session/private.h"

/* A stream-ordered memory pool that this process has allocated from. Under its lock, except for what is atomic. */
struct pool {
    pthread_mutex_t lock;
    /* CUmemoryPool; NULL: this place was never used. */
    _Atomic(void *) handle;
    /* What the ledger has for the pool. */
    uint64_t charged_bytes;
    /* Index in the policy. */
    uint32_t gpu;
    /* The program made it, and destroys it. */
    bool is_made;
    /* Its memory is managed memory, wherever that is: NVML shows none of it (charge_hide()). */
    bool is_managed;
    /* Its memory is the host's: nothing is charged. */
    bool is_of_host;
    /* Not a pool: it stands for what the graphs of `device` reserve. */
    bool is_of_graphs;
    /* It was exported: others may keep what it gives back. */
    atomic_bool is_shared;
    /* The program destroyed the pool while its memory was in use: the pool goes once none of it is. */
    atomic_bool is_dying;
    /* For graphs, and for pools that the program made. */
    CUdevice device;
    /* For graphs: the executable graph that was launched last, as long as its memory is surely there. */
    uint64_t mapped_by;
};
#define POOLS_MAX (1024 + 2 * LEDGER_GPUS)

/* What the engine remembers; only the engine knows the layout (engine/swap/swap.h). */
#define MEMORY_ENGINE_BYTES 4096

struct memory_area {
    struct records records;
    _Atomic uint64_t physical_count; /* how many numbers were given to physical memory */
    atomic_bool uses_graphs, uses_tiles, uses_pools, uses_elsewhere;
    /* It has noted an export that is not of a pool, which lasts as long as the process. */
    atomic_bool notes_for_good;
    /* When it last let go of memory that a descriptor may keep; 0: never. */
    _Atomic uint64_t let_go_ns;

    pthread_mutex_t context_locks[LEDGER_GPUS];
    struct context_hold {
        CUcontext context; /* lives on until the hold has ended; NULL: none is held */
        pthread_cond_t ended;
    } context_holds[LEDGER_GPUS];        /* under the lock of that GPU */
    atomic_bool cost_asked[LEDGER_GPUS]; /* this process has asked what a context costs on the GPU */

    pthread_mutex_t pools_lock;
    struct pool pools[POOLS_MAX];

    _Alignas(64) unsigned char engine[MEMORY_ENGINE_BYTES];
};
_Static_assert(sizeof(struct memory_area) <= PRIVATE_MEMORY_BYTES, "it has room in the private area");

/* The area. Every process in a session has one. */
static inline struct memory_area *memory_area(void)
{
    return (struct memory_area *)(void *)private_get()->memory;
}

/* The same; NULL in a process that has none yet. */
static inline struct memory_area *memory_area_if_any(void)
{
    struct private_area *area =
        atomic_load_explicit(&private_area, memory_order_acquire); /* private_make() */
    return area ? (struct memory_area *)(void *)area->memory : NULL;
}

static inline struct records *memory_records(void)
{
    return &memory_area()->records;
}
