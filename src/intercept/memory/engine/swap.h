/* swap.h - the engine whose memory can leave the card and come back at the same addresses.
 *
 * Linear and pitched memory lies in extents (extents.h): addresses that are reserved once, with physical memory of
 * cuMemCreate mapped there while the process is resident. Eviction copies all extents to the arena and gives their
 * physical memory back; restoring makes new physical memory behind the same addresses and copies back. Each goes on batch
 * by batch, so that memory is free on the card, or used again, while the rest still moves. When one fails, what had moved
 * is moved back, and nothing is lost.
 *
 * In an evicted process, memory is allocated and freed without the card: an extent is born without physical memory, and
 * one that is freed takes its copy with it. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "intercept/memory/engine/arena.h"
#include "intercept/memory/engine/engine.h"
#include "intercept/memory/engine/extents.h"
#include "intercept/memory/engine/swap_program.h"

/* The kernel of digests, in a context (clean.h). */
#define SWAP_DIGESTERS 16u
struct swap_digester {
    CUcontext context; /* NULL: none */
    CUfunction function;
};

struct swap {
    pthread_mutex_t lock;
    struct extents extents;
    /* Where a small allocation had room last; NULL, or unused by now. */
    struct extent *had_room;
    /* Shared extents in which nothing is allocated. */
    uint32_t empty_count;
    struct arena arena;
    struct program program;
    struct swap_digester digesters[SWAP_DIGESTERS];
    /* Of each device, by ordinal: a bit for each that may reach its extents (cuCtxEnablePeerAccess). */
    uint64_t open_to[LEDGER_GPUS];
    /* No extent is resident, and new ones are born so. Changed under the lock. */
    atomic_bool is_evicted;
    /* Of extents that can move; changed under the lock. */
    _Atomic uint64_t resident_bytes, evicted_bytes;
    /* Of those that cannot any more. */
    _Atomic uint64_t pinned_bytes;
};

#define SWAP_GRANULARITY_BYTES (UINT64_C(2) << 20) /* of device memory on all cards so far (measure) */

extern const struct engine engine_swap;

/* Use it from now on, if the session is one that is oversubscribed. Before the process's first allocation. */
void swap_choose(void);

/* Bytes of extents on the card, and in the arena. */
struct swap_bytes {
    uint64_t resident_bytes, evicted_bytes;
};
struct swap_bytes swap_bytes(void);

/* All that moves leaves the card; all comes back. The caller sees to it that nothing uses the memory meanwhile, and that
 * nothing is submitted before it is back. `progress` is called from time to time. CUDA_SUCCESS, or what went wrong; then
 * what had moved is where it was, or where even that failed the process is evicted with some of its memory on the card. */
CUresult swap_evict(void (*progress)(void));
CUresult swap_restore(void (*progress)(void));

/* Page-lock what the arena has, ahead of need: at a move it would take longer than the move. */
void swap_lock_pages(void);
