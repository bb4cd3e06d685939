/* arena.h - the host memory that holds a process's evicted extents.
 *
 * chunk   a file of memory that is there, mapped behind the one before. The session's daemon gives them; a process on its
 *         own makes them, of ARENA_CHUNK_BYTES
 * place   where an extent's copy is: a run of grains, which may span chunks
 *
 * Nothing is copied to memory that is not there yet: an arena without room says so, and the out-of-memory killer is never
 * met. Chunks are page-locked as they come, long before they are copied to. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"

#define ARENA_CHUNK_BYTES (UINT64_C(64) << 20)
#define ARENA_GRAIN_BYTES (UINT64_C(2) << 20)
#define ARENA_NOWHERE UINT64_MAX

struct arena_chunk {
    uint64_t begin, bytes;
    CUcontext context; /* that page-locked it; NULL: it is not */
};

struct arena {
    unsigned char *base;        /* where the chunks are mapped; NULL: nothing was made yet */
    uint64_t reserved_bytes;    /* of addresses from `base` on */
    uint64_t ready_bytes;       /* of memory */
    uint64_t taken_bytes;       /* of that, by places */
    uint64_t limit_bytes;       /* it never has more; 0: none */
    struct arena_chunk *chunks; /* of ARENA_CHUNKS_MAX */
    uint32_t chunk_count;
    bool is_given;        /* it does not grow by itself: the session's daemon gives chunks */
    uint64_t *taken;      /* a bit for each grain */
    uint64_t search_from; /* the grain behind the last place that was taken */
};

/* Map a chunk, of a multiple of ARENA_GRAIN_BYTES; the descriptor stays the caller's. 0 or a negative errno. */
int arena_take_chunk(struct arena *arena, int fd, uint64_t bytes);

/* The last chunk, in which no place is: in the context that page-locked it, if one did, its memory goes back to the system. False
 * where the driver keeps it. */
bool arena_give_back_chunk(struct arena *arena);

/* Have `bytes` without a place. False, with what it had before, where there is no memory for that. */
bool arena_has_room(struct arena *arena, uint64_t bytes);

/* A place for `bytes`, all of it side by side; ARENA_NOWHERE where there is none. */
uint64_t arena_take(struct arena *arena, uint64_t bytes);
void arena_give_back(struct arena *arena, uint64_t place, uint64_t bytes);

/* How many of the `bytes` at `place` lie in one chunk: no copy spans two, as each is page-locked for itself. */
uint64_t arena_in_one_chunk(const struct arena *arena, uint64_t place, uint64_t bytes);

/* Page-lock, in the current context, what is not: copies then run at the speed of the link. */
void arena_lock_pages(struct arena *arena, CUcontext current);
/* The context has gone, and what it had page-locked is so no more. */
void arena_forget_context(struct arena *arena, CUcontext context);
