#include "intercept/memory/engine/resident.h"

#include "intercept/memory/engine/descriptors.h"
#include "intercept/memory/engine/mappings.h"
#include "intercept/resolve/real.h"

/* What a device may do with an extent that is another one's: of a pool, what cuMemPoolSetAccess has said. */
static unsigned access_of_peer(const struct extent *extent, int peer)
{
    if (extent->pool)
        return swap_state()->pools.table[extent->pool - 1].access[peer];
    return swap_state()->open_to[extent->device] >> peer & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : 0;
}

CUresult extent_open_to_peers(const struct extent *extent)
{
    CUresult result = CUDA_SUCCESS;
    for (int peer = 0; peer < (int)LEDGER_GPUS && result == CUDA_SUCCESS; peer++) {
        const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, peer},
                                        .flags = (CUmemAccess_flags)access_of_peer(extent, peer)};
        if (access.flags && peer != extent->device)
            result = real(cuMemSetAccess)(extent->address, extent->bytes, &access, 1);
    }
    return result;
}

static CUresult map_and_open(const struct extent *extent)
{
    const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, extent->device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = real(cuMemMap)(extent->address, extent->bytes, 0, extent->handle, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = real(cuMemSetAccess)(extent->address, extent->bytes, &access, 1);
    if (result == CUDA_SUCCESS && (extent->pool || swap_state()->open_to[extent->device]))
        result = extent_open_to_peers(extent);
    if (result != CUDA_SUCCESS)
        real(cuMemUnmap)(extent->address, extent->bytes);
    return result;
}

CUresult extent_make_resident(struct extent *extent)
{
    CUmemAllocationProp ours = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, extent->device}};
    const CUmemAllocationProp *properties = extent->address ? &ours : &extent->program.properties;
    CUresult result = real(cuMemCreate)(&extent->handle, extent->bytes, properties, 0);
    if (extent->address && result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY) {
        ours.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE; /* where no memory can be handed out */
        result = real(cuMemCreate)(&extent->handle, extent->bytes, &ours, 0);
    }
    if (result != CUDA_SUCCESS)
        return result;
    result = extent->address ? map_and_open(extent) : mapping_map_all(extent);
    if (result != CUDA_SUCCESS) {
        real(cuMemRelease)(extent->handle);
        return result;
    }
    extent->is_resident = true;
    return CUDA_SUCCESS;
}

CUresult extent_leave_card(struct extent *extent)
{
    CUresult result =
        extent->address ? real(cuMemUnmap)(extent->address, extent->bytes) : mapping_unmap_all(extent);
    if (result != CUDA_SUCCESS)
        return result;
    real(cuMemRelease)(extent->handle);
    extent->is_resident = false;
    return CUDA_SUCCESS;
}

void extent_count(const struct extent *extent, bool is_there)
{
    _Atomic uint64_t *sum =
        extent->is_resident ? &swap_state()->resident_bytes : &swap_state()->evicted_bytes;
    if (extent->is_pinned)
        sum = &swap_state()->pinned_bytes;
    uint64_t bytes = atomic_load_explicit(sum, memory_order_relaxed);
    atomic_store_explicit(sum, is_there ? bytes + extent->bytes : bytes - extent->bytes,
                          memory_order_relaxed);
}

void extent_give_up_place(struct extent *extent)
{
    if (extent->has_place)
        arena_give_back(&swap_state()->arena, extent->place, extent->bytes);
    extent->has_place = extent->has_copy = extent->has_digest = false;
}

void extent_pin(struct extent *extent)
{
    extent_count(extent, false);
    extent->is_pinned = true;
    extent_count(extent, true);
    if (extent->is_resident)
        extent_give_up_place(extent);
}

/* Enter an extent, on the card or not. */
static struct extent *enter(struct extent *made, CUresult *result)
{
    *result = swap_state()->is_evicted ? CUDA_SUCCESS : extent_make_resident(made);
    if (*result != CUDA_SUCCESS)
        return NULL;
    struct extent *extent = extents_add(&swap_state()->extents, made);
    if (extent) {
        extent_count(extent, true);
        swap_state()->empty_count += made->is_shared;
        return extent;
    }
    *result = CUDA_ERROR_OUT_OF_MEMORY; /* of the host, or more extents than we keep */
    if (made->is_resident)
        extent_leave_card(made);
    return NULL;
}

struct extent *extent_make(CUcontext context, CUdevice device, uint64_t bytes, bool is_shared,
                           CUresult *result)
{
    struct extent made = {.context = context, .device = device, .is_shared = is_shared};
    CUdeviceptr address;
    made.bytes = (bytes + SWAP_GRANULARITY_BYTES - 1) & ~(SWAP_GRANULARITY_BYTES - 1);
    *result = CUDA_ERROR_OUT_OF_MEMORY;
    if (made.bytes < bytes)
        return NULL;
    *result = real(cuMemAddressReserve)(&address, made.bytes, 0, 0, 0);
    if (*result != CUDA_SUCCESS)
        return NULL;
    made.address = address;
    struct extent *extent = enter(&made, result);
    if (!extent)
        real(cuMemAddressFree)(address, made.bytes);
    return extent;
}

struct extent *extent_make_at(CUdevice device, uint64_t address, uint64_t bytes, uint32_t pool,
                              CUresult *result)
{
    struct extent made = {.address = address, .bytes = bytes, .device = device, .pool = pool};
    return enter(&made, result);
}

CUresult extent_end(struct extent *extent)
{
    extent_count(extent, false);
    CUresult result = extent->is_resident ? extent_leave_card(extent) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        extent_count(extent, true);
        return result;
    }
    if (extent->is_handed_out)
        descriptors_remove(extent->handed_out_as);
    if (!extent->pool)
        real(cuMemAddressFree)(extent->address, extent->bytes);
    extent_give_up_place(extent);
    swap_state()->empty_count -= extent->is_shared && extent_is_empty(extent);
    extents_remove(&swap_state()->extents, extent);
    return CUDA_SUCCESS;
}
