#include "intercept/memory/engine/swap/program/swap_program.h"

#include <string.h>
#include <time.h>

#include "base/check.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/engine/swap/extents/resident.h"
#include "intercept/memory/engine/swap/pools/swap_pool_find.h"
#include "intercept/memory/engine/swap/program/mappings.h"
#include "intercept/resolve/guard.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/synchronous.h"

/* Not a handle. The driver gets it in place of one of our handles that is not valid any more, and answers for it. */
#define NO_HANDLE ((CUmemGenericAllocationHandle)0)
#define HANDLE_TYPES_THAT_MOVE                                                                               \
    (unsigned)(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC)
/* A handle: a tag in the upper 16 bits, how many were made before it, and the index in the table. */
#define HANDLE_TAG UINT64_C(0x6773)
#define HANDLE_COUNT_MASK ((UINT64_C(1) << (48 - EXTENTS_BITS)) - 1)

/* A forked child that has no area yet has none of our memory either. */
static bool has_area(void)
{
    return memory_area_if_any() != NULL;
}

static struct program *program(void)
{
    return &swap_state()->program;
}

/* --- Handles --------------------------------------------------------------------------------------- */

bool program_is_handle(CUmemGenericAllocationHandle handle)
{
    return handle >> 48 == HANDLE_TAG;
}

static struct extent *extent_of_handle(CUmemGenericAllocationHandle handle)
{
    const struct extents *extents = &swap_state()->extents;
    uint32_t index = handle & (EXTENTS_MAX - 1);
    struct extent *extent = program_is_handle(handle) && index < extents->end ? &extents->table[index] : NULL;
    return extent && extent->is_used && extent->program.handle == handle ? extent : NULL;
}

static bool has_known_flags(const CUmemAllocationProp *properties)
{
    const unsigned char none[sizeof(properties->allocFlags.reserved)] = {0};
    return properties->allocFlags.compressionType <= CU_MEM_ALLOCATION_COMP_GENERIC &&
           properties->allocFlags.gpuDirectRDMACapable <= 1 &&
           !(properties->allocFlags.usage & ~CU_MEM_CREATE_USAGE_HW_DECOMPRESS) &&
           memcmp(properties->allocFlags.reserved, none, sizeof(none)) == 0;
}

/* Whether other physical memory of the same properties may take its place later. Memory that may be exported, or that
 * RDMA may reach, moves too: frameworks ask for both and use them seldom, and the memory is pinned when they do. Memory for
 * sparse arrays, and with flags that we do not know, does not move. */
bool program_can_move(const struct allocation *wanted)
{
    const CUmemAllocationProp *properties = wanted->physical.properties;
    return !swap_is_pinned() && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !wanted->physical.flags &&
           !properties->win32HandleMetaData && has_known_flags(properties) &&
           !((unsigned)properties->requestedHandleTypes & ~HANDLE_TYPES_THAT_MOVE);
}

/* --- What the driver makes -------------------------------------------------------------------------- */

static bool was_accepted(const CUmemAllocationProp *properties)
{
    const struct program *all = program();
    for (uint64_t i = 0; i < ACCEPTED_MAX && i < all->accepted_count; i++)
        if (memcmp(&all->accepted[i], properties, sizeof(*properties)) == 0)
            return true;
    return false;
}

static void remember_accepted(const CUmemAllocationProp *properties)
{
    struct program *all = program();
    if (!was_accepted(properties))
        all->accepted[all->accepted_count++ % ACCEPTED_MAX] = *properties;
}

/* Whether the driver would make such memory, without making it. Else it would refuse when the memory is to come back:
 * fabric handles need rights, for example. What it has made once it makes again. OUT_OF_MEMORY: the card has no room
 * to find out. */
static CUresult check_create(const CUmemAllocationProp *properties, uint64_t bytes)
{
    CUmemGenericAllocationHandle handle;
    size_t granularity = SWAP_GRANULARITY_BYTES;
    CUresult result = CUDA_SUCCESS;
    if (real(cuMemGetAllocationGranularity))
        result =
            real(cuMemGetAllocationGranularity)(&granularity, properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result != CUDA_SUCCESS || bytes % granularity || bytes % SWAP_GRANULARITY_BYTES)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    if (was_accepted(properties))
        return CUDA_SUCCESS;
    result = real(cuMemCreate)(&handle, granularity, properties, 0);
    if (result != CUDA_SUCCESS)
        return result;
    real(cuMemRelease)(handle);
    remember_accepted(properties);
    return CUDA_SUCCESS;
}

/* The driver says whether the memory is compressed, as was wished (cuda.h 13.0, CUmemAllocationProp). */
static void note_compression(struct extent *made)
{
    CUmemAllocationProp told;
    unsigned char *wished = &made->program.properties.allocFlags.compressionType;
    if (*wished && real(cuMemGetAllocationPropertiesFromHandle) &&
        real(cuMemGetAllocationPropertiesFromHandle)(&told, made->handle) == CUDA_SUCCESS)
        *wished = told.allocFlags.compressionType;
}

static CUresult create(const struct allocation *wanted, CUmemGenericAllocationHandle *handle)
{
    struct swap *swap = swap_state();
    struct extent made = {.bytes = wanted->bytes, .device = wanted->device};
    made.program.properties = *wanted->physical.properties;
    made.program.references = 1;
    bool is_made = !atomic_load_explicit(&swap->is_evicted, memory_order_relaxed);
    made.residence = is_made ? EXTENT_HERE : EXTENT_AWAY;
    CUresult result = is_made ? real(cuMemCreate)(&made.handle, made.bytes, &made.program.properties, 0)
                              : check_create(&made.program.properties, made.bytes);
    if (result != CUDA_SUCCESS)
        return result;
    if (is_made) {
        remember_accepted(&made.program.properties);
        note_compression(&made);
    }
    struct extent *extent = extents_add(&swap->extents, &made);
    if (!extent) {
        if (is_made)
            real(cuMemRelease)(made.handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint64_t index = (uint64_t)(extent - swap->extents.table);
    uint64_t count = ++swap->program.made_count & HANDLE_COUNT_MASK;
    extent->program.handle = HANDLE_TAG << 48 | count << EXTENTS_BITS | index;
    extent_count(extent, true);
    *handle = extent->program.handle;
    return CUDA_SUCCESS;
}

CUresult program_create(const struct allocation *wanted)
{
    guard_lock(&swap_state()->lock);
    CUresult result = create(wanted, wanted->got);
    guard_unlock(&swap_state()->lock);
    return result;
}

/* End the extent if neither a handle nor a mapping of the program leads there any more. */
static void end_if_unused(struct extent *extent)
{
    if (extent->program.references || extent->program.mappings)
        return;
    extent_count(extent, false);
    if (extent_is_on_card(extent))
        real(cuMemRelease)(extent->handle);
    extent_give_up_place(extent);
    extents_remove(&swap_state()->extents, extent);
}

CUresult program_release(CUmemGenericAllocationHandle handle)
{
    guard_lock(&swap_state()->lock);
    struct extent *extent = extent_of_handle(handle);
    bool is_held = extent && extent->program.references;
    if (is_held) {
        extent->program.references--;
        end_if_unused(extent);
    }
    guard_unlock(&swap_state()->lock);
    return is_held ? CUDA_SUCCESS : real(cuMemRelease)(NO_HANDLE);
}

/* --- What the program calls ------------------------------------------------------------------------ */

static bool is_evicted(void)
{
    return atomic_load_explicit(&swap_state()->is_evicted, memory_order_relaxed);
}

static CUresult program_reserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                                unsigned long long flags)
{
    CUresult result = real(cuMemAddressReserve)(address, bytes, alignment, wanted, flags);
    if (result == CUDA_SUCCESS && has_area())
        ranges_put(&program()->reserved, (struct range){*address, bytes, 0});
    return result;
}

static CUresult program_free_addresses(CUdeviceptr address, size_t bytes)
{
    if (!has_area())
        return real(cuMemAddressFree)(address, bytes);
    guard_lock(&swap_state()->lock);
    bool is_in_use = is_evicted() && address && bytes && mapping_touches(address, bytes);
    CUresult result = is_in_use ? CUDA_ERROR_INVALID_VALUE : real(cuMemAddressFree)(address, bytes);
    if (result == CUDA_SUCCESS)
        ranges_remove(&program()->reserved, address, 0);
    guard_unlock(&swap_state()->lock);
    return result;
}

static bool touches_others(uint64_t address, uint64_t bytes)
{
    struct range range;
    return ranges_find(&program()->others, address, &range) ||
           (ranges_next(&program()->others, address, &range) && range.begin - address < bytes);
}

static void drop_others(uint64_t address, uint64_t bytes)
{
    struct range range;
    while (ranges_next(&program()->others, address, &range) && range.begin - address < bytes)
        ranges_remove(&program()->others, range.begin, range.kind);
}

/* Answer as the driver would, for memory that is away. */
static CUresult check_map(const struct extent *extent, uint64_t address, uint64_t bytes, size_t offset,
                          unsigned long long flags)
{
    struct range reserved;
    struct record record;
    bool is_good = bytes && address % SWAP_GRANULARITY_BYTES == 0 && bytes % SWAP_GRANULARITY_BYTES == 0 &&
                   !offset && !flags && bytes <= extent->bytes &&
                   ranges_find(&program()->reserved, address, &reserved) &&
                   bytes <= reserved.bytes - (address - reserved.begin) && !mapping_touches(address, bytes) &&
                   !touches_others(address, bytes) &&
                   !records_find_between(memory_records(), address, address + bytes, &record);
    return is_good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Addresses of memory that is away still belong to the program. The driver knows nothing of them, so we refuse to map
 * anything else there: the memory could not come back. */
static bool is_mapped_away(uint64_t address, uint64_t bytes)
{
    return is_evicted() && bytes && mapping_touches(address, bytes);
}

static CUresult map_ours(CUdeviceptr address, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct extent *extent = extent_of_handle(handle);
    if (!extent || !extent->program.references)
        return real(cuMemMap)(address, bytes, offset, NO_HANDLE, flags);
    if (is_mapped_away(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = extent_is_on_card(extent)
                          ? real(cuMemMap)(address, bytes, offset, extent->handle, flags)
                          : check_map(extent, address, bytes, offset, flags);
    if (result != CUDA_SUCCESS || mapping_add(extent, address, bytes))
        return result;
    if (extent_is_on_card(extent))
        real(cuMemUnmap)(address, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Map memory that does not move. Under the lock too: if other memory left the card between the check and the call,
 * the driver would accept its addresses for this. */
static CUresult map_other(CUdeviceptr address, size_t bytes, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    if (is_mapped_away(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = real(cuMemMap)(address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS)
        ranges_put(&program()->others, (struct range){address, bytes, 0});
    return result;
}

static CUresult program_map(CUdeviceptr address, size_t bytes, size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    if (!has_area())
        return real(cuMemMap)(address, bytes, offset, handle, flags);
    guard_lock(&swap_state()->lock);
    CUresult result = program_is_handle(handle) ? map_ours(address, bytes, offset, handle, flags)
                                                : map_other(address, bytes, offset, handle, flags);
    guard_unlock(&swap_state()->lock);
    return result;
}

static void drop_mappings(uint64_t address, uint64_t bytes)
{
    struct range range;
    while (ranges_next(&program()->by_address, address, &range) && range.begin - address < bytes)
        end_if_unused(mapping_drop(mapping_at(range.kind + 1)));
}

/* Unmap memory while the process is evicted. What is pinned is on the card all the same. */
static CUresult unmap_evicted(uint64_t address, uint64_t bytes)
{
    CUresult result = CUDA_SUCCESS;
    if (!mapping_is_whole(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    for (uint64_t at = address; at < address + bytes && result == CUDA_SUCCESS;) {
        struct mapping *mapping = mapping_find(at);
        at += mapping->bytes;
        if (extent_is_on_card(mapping_extent(mapping)))
            result = real(cuMemUnmap)(mapping->address, mapping->bytes);
        if (result == CUDA_SUCCESS)
            end_if_unused(mapping_drop(mapping));
    }
    return result;
}

static CUresult program_unmap(CUdeviceptr address, size_t bytes)
{
    if (!has_area())
        return real(cuMemUnmap)(address, bytes);
    guard_lock(&swap_state()->lock);
    CUresult result;
    if (is_evicted() && mapping_find(address)) {
        result = unmap_evicted(address, bytes);
    } else {
        result = real(cuMemUnmap)(address, bytes);
        if (result == CUDA_SUCCESS)
            drop_mappings(address, bytes);
    }
    if (result == CUDA_SUCCESS)
        drop_others(address, bytes);
    guard_unlock(&swap_state()->lock);
    return result;
}

static CUresult check_access(const CUmemAccessDesc *access)
{
    int value;
    if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && access->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    return access->location.type == CU_MEM_LOCATION_TYPE_DEVICE
               ? real(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, access->location.id)
               : CUDA_SUCCESS;
}

/* Refuse a device that cannot reach the memory now: the driver would refuse it only when the memory comes back. */
static CUresult check_reach(CUdevice device, const CUmemAccessDesc *access, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int can = 1;
        if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && access[i].location.id != device &&
            (real(cuDeviceCanAccessPeer)(&can, access[i].location.id, device) != CUDA_SUCCESS || !can))
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

static CUresult set_access_evicted(uint64_t address, uint64_t bytes, const CUmemAccessDesc *access,
                                   size_t count)
{
    CUresult result =
        access && count && mapping_is_whole(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = check_access(&access[i]);
    for (uint64_t at = address; at < address + bytes && result == CUDA_SUCCESS;) {
        const struct mapping *mapping = mapping_find(at);
        result = check_reach(mapping_extent(mapping)->device, access, count);
        if (result == CUDA_SUCCESS && extent_is_on_card(mapping_extent(mapping)))
            result = real(cuMemSetAccess)(at, mapping->bytes, access, count);
        at += mapping->bytes;
    }
    return result;
}

static CUresult program_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                                   size_t count)
{
    if (!has_area())
        return real(cuMemSetAccess)(address, bytes, access, count);
    guard_lock(&swap_state()->lock);
    CUresult result = is_evicted() && mapping_find(address)
                          ? set_access_evicted(address, bytes, access, count)
                          : real(cuMemSetAccess)(address, bytes, access, count);
    if (result == CUDA_SUCCESS)
        mapping_remember_access(address, bytes, access, count);
    guard_unlock(&swap_state()->lock);
    return result;
}

static CUresult program_get_access(unsigned long long *flags, const CUmemLocation *location,
                                   CUdeviceptr address)
{
    if (!has_area() || !flags || !location)
        return real(cuMemGetAccess)(flags, location, address);
    guard_lock(&swap_state()->lock);
    const struct mapping *mapping = mapping_find(address);
    CUresult result = CUDA_SUCCESS;
    if (mapping && !extent_is_on_card(mapping_extent(mapping))) {
        const CUmemAccessDesc *access = mapping_access(mapping, *location);
        result = check_access(&(CUmemAccessDesc){.location = *location});
        if (result == CUDA_SUCCESS)
            *flags = access ? access->flags : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    } else {
        result = real(cuMemGetAccess)(flags, location, address);
    }
    guard_unlock(&swap_state()->lock);
    return result;
}

static CUresult program_retain(CUmemGenericAllocationHandle *handle, void *address)
{
    if (!has_area() || !handle)
        return real(cuMemRetainAllocationHandle)(handle, address);
    guard_lock(&swap_state()->lock);
    const struct mapping *mapping = mapping_find((uint64_t)(uintptr_t)address);
    CUresult result = CUDA_SUCCESS;
    if (mapping) {
        mapping_extent(mapping)->program.references++;
        *handle = mapping_extent(mapping)->program.handle;
    } else {
        result = real(cuMemRetainAllocationHandle)(handle, address);
    }
    guard_unlock(&swap_state()->lock);
    return result;
}

static CUresult program_properties(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)
{
    if (!program_is_handle(handle))
        return real(cuMemGetAllocationPropertiesFromHandle)(properties, handle);
    guard_lock(&swap_state()->lock);
    const struct extent *extent = extent_of_handle(handle);
    bool is_known = properties && extent;
    if (is_known)
        *properties = extent->program.properties;
    guard_unlock(&swap_state()->lock);
    return is_known ? CUDA_SUCCESS : real(cuMemGetAllocationPropertiesFromHandle)(properties, NO_HANDLE);
}

/* --- What stays on the card ------------------------------------------------------------------------ */

void program_lock_when_back(void)
{
    const struct timespec while_it_returns = {.tv_nsec = 1000000};
    for (guard_lock(&swap_state()->lock); is_evicted(); guard_lock(&swap_state()->lock)) {
        struct gate *gate = gate_of();
        guard_unlock(&swap_state()->lock);
        if (gate && gate_names_begin(gate, __builtin_return_address(0)))
            gate_names_end();
        nanosleep(&while_it_returns, NULL);
    }
}

CUmemGenericAllocationHandle program_drivers_handle(CUmemGenericAllocationHandle handle)
{
    const struct extent *extent = extent_of_handle(handle);
    return extent && extent->program.references ? extent->handle : handle;
}

static CUresult program_export(void *shareable, CUmemGenericAllocationHandle handle,
                               CUmemAllocationHandleType type, unsigned long long flags)
{
    if (!program_is_handle(handle))
        return real(cuMemExportToShareableHandle)(shareable, handle, type, flags);
    program_lock_when_back();
    struct extent *extent = extent_of_handle(handle);
    bool is_held = extent && extent->program.references;
    CUresult result =
        real(cuMemExportToShareableHandle)(shareable, is_held ? extent->handle : NO_HANDLE, type, flags);
    if (is_held && result == CUDA_SUCCESS)
        extent_pin(extent, WIRE_STAYS_EXPORTED);
    guard_unlock(&swap_state()->lock);
    return result;
}

static CUresult program_pin(CUmemGenericAllocationHandle *handle, enum wire_stays why)
{
    if (!program_is_handle(*handle))
        return CUDA_SUCCESS;
    program_lock_when_back();
    struct extent *extent = extent_of_handle(*handle);
    bool is_held = extent && extent->program.references;
    if (is_held) {
        extent_pin(extent, why);
        *handle = extent->handle;
    } else {
        *handle = NO_HANDLE;
    }
    guard_unlock(&swap_state()->lock);
    return CUDA_SUCCESS;
}

static void program_unpin(CUmemGenericAllocationHandle handle, enum wire_stays why)
{
    if (!program_is_handle(handle))
        return;
    guard_lock(&swap_state()->lock);
    struct extent *extent = extent_of_handle(handle);
    if (extent)
        extent_unpin(extent, why);
    guard_unlock(&swap_state()->lock);
}

static bool is_ours(uint64_t address, uint64_t bytes)
{
    guard_lock(&swap_state()->lock);
    bool found = mapping_touches(address, bytes) || extents_find(&swap_state()->extents, address);
    guard_unlock(&swap_state()->lock);
    return found;
}

/* Under the lock: the whole allocation around an address, of which extents may be only pieces. */
static struct range allocation_around(uint64_t address)
{
    struct extents *extents = &swap_state()->extents;
    struct pool_place place;
    struct extent *extent = extents_find(extents, address);
    if (extent && !extent->pool)
        return (struct range){.begin = extent_all_address(extent), .bytes = extent_all_bytes(extent)};
    if (extent && swap_pool_find(address, &place))
        return (struct range){.begin = place.base, .bytes = place.bytes};
    return (struct range){.begin = address, .bytes = 1};
}

/* `change` is extent_pin() or extent_unpin(). */
static void change_all_in(uint64_t address, uint64_t bytes, enum wire_stays why,
                          void (*change)(struct extent *, enum wire_stays))
{
    struct range range;
    for (uint64_t at = address; at - address < bytes;) {
        const struct mapping *mapping = mapping_find(at);
        struct extent *extent = mapping ? mapping_extent(mapping) : extents_find(&swap_state()->extents, at);
        if (extent)
            change(extent, why);
        uint64_t next = at;
        if (mapping)
            next = mapping->address + mapping->bytes;
        else if (extent)
            next = extent->address + extent->bytes;
        else if (ranges_next(&program()->by_address, at, &range))
            next = range.begin;
        if (next == at)
            break;
        at = next;
    }
}

/* Under the lock. Whoever reaches a part of an allocation may be given the rest without another call, so all of it is
 * pinned. */
static void change_allocations(CUdeviceptr address, size_t bytes, enum wire_stays why,
                               void (*change)(struct extent *, enum wire_stays))
{
    struct range first = allocation_around(address), last = allocation_around(address + bytes - 1);
    change_all_in(first.begin, last.begin + last.bytes - first.begin, why, change);
}

static bool has_ours(CUdeviceptr address, size_t bytes)
{
    return has_area() && address && bytes && address + bytes >= address && is_ours(address, bytes);
}

static void program_pin_range(CUdeviceptr address, size_t bytes, enum wire_stays why)
{
    if (!has_ours(address, bytes))
        return;
    program_lock_when_back();
    change_allocations(address, bytes, why, extent_pin);
    guard_unlock(&swap_state()->lock);
}

static void program_unpin_range(CUdeviceptr address, size_t bytes, enum wire_stays why)
{
    if (!has_ours(address, bytes))
        return;
    guard_lock(&swap_state()->lock);
    change_allocations(address, bytes, why, extent_unpin);
    guard_unlock(&swap_state()->lock);
}

/* For memory of cuMemAlloc, which is ours: the driver would refuse. False: it is to be asked. */
static bool set_synchronous(const void *value, CUdeviceptr address)
{
    unsigned is_on;
    struct record record;
    if (!value || !extents_find(&swap_state()->extents, address) ||
        !records_find_around(memory_records(), address, &record) || record.kind != RECORD_POINTER)
        return false;
    memcpy(&is_on, value, sizeof(is_on));
    if (!records_set_flags(memory_records(), RECORD_POINTER, record.key, RECORD_SYNCHRONOUS, is_on != 0))
        return false;
    if (is_on)
        synchronous_begin();
    return true;
}

/* Set the attribute for each piece, since the driver does not know that they belong together. */
static CUresult program_set_attribute(const void *value, CUpointer_attribute which, CUdeviceptr address)
{
    if (!has_area())
        return real(cuPointerSetAttribute)(value, which, address);
    guard_lock(&swap_state()->lock);
    if (which == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && set_synchronous(value, address)) {
        guard_unlock(&swap_state()->lock);
        return CUDA_SUCCESS;
    }
    struct range all = allocation_around(address);
    CUresult result = real(cuPointerSetAttribute)(value, which, address);
    struct extent *piece;
    for (uint64_t at = all.begin; result == CUDA_SUCCESS && at < all.begin + all.bytes &&
                                  (piece = extents_find(&swap_state()->extents, at));
         at = piece->address + piece->bytes)
        if (address - piece->address >= piece->bytes)
            result = real(cuPointerSetAttribute)(value, which, at);
    guard_unlock(&swap_state()->lock);
    return result;
}

const struct engine_vmm program_vmm = {
    .reserve = program_reserve,
    .free_addresses = program_free_addresses,
    .map = program_map,
    .unmap = program_unmap,
    .set_access = program_set_access,
    .get_access = program_get_access,
    .retain = program_retain,
    .properties = program_properties,
    .moves = program_is_handle,
    .export = program_export,
    .pin = program_pin,
    .pin_range = program_pin_range,
    .unpin = program_unpin,
    .unpin_range = program_unpin_range,
    .set_attribute = program_set_attribute,
};
