/* hook_vmm.c - physical memory of its own, mapped where the program likes.
 *
 * allocation   what one cuMemCreate took: charged until the last of its handles and mappings goes
 *
 * Handles and mappings lead to their allocation by a number of ours: the driver may use a handle's value
 * again while the memory that it once named is still mapped. */
#include "intercept/memory/hooks/vmm.h"

#include "intercept/resolve/real.h"

static struct records *records(void)
{
    return &private_get()->records;
}

bool vmm_point_at(struct record record, uint64_t number, struct record *displaced)
{
    record.owner = number;
    record.references = 1;
    return records_put(records(), &record, displaced);
}

/* A handle or a mapping holds the allocation `number`. */
static bool point_at(enum record_kind kind, uint64_t key, uint64_t bytes, uint64_t number)
{
    struct record displaced;
    return vmm_point_at((struct record){.key = key, .bytes = bytes, .kind = (uint8_t)kind}, number,
                        &displaced);
}

void vmm_hold(uint64_t number)
{
    struct record allocation;
    records_count(records(), RECORD_ALLOCATION, number, 1, &allocation);
}

void vmm_let_go(uint64_t number)
{
    struct record allocation;
    if (!records_count(records(), RECORD_ALLOCATION, number, -1, &allocation) || allocation.references)
        return;
    charge_release_record(&allocation);
    if (allocation.flags & RECORD_MULTICAST)
        vmm_multicast_ended(number);
}

bool vmm_keep(const struct charge *charge, CUmemGenericAllocationHandle handle, unsigned flags, uint64_t name)
{
    uint64_t number = atomic_fetch_add_explicit(&private_get()->allocations, 1, memory_order_relaxed) + 1;
    struct record displaced;
    struct record record = {.key = number,
                            .bytes = charge->bytes,
                            .owner = name,
                            .references = 1,
                            .gpu = (uint8_t)charge->gpu,
                            .kind = RECORD_ALLOCATION,
                            .flags = (uint8_t)flags,
                            .share = charge->share};
    if (!records_put(records(), &record, &displaced))
        return false;
    if (point_at(RECORD_HANDLE, handle, 0, number))
        return true;
    struct record allocation;
    records_take(records(), RECORD_ALLOCATION, number, &allocation);
    return false;
}

uint64_t vmm_allocation_of(CUmemGenericAllocationHandle handle)
{
    struct record record;
    return records_find(records(), RECORD_HANDLE, handle, &record) ? record.owner : 0;
}

struct search {
    enum record_kind kind;
    bool (*match)(const struct record *, const void *);
    const void *argument;
    struct record found;
};

static void see(const struct record *record, void *argument)
{
    struct search *search = argument;
    if (record->kind == search->kind && search->match(record, search->argument))
        search->found = *record;
}

void vmm_let_go_all(enum record_kind kind, bool (*match)(const struct record *, const void *),
                    const void *argument)
{
    for (;;) {
        struct search search = {.kind = kind, .match = match, .argument = argument};
        records_each(records(), see, &search);
        if (search.found.kind == RECORD_FREE)
            return;
        if (records_take(records(), kind, search.found.key, &search.found))
            vmm_let_go(search.found.owner);
    }
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    struct charge charge;
    if (!real_ready() || !real(cuMemCreate))
        return real_absent();
    if (!handle || !bytes || !properties || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return real(cuMemCreate)(handle, bytes, properties, flags);
    switch (charge_take_device(&charge, properties->location.id, bytes)) {
    case CHARGE_PASS:
        return real(cuMemCreate)(handle, bytes, properties, flags);
    case CHARGE_REFUSED:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case CHARGE_TAKEN:
        break;
    }
    charge_enter();
    CUresult result = real(cuMemCreate)(handle, bytes, properties, flags);
    if (result == CUDA_SUCCESS && !vmm_keep(&charge, *handle, 0, 0)) {
        real(cuMemRelease)(*handle);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    charge_leave();
    if (result != CUDA_SUCCESS)
        charge_return(&charge);
    return result;
}

/* The record of the handle goes first, so that a cuMemCreate that gets the same value meanwhile never meets
 * it. */
CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct record record;
    if (!real_ready() || !real(cuMemRelease))
        return real_absent();
    if (!charge_holds() || !records_count(records(), RECORD_HANDLE, handle, -1, &record))
        return real(cuMemRelease)(handle);
    charge_enter();
    CUresult result = real(cuMemRelease)(handle);
    charge_leave();
    if (result == CUDA_SUCCESS) {
        vmm_let_go(record.owner);
    } else if (record.references == 0) {
        record.references = 1;
        records_restore(records(), &record);
    } else {
        records_count(records(), RECORD_HANDLE, handle, 1, &record);
    }
    return result;
}

bool vmm_charge_import(uint64_t number, uint64_t bytes)
{
    struct record allocation;
    if (!records_find(records(), RECORD_ALLOCATION, number, &allocation) ||
        !(allocation.flags & RECORD_IMPORTED) || bytes <= allocation.bytes)
        return true;
    uint8_t share = allocation.share;
    if (!charge_reserve_import(allocation.gpu, bytes, allocation.owner, &share)) {
        charge_say_refused(true, allocation.gpu, bytes - allocation.bytes);
        return false;
    }
    if (share) {
        if (!allocation.share &&
            !records_make_joint(records(), RECORD_ALLOCATION, number, allocation.bytes, share))
            ledger_joint_leave(session_slot(), share - 1u); /* another thread's mapping was entered first */
        records_grow(records(), RECORD_ALLOCATION, number, bytes);
        return true;
    }
    uint64_t growth = bytes - allocation.bytes;
    if (!charge_reserve(allocation.gpu, growth)) {
        charge_say_refused(true, allocation.gpu, growth);
        return false;
    }
    uint64_t grown = records_grow(records(), RECORD_ALLOCATION, number, bytes);
    charge_release(allocation.gpu, growth - grown); /* another thread's mapping was entered first */
    return true;
}

/* The mapping holds the allocation before the driver makes it, so that another thread may release the handle
 * at any moment. */
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    struct record record;
    if (!real_ready() || !real(cuMemMap))
        return real_absent();
    if (!charge_holds() || !records_find(records(), RECORD_HANDLE, handle, &record))
        return real(cuMemMap)(address, bytes, offset, handle, flags);
    vmm_hold(record.owner);
    if (!vmm_charge_import(record.owner, bytes)) {
        vmm_let_go(record.owner);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    charge_enter();
    CUresult result = real(cuMemMap)(address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS && !point_at(RECORD_MAPPING, address, bytes, record.owner)) {
        real(cuMemUnmap)(address, bytes);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    charge_leave();
    if (result != CUDA_SUCCESS)
        vmm_let_go(record.owner);
    return result;
}

/* Take out the mappings that begin at `address` and follow each other, up to `end`. Returns where they end.
 */
static CUdeviceptr let_go_in_a_row(CUdeviceptr address, CUdeviceptr end)
{
    struct record mapping;
    while (address < end && records_take(records(), RECORD_MAPPING, address, &mapping)) {
        vmm_let_go(mapping.owner);
        address += mapping.bytes;
    }
    return address;
}

struct range {
    CUdeviceptr begin, end;
    uint64_t found; /* key of some mapping inside, or 0 */
};

static void see_mapping_inside(const struct record *record, void *argument)
{
    struct range *range = argument;
    if (record->kind == RECORD_MAPPING && record->key >= range->begin && record->key < range->end)
        range->found = record->key;
}

/* Addresses stay reserved across this call, so nobody can map anything there before it returns: records are
 * taken out when the driver is done. */
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    if (!real_ready() || !real(cuMemUnmap))
        return real_absent();
    charge_enter();
    CUresult result = real(cuMemUnmap)(address, bytes);
    charge_leave();
    if (result != CUDA_SUCCESS || !charge_holds())
        return result;
    struct range range = {.end = address + bytes};
    range.begin = let_go_in_a_row(address, range.end);
    /* Gaps are mappings that we did not see made; beyond the first, all that is left is looked for. */
    while (range.begin < range.end) {
        range.found = 0;
        records_each(records(), see_mapping_inside, &range);
        if (!range.found)
            break;
        let_go_in_a_row(range.found, range.end);
    }
    return result;
}

struct holder {
    CUdeviceptr address;
    uint64_t number;
};

static void see_mapping_around(const struct record *record, void *argument)
{
    struct holder *holder = argument;
    if (record->kind == RECORD_MAPPING && holder->address - record->key < record->bytes)
        holder->number = record->owner;
}

uint64_t vmm_allocation_at(CUdeviceptr address)
{
    struct record mapping;
    struct holder holder = {.address = address};
    if (records_find(records(), RECORD_MAPPING, address, &mapping))
        return mapping.owner;
    records_each(records(), see_mapping_around, &holder);
    return holder.number;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    struct record record;
    if (!real_ready() || !real(cuMemRetainAllocationHandle))
        return real_absent();
    charge_enter();
    CUresult result = real(cuMemRetainAllocationHandle)(handle, address);
    charge_leave();
    if (result != CUDA_SUCCESS || !charge_holds())
        return result;
    uint64_t number = vmm_allocation_at((CUdeviceptr)(uintptr_t)address);
    if (number) {
        vmm_hold(number);
        if (!records_count(records(), RECORD_HANDLE, *handle, 1, &record))
            point_at(RECORD_HANDLE, *handle, 0, number);
    }
    return result;
}
