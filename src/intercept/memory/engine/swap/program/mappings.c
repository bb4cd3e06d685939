#include "intercept/memory/engine/swap/program/mappings.h"

#include "intercept/resolve/real.h"

#define MAPPINGS_MAX 131072u

static struct program *program(void)
{
    return &swap_state()->program;
}

static uint32_t index_of(const struct mapping *mapping)
{
    return (uint32_t)(mapping - program()->table);
}

struct mapping *mapping_at(uint32_t number)
{
    return number ? &program()->table[number - 1] : NULL;
}

static struct mapping *first_mapping(const struct extent *extent)
{
    return mapping_at(extent->program.mappings);
}

struct mapping *mapping_find(uint64_t address)
{
    struct range range;
    return ranges_find(&program()->by_address, address, &range) ? mapping_at(range.kind + 1) : NULL;
}

bool mapping_touches(uint64_t address, uint64_t bytes)
{
    struct range next;
    return mapping_find(address) ||
           (ranges_next(&program()->by_address, address, &next) && next.begin - address < bytes);
}

struct extent *mapping_extent(const struct mapping *mapping)
{
    return &swap_state()->extents.table[mapping->extent];
}

const struct mapping *mapping_look_up(uint64_t address)
{
    return program()->table ? mapping_find(address) : NULL;
}

bool mapping_add(struct extent *extent, uint64_t address, uint64_t bytes)
{
    struct program *all = program();
    if (!all->table && !(all->table = extents_make_table(MAPPINGS_MAX * sizeof(struct mapping))))
        return false;
    if (!all->spare && all->end == MAPPINGS_MAX)
        return false;
    struct mapping *mapping = all->spare ? mapping_at(all->spare) : &all->table[all->end];
    uint32_t next_spare = all->spare ? mapping->next : 0;
    if (!ranges_put(&all->by_address, (struct range){address, bytes, index_of(mapping)}))
        return false;
    if (!all->spare)
        all->end++;
    all->spare = next_spare;
    *mapping = (struct mapping){.address = address,
                                .bytes = bytes,
                                .number = ++all->mapped,
                                .extent = (uint32_t)(extent - swap_state()->extents.table),
                                .next = extent->program.mappings};
    if (mapping->next)
        mapping_at(mapping->next)->previous = index_of(mapping) + 1;
    extent->program.mappings = index_of(mapping) + 1;
    return true;
}

struct extent *mapping_drop(struct mapping *mapping)
{
    struct program *all = program();
    struct extent *extent = mapping_extent(mapping);
    struct mapping *previous = mapping_at(mapping->previous), *next = mapping_at(mapping->next);
    *(previous ? &previous->next : &extent->program.mappings) = mapping->next;
    if (next)
        next->previous = mapping->previous;
    ranges_remove(&all->by_address, mapping->address, index_of(mapping));
    mapping->next = all->spare;
    all->spare = index_of(mapping) + 1;
    return extent;
}

bool mapping_is_whole(uint64_t address, uint64_t bytes)
{
    for (uint64_t at = address; at < address + bytes;) {
        const struct mapping *mapping = mapping_find(at);
        if (!mapping || mapping->address != at || mapping->bytes > address + bytes - at)
            return false;
        at += mapping->bytes;
    }
    return bytes > 0;
}

/* --- Who may reach mappings ------------------------------------------------------------------------ */

static bool is_same(CUmemLocation one, CUmemLocation other)
{
    return one.type == other.type && one.id == other.id;
}

const CUmemAccessDesc *mapping_access(const struct mapping *mapping, CUmemLocation location)
{
    for (uint32_t i = 0; i < mapping->access_count; i++)
        if (is_same(mapping->access[i].location, location))
            return &mapping->access[i];
    return NULL;
}

static void remember_access(struct mapping *mapping, const CUmemAccessDesc *access)
{
    const CUmemAccessDesc *known = mapping_access(mapping, access->location);
    if (known)
        mapping->access[known - mapping->access] = *access;
    else if (mapping->access_count < ACCESS_MAX)
        mapping->access[mapping->access_count++] = *access;
}

void mapping_remember_access(uint64_t address, uint64_t bytes, const CUmemAccessDesc *access, size_t count)
{
    struct range range = {.begin = address};
    while (ranges_next(&program()->by_address, range.begin, &range) && range.begin - address < bytes) {
        for (size_t i = 0; i < count; i++)
            remember_access(mapping_at(range.kind + 1), &access[i]);
        range.begin += range.bytes;
    }
}

/* --- Moving ---------------------------------------------------------------------------------------- */

static CUresult map_one(const struct extent *extent, const struct mapping *mapping)
{
    return real(cuMemMap)(mapping->address, mapping->bytes, 0, extent->handle, 0);
}

static void map_again(const struct extent *extent, const struct mapping *mapping)
{
    if (map_one(extent, mapping) == CUDA_SUCCESS && mapping->access_count)
        real(cuMemSetAccess)(mapping->address, mapping->bytes, mapping->access, mapping->access_count);
}

CUresult mapping_map_all(struct extent *extent)
{
    CUresult result = CUDA_SUCCESS;
    const struct mapping *mapping = first_mapping(extent), *failed;
    while (mapping && (result = map_one(extent, mapping)) == CUDA_SUCCESS)
        mapping = mapping_at(mapping->next);
    failed = mapping;
    for (mapping = first_mapping(extent); failed && mapping != failed; mapping = mapping_at(mapping->next))
        real(cuMemUnmap)(mapping->address, mapping->bytes);
    return result;
}

CUresult mapping_unmap_all(struct extent *extent)
{
    CUresult result = CUDA_SUCCESS;
    const struct mapping *mapping = first_mapping(extent), *failed;
    while (mapping && (result = real(cuMemUnmap)(mapping->address, mapping->bytes)) == CUDA_SUCCESS)
        mapping = mapping_at(mapping->next);
    failed = mapping;
    for (mapping = first_mapping(extent); failed && mapping != failed; mapping = mapping_at(mapping->next))
        map_again(extent, mapping);
    return result;
}

CUresult mapping_open(struct extent *extent)
{
    const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, extent->device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address;
    for (const struct mapping *mapping = first_mapping(extent); mapping;
         mapping = mapping_at(mapping->next)) {
        const CUmemAccessDesc *own = mapping_access(mapping, access.location);
        if (mapping->bytes == extent->bytes && own && own->flags == access.flags) {
            extent->program.window = mapping->address;
            return CUDA_SUCCESS;
        }
    }
    CUresult result = real(cuMemAddressReserve)(&address, extent->bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = real(cuMemMap)(address, extent->bytes, 0, extent->handle, 0);
    if (result == CUDA_SUCCESS) {
        extent->program.window = address;
        extent->program.has_own_window = true;
        result = real(cuMemSetAccess)(address, extent->bytes, &access, 1);
    } else {
        real(cuMemAddressFree)(address, extent->bytes);
    }
    if (result != CUDA_SUCCESS)
        mapping_close(extent);
    return result;
}

void mapping_close(struct extent *extent)
{
    if (extent->program.has_own_window) {
        real(cuMemUnmap)(extent->program.window, extent->bytes);
        real(cuMemAddressFree)(extent->program.window, extent->bytes);
    }
    extent->program.has_own_window = false;
    extent->program.window = 0;
}
