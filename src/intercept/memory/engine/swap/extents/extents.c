#include "intercept/memory/engine/swap/extents/extents.h"

#include <stddef.h>
#include <sys/mman.h>

#include "base/check.h"

/* --- The table ------------------------------------------------------------------------------------- */

void *extents_make_table(size_t bytes)
{
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, MADV_DONTFORK); /* a forked child holds nothing */
    return memory;
}

static uint32_t index_of(const struct extents *extents, const struct extent *extent)
{
    return (uint32_t)(extent - extents->table);
}

/* The extent with this index + 1; NULL for 0. */
static struct extent *extent_at(const struct extents *extents, uint32_t number)
{
    return number ? &extents->table[number - 1] : NULL;
}

static struct extent *unused_place(struct extents *extents)
{
    if (!extents->table && !(extents->table = extents_make_table(EXTENTS_MAX * sizeof(struct extent))))
        return NULL;
    if (extents->spare)
        return extent_at(extents, extents->spare);
    return extents->end < EXTENTS_MAX ? &extents->table[extents->end] : NULL;
}

static void enter_shared(struct extents *extents, struct extent *extent)
{
    struct extent *first = extent_at(extents, extents->shared);
    extent->next = extents->shared;
    extents->shared = index_of(extents, extent) + 1;
    if (first)
        first->previous = extents->shared;
}

static void leave_shared(struct extents *extents, const struct extent *extent)
{
    struct extent *previous = extent_at(extents, extent->previous), *next = extent_at(extents, extent->next);
    *(previous ? &previous->next : &extents->shared) = extent->next;
    if (next)
        next->previous = extent->previous;
}

struct extent *extents_add(struct extents *extents, const struct extent *extent)
{
    struct extent *place = unused_place(extents);
    if (!place)
        return NULL;
    uint32_t index = index_of(extents, place), next_spare = extents->spare ? place->next : 0;
    if (extent->address &&
        !ranges_put(&extents->by_address, (struct range){extent->address, extent->bytes, index}))
        return NULL;
    *place = *extent;
    place->is_used = true;
    place->number = ++extents->made;
    place->next = place->previous = 0;
    place->free_blocks = extent->is_shared ? EXTENT_BLOCKS : 0;
    extents->spare = next_spare;
    if (index == extents->end)
        extents->end++;
    if (extent->is_shared)
        enter_shared(extents, place);
    GS_CHECK(extent_is_valid(place));
    return place;
}

void extents_remove(struct extents *extents, struct extent *extent)
{
    GS_CHECK(extent_is_valid(extent));
    if (extent->address)
        ranges_remove(&extents->by_address, extent->address, index_of(extents, extent));
    if (extent->is_shared)
        leave_shared(extents, extent);
    extent->is_used = false;
    extent->next = extents->spare;
    extents->spare = index_of(extents, extent) + 1;
}

struct extent *extents_find(struct extents *extents, uint64_t address)
{
    struct range range;
    return ranges_find(&extents->by_address, address, &range) ? &extents->table[range.kind] : NULL;
}

struct extent *extents_first_piece(struct extents *extents, struct extent *piece)
{
    return piece->bytes_before ? extents_find(extents, extent_all_address(piece)) : piece;
}

struct extent *extents_next_piece(struct extents *extents, const struct extent *piece)
{
    return piece->bytes_behind ? extents_find(extents, piece->address + piece->bytes) : NULL;
}

struct extent *extents_next(struct extents *extents, struct extent *before)
{
    for (uint32_t i = before ? (uint32_t)(before - extents->table) + 1 : 0; i < extents->end; i++)
        if (extents->table[i].is_used)
            return &extents->table[i];
    return NULL;
}

struct extent *extents_next_shared(struct extents *extents, const struct extent *before)
{
    return extent_at(extents, before ? before->next : extents->shared);
}

/* --- What must hold -------------------------------------------------------------------------------- */

static bool is_pinned_for_something(const struct extent *extent)
{
    for (unsigned why = 0; why < WIRE_STAYS_COUNT; why++)
        if (extent->pins[why])
            return true;
    return false;
}

static bool has_valid_shape(const struct extent *extent)
{
    bool is_piece = extent->bytes_before || extent->bytes_behind;
    return extent->bytes && extent_all_bytes(extent) >= extent->bytes &&
           (extent->address || !(is_piece || extent->is_shared || extent->pool || extent->is_handed_out)) &&
           (!extent->is_shared ||
            (!is_piece && extent->bytes == EXTENT_SHARED_BYTES && extent->free_blocks <= EXTENT_BLOCKS));
}

/* A copy and a digest belong to a place in the arena. An extent that is away has a place only for its copy. */
static bool has_valid_copy(const struct extent *extent)
{
    return extent->has_place ? extent->has_copy || extent_is_whole(extent)
                             : !extent->has_copy && !extent->has_digest;
}

bool extent_is_valid(const struct extent *extent)
{
    return extent->is_used && extent->residence <= EXTENT_STUCK && has_valid_shape(extent) &&
           has_valid_copy(extent) && extent->is_pinned == is_pinned_for_something(extent);
}

/* --- Blocks of a shared extent --------------------------------------------------------------------- */

static bool bit(const uint64_t *bits, uint32_t at)
{
    return bits[at / 64] >> (at % 64) & 1;
}

static void set_bit(uint64_t *bits, uint32_t at, bool value)
{
    uint64_t mask = UINT64_C(1) << (at % 64);
    bits[at / 64] = value ? bits[at / 64] | mask : bits[at / 64] & ~mask;
}

/* The first of `count` free blocks in a row; EXTENT_BLOCKS if there are none. */
static uint32_t find_free(const struct extent *extent, uint32_t count)
{
    uint32_t run = 0;
    for (uint32_t at = 0; at < EXTENT_BLOCKS; at++) {
        if (at % 64 == 0 && extent->taken[at / 64] == UINT64_MAX) {
            run = 0;
            at += 63;
            continue;
        }
        run = bit(extent->taken, at) ? 0 : run + 1;
        if (run == count)
            return at + 1 - count;
    }
    return EXTENT_BLOCKS;
}

uint64_t extent_take(struct extent *extent, uint64_t bytes)
{
    GS_CHECK(extent->is_shared && bytes);
    uint64_t wanted = (bytes + EXTENT_BLOCK_BYTES - 1) / EXTENT_BLOCK_BYTES;
    if (wanted > extent->free_blocks)
        return 0;
    uint32_t count = (uint32_t)wanted, first = find_free(extent, count);
    if (first == EXTENT_BLOCKS)
        return 0;
    for (uint32_t at = first; at < first + count; at++)
        set_bit(extent->taken, at, true);
    set_bit(extent->ends, first + count - 1, true);
    extent->free_blocks -= count;
    return extent->address + first * EXTENT_BLOCK_BYTES;
}

bool extent_has(const struct extent *extent, uint64_t address)
{
    if (!extent->is_shared)
        return address == extent->address && !extent->bytes_before;
    uint64_t offset = address - extent->address;
    uint32_t first = (uint32_t)(offset / EXTENT_BLOCK_BYTES);
    return offset < extent->bytes && offset % EXTENT_BLOCK_BYTES == 0 && bit(extent->taken, first) &&
           (first == 0 || !bit(extent->taken, first - 1) || bit(extent->ends, first - 1));
}

void extent_give_back(struct extent *extent, uint64_t address)
{
    GS_CHECK(extent_has(extent, address));
    if (!extent->is_shared)
        return;
    uint32_t at = (uint32_t)((address - extent->address) / EXTENT_BLOCK_BYTES);
    for (bool is_last = false; !is_last; at++) {
        is_last = bit(extent->ends, at);
        set_bit(extent->taken, at, false);
        set_bit(extent->ends, at, false);
        extent->free_blocks++;
    }
    GS_CHECK(extent->free_blocks <= EXTENT_BLOCKS);
}
