/* arena.h - the host memory that holds a process's evicted extents.
 *
 * chunk   a file of memory that is allocated already, mapped behind the chunk before. The session's daemon gives
 *         chunks; a process on its own makes them, of ARENA_CHUNK_BYTES
 * place   where an extent's copy is: a run of grains, which may span chunks
 * piece   what is page-locked at once: while the driver page-locks, other calls of the program may wait (measure), so
 *         it is little. A chunk has a whole number of pieces
 *
 * Nothing is copied to memory that is not allocated yet: an arena without room says so, and the out-of-memory killer
 * is never involved. Pieces are page-locked in the background; those that are not when something is copied to them are
 * page-locked then. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"

#define ARENA_CHUNK_BYTES (UINT64_C(64) << 20)
#define ARENA_GRAIN_BYTES (UINT64_C(2) << 20)
#define ARENA_PIECE_BYTES (UINT64_C(16) << 20)
#define ARENA_NOWHERE UINT64_MAX

struct arena_chunk {
    uint64_t begin, bytes;
};

struct arena {
    unsigned char *base;        /* where the chunks are mapped; NULL: nothing was reserved yet */
    uint64_t reserved_bytes;    /* of addresses from `base` on */
    uint64_t ready_bytes;       /* of memory, in chunks */
    uint64_t taken_bytes;       /* of that memory, by places */
    uint64_t limit_bytes;       /* the most that it may have; 0: no limit */
    struct arena_chunk *chunks; /* of ARENA_CHUNKS_MAX */
    uint32_t chunk_count;
    CUcontext *locked_by; /* for each piece, the context that page-locked it; NULL: it is not page-locked */
    bool is_given;        /* the session's daemon gives chunks, so the arena does not grow by itself */
    /* The driver page-locks no memory of ours in this process: it is not asked again. */
    atomic_bool is_unlockable;
    atomic_bool was_locked; /* it has page-locked some */
    uint64_t *taken;        /* a bit for each grain */
    uint64_t search_from;   /* the grain behind the last place that was taken */
};

/* Map a chunk. `bytes` is a multiple of ARENA_PIECE_BYTES; the caller keeps the descriptor. 0 or a negative errno. */
int arena_take_chunk(struct arena *arena, int fd, uint64_t bytes);

/* Give the last chunk, in which there is no place and no page-locked piece, back to the system. */
bool arena_give_back_chunk(struct arena *arena);

/* Make sure that the arena has memory for `bytes` more than its places take; adds chunks if it may. False if there is
 * no memory for that. */
bool arena_has_room(struct arena *arena, uint64_t bytes);

/* Take a place for `bytes`, all side by side. Returns ARENA_NOWHERE if there is none. */
uint64_t arena_take(struct arena *arena, uint64_t bytes);
void arena_give_back(struct arena *arena, uint64_t place, uint64_t bytes);

/* How many of the `bytes` at `place` lie in one piece. A copy must not span two pieces, since each is page-locked by
 * itself. */
uint64_t arena_in_one_piece(uint64_t place, uint64_t bytes);

/* The first piece in [begin, end) of the arena that is not page-locked. False: all are. */
bool arena_find_unlocked(const struct arena *arena, uint64_t begin, uint64_t end, uint64_t *piece);
/* Page-lock a piece in the current context, so that copies run at the speed of the link; and undo that, in the context
 * that did it. These only ask the driver, and not again after it has said that it does no such thing, as with confidential
 * computing. What it has done is noted by the last function (NULL: it is not page-locked). */
bool arena_lock_piece(struct arena *arena, uint64_t piece);
bool arena_unlock_piece(const struct arena *arena, uint64_t piece);
void arena_note_locked(struct arena *arena, uint64_t piece, CUcontext context);
/* The context that page-locked a piece in [begin, end); NULL: none is page-locked. */
CUcontext arena_locker(const struct arena *arena, uint64_t begin, uint64_t end);
/* The context is gone, so what it had page-locked is not page-locked any more. */
void arena_forget_context(struct arena *arena, CUcontext context);
