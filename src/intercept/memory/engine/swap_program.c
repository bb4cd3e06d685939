#include "intercept/memory/engine/swap_program.h"

#include <string.h>
#include <time.h>

#include "base/check.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/engine/swap_parts.h"
#include "intercept/submit/gate.h"

#define MAPPINGS_MAX 131072u
/* A handle that is none: what the driver says to it, it says to one of ours that is none any more. */
#define NO_HANDLE ((CUmemGenericAllocationHandle)0)
#define HANDLE_TAG UINT64_C(0x6773) /* upper 16 bits; the lower ones: the index in the table */

/* A forked child has none yet, and then nothing of ours. */
static bool has_area(void)
{
    return memory_area_if_any() != NULL;
}

static struct program *program(void)
{
    return &swap_state()->program;
}

/* --- Mappings -------------------------------------------------------------------------------------- */

static uint32_t index_of(const struct mapping *mapping)
{
    return (uint32_t)(mapping - program()->table);
}

/* From an index + 1. */
static struct mapping *mapping_at(uint32_t number)
{
    return number ? &program()->table[number - 1] : NULL;
}

static struct mapping *first_mapping(const struct extent *extent)
{
    return mapping_at(extent->program.mappings);
}

/* The mapping around an address. */
static struct mapping *find_mapping(uint64_t address)
{
    struct range range;
    return ranges_find(&program()->by_address, address, &range) ? mapping_at(range.kind + 1) : NULL;
}

static bool touches_mapping(uint64_t address, uint64_t bytes)
{
    struct range next;
    return find_mapping(address) ||
           (ranges_next(&program()->by_address, address, &next) && next.begin - address < bytes);
}

static struct extent *extent_of(const struct mapping *mapping)
{
    return &swap_state()->extents.table[mapping->extent];
}

bool program_find(uint64_t address, uint64_t *base, uint64_t *bytes, CUdevice *device, bool *is_resident)
{
    const struct mapping *mapping = program()->table ? find_mapping(address) : NULL;
    if (!mapping)
        return false;
    *base = mapping->address;
    *bytes = mapping->bytes;
    *device = extent_of(mapping)->device;
    *is_resident = extent_of(mapping)->is_resident;
    return true;
}

static bool add_mapping(struct extent *extent, uint64_t address, uint64_t bytes)
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
                                .extent = (uint32_t)(extent - swap_state()->extents.table),
                                .next = extent->program.mappings};
    if (mapping->next)
        mapping_at(mapping->next)->previous = index_of(mapping) + 1;
    extent->program.mappings = index_of(mapping) + 1;
    return true;
}

/* Nothing of the program's leads there any more. */
static void end_if_unused(struct extent *extent)
{
    if (extent->program.references || extent->program.mappings)
        return;
    swap_count(extent, false);
    if (extent->is_resident)
        real(cuMemRelease)(extent->handle);
    swap_give_up_place(extent);
    extents_remove(&swap_state()->extents, extent);
}

static void drop_mapping(struct mapping *mapping)
{
    struct program *all = program();
    struct extent *extent = extent_of(mapping);
    struct mapping *previous = mapping_at(mapping->previous), *next = mapping_at(mapping->next);
    *(previous ? &previous->next : &extent->program.mappings) = mapping->next;
    if (next)
        next->previous = mapping->previous;
    ranges_remove(&all->by_address, mapping->address, index_of(mapping));
    mapping->next = all->spare;
    all->spare = index_of(mapping) + 1;
    end_if_unused(extent);
}

/* Whether [address, address + bytes) is made of whole mappings of ours. */
static bool is_whole(uint64_t address, uint64_t bytes)
{
    for (uint64_t at = address; at < address + bytes;) {
        const struct mapping *mapping = find_mapping(at);
        if (!mapping || mapping->address != at || mapping->bytes > address + bytes - at)
            return false;
        at += mapping->bytes;
    }
    return bytes > 0;
}

/* --- Who may reach them ---------------------------------------------------------------------------- */

static bool is_same(CUmemLocation one, CUmemLocation other)
{
    return one.type == other.type && one.id == other.id;
}

static const CUmemAccessDesc *find_access(const struct mapping *mapping, CUmemLocation location)
{
    for (uint32_t i = 0; i < mapping->access_count; i++)
        if (is_same(mapping->access[i].location, location))
            return &mapping->access[i];
    return NULL;
}

static void remember_access(struct mapping *mapping, const CUmemAccessDesc *access)
{
    const CUmemAccessDesc *known = find_access(mapping, access->location);
    if (known)
        mapping->access[known - mapping->access] = *access;
    else if (mapping->access_count < ACCESS_MAX)
        mapping->access[mapping->access_count++] = *access;
}

static void remember_all(uint64_t address, uint64_t bytes, const CUmemAccessDesc *access, size_t count)
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
    CUresult result = real(cuMemMap)(mapping->address, mapping->bytes, 0, extent->handle, 0);
    if (result != CUDA_SUCCESS || !mapping->access_count)
        return result;
    result = real(cuMemSetAccess)(mapping->address, mapping->bytes, mapping->access, mapping->access_count);
    if (result != CUDA_SUCCESS)
        real(cuMemUnmap)(mapping->address, mapping->bytes);
    return result;
}

CUresult program_map_all(struct extent *extent)
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

CUresult program_unmap_all(struct extent *extent)
{
    CUresult result = CUDA_SUCCESS;
    const struct mapping *mapping = first_mapping(extent), *failed;
    while (mapping && (result = real(cuMemUnmap)(mapping->address, mapping->bytes)) == CUDA_SUCCESS)
        mapping = mapping_at(mapping->next);
    failed = mapping;
    for (mapping = first_mapping(extent); failed && mapping != failed; mapping = mapping_at(mapping->next))
        map_one(extent, mapping);
    return result;
}

CUresult program_open(struct extent *extent)
{
    const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, extent->device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address;
    for (const struct mapping *mapping = first_mapping(extent); mapping;
         mapping = mapping_at(mapping->next)) {
        const CUmemAccessDesc *own = find_access(mapping, access.location);
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
        program_close(extent);
    return result;
}

void program_close(struct extent *extent)
{
    if (extent->program.has_own_window) {
        real(cuMemUnmap)(extent->program.window, extent->bytes);
        real(cuMemAddressFree)(extent->program.window, extent->bytes);
    }
    extent->program.has_own_window = false;
    extent->program.window = 0;
}

/* --- Handles --------------------------------------------------------------------------------------- */

bool program_is_handle(CUmemGenericAllocationHandle handle)
{
    return handle >> 48 == HANDLE_TAG;
}

static struct extent *extent_of_handle(CUmemGenericAllocationHandle handle)
{
    const struct extents *extents = &swap_state()->extents;
    uint32_t index = handle & 0xffff;
    struct extent *extent = program_is_handle(handle) && index < extents->end ? &extents->table[index] : NULL;
    return extent && extent->is_used && extent->program.handle == handle ? extent : NULL;
}

/* The physical memory can be another later. What RDMA may reach, sparse arrays and unknown flags stay as they are. */
bool program_can_move(const struct allocation *wanted)
{
    const CUmemAllocationProp *properties = wanted->physical.properties;
    return properties->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !wanted->physical.flags &&
           !properties->win32HandleMetaData && !properties->allocFlags.gpuDirectRDMACapable &&
           !properties->allocFlags.usage &&
           !((unsigned)properties->requestedHandleTypes &
             ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static CUresult create(const struct allocation *wanted, CUmemGenericAllocationHandle *handle)
{
    struct swap *swap = swap_state();
    struct extent made = {.bytes = wanted->bytes, .device = wanted->device};
    made.program.properties = *wanted->physical.properties;
    made.program.references = 1;
    if (atomic_load_explicit(&swap->is_evicted, memory_order_relaxed)) {
        if (wanted->bytes % SWAP_GRANULARITY_BYTES)
            return CUDA_ERROR_INVALID_VALUE;
    } else {
        CUresult result = real(cuMemCreate)(&made.handle, made.bytes, &made.program.properties, 0);
        if (result != CUDA_SUCCESS)
            return result;
        made.is_resident = true;
    }
    struct extent *extent = extents_add(&swap->extents, &made);
    if (!extent) {
        if (made.is_resident)
            real(cuMemRelease)(made.handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint64_t index = (uint64_t)(extent - swap->extents.table);
    extent->program.handle = HANDLE_TAG << 48 | (uint64_t)++swap->program.made_count << 16 | index;
    swap_count(extent, true);
    *handle = extent->program.handle;
    return CUDA_SUCCESS;
}

CUresult program_create(const struct allocation *wanted)
{
    pthread_mutex_lock(&swap_state()->lock);
    CUresult result = create(wanted, wanted->got);
    pthread_mutex_unlock(&swap_state()->lock);
    return result;
}

CUresult program_release(CUmemGenericAllocationHandle handle)
{
    pthread_mutex_lock(&swap_state()->lock);
    struct extent *extent = extent_of_handle(handle);
    bool is_held = extent && extent->program.references;
    if (is_held) {
        extent->program.references--;
        end_if_unused(extent);
    }
    pthread_mutex_unlock(&swap_state()->lock);
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
    pthread_mutex_lock(&swap_state()->lock);
    bool is_in_use = is_evicted() && address && bytes && touches_mapping(address, bytes);
    CUresult result = is_in_use ? CUDA_ERROR_INVALID_VALUE : real(cuMemAddressFree)(address, bytes);
    if (result == CUDA_SUCCESS)
        ranges_remove(&program()->reserved, address, 0);
    pthread_mutex_unlock(&swap_state()->lock);
    return result;
}

/* What the driver would answer, of memory that is away. */
static CUresult check_map(const struct extent *extent, uint64_t address, uint64_t bytes, size_t offset,
                          unsigned long long flags)
{
    struct range reserved;
    struct record record;
    bool is_good = bytes && address % SWAP_GRANULARITY_BYTES == 0 && bytes % SWAP_GRANULARITY_BYTES == 0 &&
                   !offset && !flags && bytes <= extent->bytes &&
                   ranges_find(&program()->reserved, address, &reserved) &&
                   bytes <= reserved.bytes - (address - reserved.begin) && !touches_mapping(address, bytes) &&
                   !records_find_between(memory_records(), address, address + bytes, &record);
    return is_good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult map_under_lock(CUdeviceptr address, size_t bytes, size_t offset,
                               CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct extent *extent = extent_of_handle(handle);
    if (!extent || !extent->program.references)
        return real(cuMemMap)(address, bytes, offset, NO_HANDLE, flags);
    CUresult result = extent->is_resident ? real(cuMemMap)(address, bytes, offset, extent->handle, flags)
                                          : check_map(extent, address, bytes, offset, flags);
    if (result != CUDA_SUCCESS || add_mapping(extent, address, bytes))
        return result;
    if (extent->is_resident)
        real(cuMemUnmap)(address, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult program_map(CUdeviceptr address, size_t bytes, size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    if (!program_is_handle(handle))
        return real(cuMemMap)(address, bytes, offset, handle, flags);
    pthread_mutex_lock(&swap_state()->lock);
    CUresult result = map_under_lock(address, bytes, offset, handle, flags);
    pthread_mutex_unlock(&swap_state()->lock);
    return result;
}

static void drop_mappings(uint64_t address, uint64_t bytes)
{
    struct range range;
    while (ranges_next(&program()->by_address, address, &range) && range.begin - address < bytes)
        drop_mapping(mapping_at(range.kind + 1));
}

/* Of memory that is away; what is pinned is not. */
static CUresult unmap_evicted(uint64_t address, uint64_t bytes)
{
    CUresult result = CUDA_SUCCESS;
    if (!is_whole(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    for (uint64_t at = address; at < address + bytes && result == CUDA_SUCCESS;) {
        struct mapping *mapping = find_mapping(at);
        at += mapping->bytes;
        if (extent_of(mapping)->is_resident)
            result = real(cuMemUnmap)(mapping->address, mapping->bytes);
        if (result == CUDA_SUCCESS)
            drop_mapping(mapping);
    }
    return result;
}

static CUresult program_unmap(CUdeviceptr address, size_t bytes)
{
    if (!has_area())
        return real(cuMemUnmap)(address, bytes);
    pthread_mutex_lock(&swap_state()->lock);
    CUresult result;
    if (is_evicted() && find_mapping(address)) {
        result = unmap_evicted(address, bytes);
    } else {
        result = real(cuMemUnmap)(address, bytes);
        if (result == CUDA_SUCCESS)
            drop_mappings(address, bytes);
    }
    pthread_mutex_unlock(&swap_state()->lock);
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

static CUresult set_access_evicted(uint64_t address, uint64_t bytes, const CUmemAccessDesc *access,
                                   size_t count)
{
    CUresult result = access && count && is_whole(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = check_access(&access[i]);
    for (uint64_t at = address; at < address + bytes && result == CUDA_SUCCESS;) {
        const struct mapping *mapping = find_mapping(at);
        if (extent_of(mapping)->is_resident)
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
    pthread_mutex_lock(&swap_state()->lock);
    CUresult result = is_evicted() && find_mapping(address)
                          ? set_access_evicted(address, bytes, access, count)
                          : real(cuMemSetAccess)(address, bytes, access, count);
    if (result == CUDA_SUCCESS)
        remember_all(address, bytes, access, count);
    pthread_mutex_unlock(&swap_state()->lock);
    return result;
}

static CUresult program_get_access(unsigned long long *flags, const CUmemLocation *location,
                                   CUdeviceptr address)
{
    if (!has_area() || !flags || !location)
        return real(cuMemGetAccess)(flags, location, address);
    pthread_mutex_lock(&swap_state()->lock);
    const struct mapping *mapping = find_mapping(address);
    CUresult result = CUDA_SUCCESS;
    if (mapping && !extent_of(mapping)->is_resident) {
        const CUmemAccessDesc *access = find_access(mapping, *location);
        result = check_access(&(CUmemAccessDesc){.location = *location});
        if (result == CUDA_SUCCESS)
            *flags = access ? access->flags : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    } else {
        result = real(cuMemGetAccess)(flags, location, address);
    }
    pthread_mutex_unlock(&swap_state()->lock);
    return result;
}

static CUresult program_retain(CUmemGenericAllocationHandle *handle, void *address)
{
    if (!has_area() || !handle)
        return real(cuMemRetainAllocationHandle)(handle, address);
    pthread_mutex_lock(&swap_state()->lock);
    const struct mapping *mapping = find_mapping((uint64_t)(uintptr_t)address);
    CUresult result = CUDA_SUCCESS;
    if (mapping) {
        extent_of(mapping)->program.references++;
        *handle = extent_of(mapping)->program.handle;
    } else {
        result = real(cuMemRetainAllocationHandle)(handle, address);
    }
    pthread_mutex_unlock(&swap_state()->lock);
    return result;
}

static CUresult program_properties(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)
{
    if (!program_is_handle(handle))
        return real(cuMemGetAllocationPropertiesFromHandle)(properties, handle);
    pthread_mutex_lock(&swap_state()->lock);
    const struct extent *extent = extent_of_handle(handle);
    bool is_known = properties && extent;
    if (is_known)
        *properties = extent->program.properties;
    pthread_mutex_unlock(&swap_state()->lock);
    return is_known ? CUDA_SUCCESS : real(cuMemGetAllocationPropertiesFromHandle)(properties, NO_HANDLE);
}

/* --- What stays on the card ------------------------------------------------------------------------ */

/* Take the lock while all is on the card: where it is not, wait at the gate until it is. */
static void lock_when_back(void)
{
    const struct timespec while_it_opens = {.tv_nsec = 1000000};
    for (pthread_mutex_lock(&swap_state()->lock); is_evicted(); pthread_mutex_lock(&swap_state()->lock)) {
        struct gate *gate = gate_of();
        CUcontext current = NULL;
        pthread_mutex_unlock(&swap_state()->lock);
        if (gate && real(cuCtxGetCurrent)(&current) == CUDA_SUCCESS && current) {
            gate_enter(gate, CU_STREAM_LEGACY);
            gate_leave(gate, CU_STREAM_LEGACY);
        }
        nanosleep(&while_it_opens, NULL);
    }
}

static void pin(struct extent *extent)
{
    swap_count(extent, false);
    extent->is_pinned = true;
    swap_count(extent, true);
}

static CUresult program_pin(CUmemGenericAllocationHandle *handle)
{
    if (!program_is_handle(*handle))
        return CUDA_SUCCESS;
    lock_when_back();
    struct extent *extent = extent_of_handle(*handle);
    bool is_held = extent && extent->program.references;
    if (is_held) {
        pin(extent);
        *handle = extent->handle;
    } else {
        *handle = NO_HANDLE;
    }
    pthread_mutex_unlock(&swap_state()->lock);
    return CUDA_SUCCESS;
}

static bool is_ours(uint64_t address, uint64_t bytes)
{
    pthread_mutex_lock(&swap_state()->lock);
    bool found = touches_mapping(address, bytes) || extents_find(&swap_state()->extents, address);
    pthread_mutex_unlock(&swap_state()->lock);
    return found;
}

static void program_pin_range(CUdeviceptr address, size_t bytes)
{
    struct range range;
    if (!has_area() || !address || !is_ours(address, bytes))
        return;
    lock_when_back();
    for (uint64_t at = address; at - address < bytes;) {
        const struct mapping *mapping = find_mapping(at);
        struct extent *extent = mapping ? extent_of(mapping) : extents_find(&swap_state()->extents, at);
        if (extent)
            pin(extent);
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
    pthread_mutex_unlock(&swap_state()->lock);
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
    .pin = program_pin,
    .pin_range = program_pin_range,
};
