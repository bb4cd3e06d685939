/* swap.h - the engine whose memory can leave the card and come back at the same addresses.
 *
 * Linear and pitched memory lies in extents (extents.h): addresses that are reserved once, with physical memory of
 * cuMemCreate mapped there while the process is resident. Eviction copies all extents to the arena and gives their
 * physical memory back; restoring makes new physical memory behind the same addresses and copies back. Both are done
 * whole or not at all: when one fails, the process is what it was before, and nothing is lost.
 *
 * In an evicted process, memory is allocated and freed without the card: an extent is born without physical memory, and
 * one that is freed takes its copy with it.
 *
 * Not in it yet: the program's own cuMemCreate, legacy IPC, access by peers, memory of pools. */
#pragma once

#include <pthread.h>

#include "intercept/memory/engine/arena.h"
#include "intercept/memory/engine/engine.h"
#include "intercept/memory/engine/extents.h"

struct swap {
    pthread_mutex_t lock;
    struct extents extents;
    /* Where a small allocation had room last; NULL, or unused by now. */
    struct extent *had_room;
    struct arena arena;
    /* No extent is resident, and new ones are born so. */
    bool is_evicted;
};

extern const struct engine engine_swap;

/* Use it from now on, if the session is one that is oversubscribed. Before the process's first allocation. */
void swap_choose(void);

/* Bytes of extents on the card, and in the arena. */
struct swap_bytes {
    uint64_t resident_bytes, evicted_bytes;
};
struct swap_bytes swap_bytes(void);

/* All that moves leaves the card; all comes back. The caller sees to it that nothing uses the memory meanwhile, and that
 * nothing is submitted before it is back. CUDA_SUCCESS, or what went wrong; then nothing has changed. */
CUresult swap_evict(void);
CUresult swap_restore(void);
