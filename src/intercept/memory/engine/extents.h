/* extents.h - which addresses of the swap engine are whose.
 *
 * extent   a piece of device memory that moves as a whole: a range of addresses that stays, and physical memory behind
 *          it while it is resident
 * whole    an extent of one allocation
 * piece    one of several of a large allocation, side by side: each moves by itself, so that it leaves, comes and is found
 *          unchanged bit by bit
 * shared   an extent of EXTENT_SHARED_BYTES for small allocations, in blocks of EXTENT_BLOCK_BYTES
 *
 * Nothing here calls the driver, and nothing is thread-safe: the engine has a lock. Memory comes from mmap, never from
 * malloc: hooks run inside other people's allocators. Zeroed memory is an empty table. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "intercept/memory/ranges.h"

#define EXTENT_SHARED_BYTES (UINT64_C(2) << 20) /* what the driver takes for small allocations too */
#define EXTENT_BLOCK_BYTES UINT64_C(512)        /* alignment of the driver's own allocations */
#define EXTENT_BLOCKS (EXTENT_SHARED_BYTES / EXTENT_BLOCK_BYTES)
#define EXTENTS_MAX 65536u

/* 128 bits of what an extent holds (clean.h). */
struct digest {
    uint64_t words[2];
};

struct extent {
    /* Of physical memory that the program made (swap_program.c), 0: its mappings lie where the program likes. */
    uint64_t address;
    uint64_t bytes;
    /* Of the same allocation, beside it: its other pieces. */
    uint64_t bytes_before, bytes_behind;
    /* It goes with this one; NULL: with none. */
    CUcontext context;
    CUdevice device;
    bool is_used, is_shared;
    uint32_t pool; /* number of the pool whose addresses these are (swap_pool.h); 0: its own */
    /* There is physical memory behind it, mapped. */
    bool is_resident;
    /* Somebody else holds the physical memory too, or may look at it where it is: it stays on the card for good. */
    bool is_pinned;
    /* It was, by legacy IPC: under this number (descriptors.h). */
    bool is_handed_out;
    uint64_t handed_out_as, handed_out_secret;
    /* Evicted: what it held is in the arena. Memory that was born evicted held nothing. */
    bool has_copy;
    /* `place` in the arena is its own. */
    bool has_place;
    /* While a restore goes on: its physical memory was made for that. */
    bool is_returning;
    /* Part of the restore that goes on; and: its content came ahead of the others', and its copy still holds. */
    bool is_called, is_ahead;
    CUmemGenericAllocationHandle handle;
    uint64_t place;
    /* What `place` holds has this digest. While it leaves: whether that was taken anew, and was the same. */
    bool has_digest, is_clean;
    enum { DIGEST_NONE, DIGEST_ASKED, DIGEST_SEEN } digesting;
    uint32_t digest_number;
    struct digest digest;
    /* Index + 1 of the next unused one; of the shared ones around it. */
    uint32_t next, previous;

    /* Of what the program made: what it has of it, and where it is mapped. */
    struct {
        CUmemGenericAllocationHandle handle; /* the program's, not the driver's; 0: the program made it not */
        uint32_t references;                 /* of that handle */
        uint32_t mappings;                   /* index + 1 of the first */
        CUmemAllocationProp properties;
        uint64_t window; /* while it moves: where it can be copied from and to */
        bool has_own_window;
    } program;

    /* Of a shared one: a bit for each block that is taken, and for each that is the last of its allocation. */
    uint32_t free_blocks;
    uint64_t taken[EXTENT_BLOCKS / 64], ends[EXTENT_BLOCKS / 64];
};

struct extents {
    struct extent *table; /* of EXTENTS_MAX; pages that nobody touches cost nothing */
    uint32_t end;         /* places from here on were never used */
    uint32_t spare;       /* index + 1 of an unused place before that, the first of a list; 0: none */
    uint32_t shared;      /* index + 1 of a shared extent, the first of a list; 0: none */
    struct ranges by_address;
};

/* Memory for a table, zeroed; pages that nobody touches cost nothing. It lives as long as the process. NULL without memory. */
void *extents_make_table(size_t bytes);

/* Enter an extent. NULL without room. */
struct extent *extents_add(struct extents *extents, const struct extent *extent);
void extents_remove(struct extents *extents, struct extent *extent);

/* The extent around an address, or NULL. */
struct extent *extents_find(struct extents *extents, uint64_t address);

/* The first piece of its allocation; and the next one: NULL ends. */
struct extent *extents_first_piece(struct extents *extents, struct extent *piece);
struct extent *extents_next_piece(struct extents *extents, const struct extent *piece);

/* All of the allocation. */
static inline uint64_t extent_all_address(const struct extent *piece)
{
    return piece->address - piece->bytes_before;
}

static inline uint64_t extent_all_bytes(const struct extent *piece)
{
    return piece->bytes_before + piece->bytes + piece->bytes_behind;
}

/* How large the next piece is of an allocation of which so much is left: the last one has what is too little for another. */
static inline uint64_t extent_piece(uint64_t left_bytes, uint64_t piece_bytes)
{
    return left_bytes / 2 < piece_bytes ? left_bytes : piece_bytes;
}

/* The extents one after the other: NULL begins, and ends. The same of the shared ones. */
struct extent *extents_next(struct extents *extents, struct extent *before);
struct extent *extents_next_shared(struct extents *extents, const struct extent *before);

/* The address of `bytes` in a shared extent; 0 where it has no room for them in one piece. */
uint64_t extent_take(struct extent *extent, uint64_t bytes);

/* Whether an allocation begins there; and, of a shared one, let go of it. */
bool extent_has(const struct extent *extent, uint64_t address);
void extent_give_back(struct extent *extent, uint64_t address);

/* Of a shared one: nothing is allocated there. */
static inline bool extent_is_empty(const struct extent *extent)
{
    return extent->free_blocks == EXTENT_BLOCKS;
}
