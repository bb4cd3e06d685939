#include "intercept/memory/engine/swap/extents/access.h"

#include <string.h>

#include "intercept/memory/engine/swap/program/mappings.h"
#include "intercept/resolve/real.h"

/* What a device may do with an extent on another device. For an extent of a pool, that is what cuMemPoolSetAccess has
 * said. */
static unsigned access_of_peer(const struct extent *extent, int peer)
{
    if (extent->pool)
        return swap_state()->pools.table[extent->pool - 1].access[peer];
    return swap_state()->open_to[extent->device] >> peer & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : 0;
}

uint64_t extent_devices(const struct extent *extent)
{
    uint64_t devices = UINT64_C(1) << extent->device;
    if (!extent->pool) /* each free asks */
        return devices | swap_state()->open_to[extent->device];
    for (int peer = 0; peer < (int)LEDGER_GPUS; peer++)
        devices |= access_of_peer(extent, peer) ? UINT64_C(1) << peer : 0;
    return devices;
}

static uint32_t add_peers(const struct extent *extent, CUmemAccessDesc access[static ACCESS_MAX],
                          uint32_t count)
{
    for (int peer = 0; peer < (int)LEDGER_GPUS && count < ACCESS_MAX; peer++) {
        unsigned flags = peer == extent->device ? 0 : access_of_peer(extent, peer);
        if (flags)
            access[count++] = (CUmemAccessDesc){.location = {CU_MEM_LOCATION_TYPE_DEVICE, peer},
                                                .flags = (CUmemAccess_flags)flags};
    }
    return count;
}

/* --- Opening --------------------------------------------------------------------------------------- */

static uint32_t access_of(const struct opener_area *area, CUmemAccessDesc access[static ACCESS_MAX])
{
    if (area->mapping) {
        memcpy(access, area->mapping->access, area->mapping->access_count * sizeof(*access));
        return area->mapping->access_count;
    }
    access[0] = (CUmemAccessDesc){.location = {CU_MEM_LOCATION_TYPE_DEVICE, area->extent->device},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return add_peers(area->extent, access, 1);
}

/* Where the reservation begins; 0: unknown. No source says that one call may reach over two. */
static uint64_t reservation_of(const struct opener_area *area)
{
    struct ranges *known = area->mapping ? &swap_state()->program.reserved : &swap_state()->pools.regions;
    struct range range;
    if (!area->mapping && !area->extent->pool)
        return extent_all_address(area->extent);
    return ranges_find(known, area->address, &range) ? range.begin : 0;
}

static bool belongs_behind(const struct opener_area *area, const struct opener_area *before,
                           const CUmemAccessDesc *access, uint32_t count)
{
    CUmemAccessDesc own[ACCESS_MAX];
    uint64_t reservation = reservation_of(area);
    return before->address + before->bytes == area->address && reservation &&
           reservation == reservation_of(before) && access_of(area, own) == count &&
           memcmp(own, access, count * sizeof(*own)) == 0;
}

/* They come nearly in order. */
static void sort(struct opener *opener)
{
    for (uint32_t i = 1; i < opener->count; i++) {
        struct opener_area area = opener->areas[i];
        uint32_t at = i;
        for (; at && opener->areas[at - 1].address > area.address; at--)
            opener->areas[at] = opener->areas[at - 1];
        opener->areas[at] = area;
    }
}

/* Open the areas from `begin` on that go together. Returns the first that does not. */
static uint32_t open_run(struct opener *opener, uint32_t begin)
{
    CUmemAccessDesc access[ACCESS_MAX];
    const struct opener_area *first = &opener->areas[begin], *last = first;
    uint32_t count = access_of(first, access), end = begin + 1;
    while (end < opener->count && belongs_behind(&opener->areas[end], last, access, count))
        last = &opener->areas[end++];
    if (count && opener->result == CUDA_SUCCESS)
        opener->result =
            real(cuMemSetAccess)(first->address, last->address + last->bytes - first->address, access, count);
    return end;
}

CUresult opener_end(struct opener *opener)
{
    sort(opener);
    for (uint32_t i = 0; i < opener->count;)
        i = open_run(opener, i);
    opener->count = 0;
    return opener->result;
}

static void add(struct opener *opener, struct opener_area area)
{
    if (opener->count == OPENER_AREAS)
        opener_end(opener);
    opener->areas[opener->count++] = area;
}

void opener_add(struct opener *opener, const struct extent *extent)
{
    if (extent->address)
        add(opener,
            (struct opener_area){.address = extent->address, .bytes = extent->bytes, .extent = extent});
    for (const struct mapping *mapping = mapping_at(extent->program.mappings); mapping;
         mapping = mapping_at(mapping->next))
        add(opener,
            (struct opener_area){
                .address = mapping->address, .bytes = mapping->bytes, .extent = extent, .mapping = mapping});
}
