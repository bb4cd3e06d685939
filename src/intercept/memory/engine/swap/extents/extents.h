/* extents.h - which addresses of the swap engine are whose.
 *
 * extent   a piece of device memory that moves as a whole: a range of addresses that stays, with physical memory behind
 *          it while it is resident
 * whole    an extent that is one allocation
 * piece    one of several extents of a large allocation, side by side: each moves by itself, so the allocation leaves,
 *          comes back and is found unchanged piece by piece
 * shared   an extent of EXTENT_SHARED_BYTES for small allocations, in blocks of EXTENT_BLOCK_BYTES
 *
 * Nothing here calls the driver, and nothing is thread-safe: the engine has a lock. Memory comes from mmap, never
 * from malloc, since hooks run inside other people's allocators. Zeroed memory is an empty table. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "intercept/memory/ranges.h"
#include "wire/wire.h"

#define EXTENT_SHARED_BYTES (UINT64_C(2) << 20) /* what the driver takes for small allocations too */
#define EXTENT_BLOCK_BYTES UINT64_C(512)        /* alignment of the driver's own allocations */
#define EXTENT_BLOCKS (EXTENT_SHARED_BYTES / EXTENT_BLOCK_BYTES)
#define EXTENTS_BITS 18
#define EXTENTS_MAX (1u << EXTENTS_BITS) /* 512 GiB of the smallest extents */

/* 128 bits computed from what an extent holds (clean.h). */
struct digest {
    uint64_t words[2];
};

/* Where an extent's physical memory is. From EXTENT_COMING on there is some, mapped behind it. */
enum residence {
    EXTENT_AWAY,
    EXTENT_CALLED, /* away, and part of the partial restore that goes on */
    EXTENT_COMING, /* made by a restore, and not restored as a whole yet */
    EXTENT_AHEAD,  /* it came back ahead of the others, and its copy still holds */
    EXTENT_HERE,
    EXTENT_STUCK, /* its process is evicted, and it is still on the card: no context could take it off */
};

struct extent {
    /* 0 for physical memory that the program made itself (swap_program.c): the program maps it where it likes. */
    uint64_t address;
    uint64_t bytes;
    /* How much of the same allocation lies before and behind this piece. */
    uint64_t bytes_before, bytes_behind;
    /* The context that the extent goes with; NULL: with none. */
    CUcontext context;
    CUdevice device;
    bool is_used, is_shared;
    uint32_t pool; /* number of the pool whose addresses these are (swap_pool.h); 0: the extent has its own */
    enum residence residence;
    /* Not 0: it is dying, and this many extents had begun to (dying.h). Of an allocation in pieces the first one says so. */
    uint64_t died;
    /* No other extent of this process ever has the same. */
    uint64_t number;
    /* Of a shared extent: some of its allocations have numbers (struct swap: `small`). */
    bool has_numbers;
    /* Another process or device holds the physical memory too, or may look at it where it is: it stays on the card.
     * And how often it was pinned, by why. */
    bool is_pinned;
    uint16_t pins[WIRE_STAYS_COUNT];
    /* It was handed out by legacy IPC, under this number (descriptors.h). */
    bool is_handed_out;
    uint64_t handed_out_as, handed_out_secret;
    /* Not back yet, with its contents in the arena. An extent that was made while evicted has no contents. */
    bool has_copy;
    /* It has a place in the arena: `place`. */
    bool has_place;
    CUmemGenericAllocationHandle handle;
    uint64_t place;
    /* `digest` is that of what `place` holds. While the extent leaves: whether its digest was taken again, as `seen`, and
     * was the same. */
    bool has_digest, is_clean;
    enum { DIGEST_NONE, DIGEST_ASKED, DIGEST_SEEN } digesting;
    struct digest digest, seen;
    /* Index + 1 of the next unused extent; for a shared extent, of the shared ones before and behind it. */
    uint32_t next, previous;

    /* For memory that the program made itself: what the program has of it, and where it is mapped. */
    struct {
        CUmemGenericAllocationHandle handle; /* not the driver's, but the program's; 0: not made by it */
        uint32_t references;                 /* of that handle */
        uint32_t mappings;                   /* index + 1 of the first */
        CUmemAllocationProp properties;
        uint64_t window; /* while it moves: the address to copy from and to */
        bool has_own_window;
    } program;

    /* For a shared extent: a bit for each block that is taken, and for each block that is the last of its
     * allocation. */
    uint32_t free_blocks;
    uint64_t taken[EXTENT_BLOCKS / 64], ends[EXTENT_BLOCKS / 64];
};

struct extents {
    struct extent *table; /* of EXTENTS_MAX; pages that nobody touches cost nothing */
    uint32_t end;         /* places from here on were never used */
    uint32_t spare;       /* index + 1 of an unused place before that, the first of a list; 0: none */
    uint32_t shared;      /* index + 1 of a shared extent, the first of a list; 0: none */
    uint64_t made;        /* how many there were in all */
    struct ranges by_address;
};

/* Zeroed memory for a table; pages that nobody touches cost nothing. It lasts as long as the process. NULL without
 * memory. */
void *extents_make_table(size_t bytes);

/* Enter an extent. NULL if there is no room for it. */
struct extent *extents_add(struct extents *extents, const struct extent *extent);
void extents_remove(struct extents *extents, struct extent *extent);

/* The extent around an address, or NULL. */
struct extent *extents_find(struct extents *extents, uint64_t address);

/* The first piece of a piece's allocation; and the next one, NULL behind the last. */
struct extent *extents_first_piece(struct extents *extents, struct extent *piece);
struct extent *extents_next_piece(struct extents *extents, const struct extent *piece);

/* Where the whole allocation begins, and how long it is. */
static inline uint64_t extent_all_address(const struct extent *piece)
{
    return piece->address - piece->bytes_before;
}

static inline uint64_t extent_all_bytes(const struct extent *piece)
{
    return piece->bytes_before + piece->bytes + piece->bytes_behind;
}

/* How large the next piece is when `left_bytes` of an allocation remain. The last piece takes what is too little for
 * one more. */
static inline uint64_t extent_piece(uint64_t left_bytes, uint64_t piece_bytes)
{
    return left_bytes / 2 < piece_bytes ? left_bytes : piece_bytes;
}

/* The extents one after the other, from NULL to NULL; and the shared ones. */
struct extent *extents_next(struct extents *extents, struct extent *before);
struct extent *extents_next_shared(struct extents *extents, const struct extent *before);

/* Take `bytes` in a shared extent. Returns their address; 0 if it has no room for them side by side. */
uint64_t extent_take(struct extent *extent, uint64_t bytes);

/* Whether an allocation begins at `address`; and, in a shared extent, give it back. */
bool extent_has(const struct extent *extent, uint64_t address);
void extent_give_back(struct extent *extent, uint64_t address);

static inline bool extent_is_on_card(const struct extent *extent)
{
    return extent->residence >= EXTENT_COMING;
}

/* On the card, with all that it holds. */
static inline bool extent_is_whole(const struct extent *extent)
{
    return extent->residence >= EXTENT_AHEAD;
}

/* Whether what is known of an extent in use goes together. */
bool extent_is_valid(const struct extent *extent);

/* For a shared extent: nothing is allocated in it. */
static inline bool extent_is_empty(const struct extent *extent)
{
    return extent->free_blocks == EXTENT_BLOCKS;
}
