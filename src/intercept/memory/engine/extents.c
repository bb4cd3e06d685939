#include "intercept/memory/engine/extents.h"

#include <stddef.h>
#include <sys/mman.h>

#include "base/check.h"

/* --- The table ------------------------------------------------------------------------------------- */

static bool make_table(struct extents *extents)
{
    size_t bytes = EXTENTS_MAX * sizeof(struct extent);
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    madvise(memory, bytes, MADV_DONTFORK); /* a forked child holds nothing */
    extents->table = memory;
    return true;
}

static struct extent *unused_place(struct extents *extents)
{
    if (!extents->table && !make_table(extents))
        return NULL;
    for (uint32_t i = 0; extents->spare_count && i < extents->end; i++)
        if (!extents->table[i].is_used)
            return &extents->table[i];
    return extents->end < EXTENTS_MAX ? &extents->table[extents->end] : NULL;
}

struct extent *extents_add(struct extents *extents, const struct extent *extent)
{
    struct extent *place = unused_place(extents);
    if (!place)
        return NULL;
    uint32_t index = (uint32_t)(place - extents->table);
    if (!ranges_put(&extents->by_address, (struct range){extent->address, extent->bytes, index}))
        return NULL;
    *place = *extent;
    place->is_used = true;
    place->free_blocks = extent->is_shared ? EXTENT_BLOCKS : 0;
    if (index == extents->end)
        extents->end++;
    else
        extents->spare_count--;
    return place;
}

void extents_remove(struct extents *extents, struct extent *extent)
{
    GS_CHECK(extent->is_used);
    ranges_remove(&extents->by_address, extent->address, (uint32_t)(extent - extents->table));
    extent->is_used = false;
    extents->spare_count++;
}

struct extent *extents_find(struct extents *extents, uint64_t address)
{
    struct range range;
    return ranges_find(&extents->by_address, address, &range) ? &extents->table[range.kind] : NULL;
}

struct extent *extents_next(struct extents *extents, struct extent *before)
{
    for (uint32_t i = before ? (uint32_t)(before - extents->table) + 1 : 0; i < extents->end; i++)
        if (extents->table[i].is_used)
            return &extents->table[i];
    return NULL;
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

/* The first block of `count` free ones in a row, or EXTENT_BLOCKS. */
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
        return address == extent->address;
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
