/* arena.h - the host memory that holds a process's evicted extents.
 *
 * chunk   ARENA_CHUNK_BYTES of it: the arena grows by whole ones, which stay
 *
 * The chunks lie one behind the other, so an extent may span several. The memory is made before anything is copied
 * there: an arena that cannot grow says so, and the out-of-memory killer is never met. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define ARENA_CHUNK_BYTES (UINT64_C(64) << 20)

struct arena {
    unsigned char *base;     /* where the chunks are mapped; NULL: nothing was made yet */
    uint64_t reserved_bytes; /* of addresses from `base` on */
    uint64_t ready_bytes;    /* of memory */
    uint64_t limit_bytes;    /* it never has more; 0: none */
    bool is_given;           /* its memory comes by arena_take() alone */
};

/* Have at least `bytes` of memory. False, with what it had before, where there is none, or more than the limit. */
bool arena_grow(struct arena *arena, uint64_t bytes);

/* Take over `bytes` of memory in file `fd`, whole pages. 0 or a negative errno. */
int arena_take(struct arena *arena, int fd, uint64_t bytes);
