#include "intercept/memory/engine/swap/swap_answers.h"

#include <string.h>

#include "intercept/memory/charge.h"
#include "intercept/memory/engine/engine.h"
#include "intercept/memory/engine/swap/extents/resident.h"
#include "intercept/memory/engine/swap/ipc/swap_ipc.h"
#include "intercept/memory/engine/swap/pools/swap_pool_find.h"
#include "intercept/memory/engine/swap/program/mappings.h"
#include "intercept/resolve/guard.h"

/* Asked about this address, the driver answers as for an address in our extents at which nothing is allocated. */
#define NOBODYS ((CUdeviceptr)1)

/* IDs, which no other memory of the process ever has. The driver counts up from small numbers, so its own are never
 * among ours. Not addresses: communication libraries take memory of the same ID at the same address for the same, and
 * would use what they know of memory that was freed (ucx, CU_POINTER_ATTRIBUTE_BUFFER_ID). */
enum id_of { ID_OF_EXTENT = 1, ID_OF_SMALL, ID_OF_POOLED, ID_OF_MAPPING, ID_OF_IMPORT };

static uint64_t id(enum id_of whose, uint64_t number)
{
    return UINT64_C(0x6773) << 48 | (uint64_t)whose << 44 | number;
}

/* What is at an address, on the card or not. */
struct place {
    uint64_t base, bytes;
    uint64_t context; /* 0: memory of a pool, and what the program mapped itself, belongs to no context */
    uint64_t id;      /* id() of the allocation; 0: it is in `shared`, and gets one when that is asked for */
    uint64_t block;   /* ... of the physical memory, which allocations may share */
    struct extent *shared;
    CUdevice device;
    bool is_resident, is_mapping;
    bool is_synchronous;                    /* set to SYNC_MEMOPS */
    bool is_linear;                         /* from cuMemAlloc: legacy IPC can hand it out */
    bool is_for_rdma;                       /* for memory that is away */
    CUmemoryPool pool;                      /* NULL: it is not from a pool */
    CUmemAllocationHandleType handle_types; /* by which it may be handed out */
};

/* Find an allocation in our extents, or a mapping of the program. If there is none, returns false, and `*address` is
 * the address to ask the driver about. Under the lock. */
static bool find_under_lock(CUdeviceptr *address, struct place *place)
{
    struct record record;
    *place = (struct place){0};
    bool has_record =
        records_find_around(memory_records(), *address, &record) && record.kind == RECORD_POINTER;
    struct extents *extents = &swap_state()->extents;
    struct extent *found = extents_find(extents, *address);
    const struct extent *first = found ? extents_first_piece(extents, found) : NULL;
    if (found && has_record)
        *place = (struct place){.base = record.key,
                                .bytes = record.charged.bytes,
                                .context = record.charged.context,
                                .device = found->device,
                                .is_resident = extent_is_on_card(found),
                                .is_for_rdma = extents_are_for_rdma(found->device),
                                .id = found->is_shared ? 0 : id(ID_OF_EXTENT, first->number),
                                .shared = found->is_shared ? found : NULL,
                                .block = id(ID_OF_EXTENT, first->number),
                                .is_synchronous = record.flags & RECORD_SYNCHRONOUS,
                                .is_linear = true};
    struct pool_place pools;
    bool is_pools = found && found->pool && swap_pool_find(*address, &pools);
    if (is_pools)
        *place = (struct place){.base = pools.base,
                                .bytes = pools.bytes,
                                .device = found->device,
                                .is_resident = extent_is_on_card(found),
                                .id = id(ID_OF_POOLED, pools.number),
                                .block = id(ID_OF_EXTENT, found->number),
                                .pool = pools.pool};
    const struct mapping *mapping = found ? NULL : mapping_look_up(*address);
    if (mapping)
        *place = (struct place){
            .base = mapping->address,
            .bytes = mapping->bytes,
            .device = mapping_extent(mapping)->device,
            .is_resident = extent_is_on_card(mapping_extent(mapping)),
            .is_mapping = true,
            .id = id(ID_OF_MAPPING, mapping->number),
            .block = id(ID_OF_EXTENT, mapping_extent(mapping)->number),
            .is_for_rdma = mapping_extent(mapping)->program.properties.allocFlags.gpuDirectRDMACapable,
            .handle_types = mapping_extent(mapping)->program.properties.requestedHandleTypes};
    struct ipc_place opened;
    bool is_opened = !found && !mapping && swap_ipc_find(*address, &opened);
    if (is_opened)
        *place = (struct place){.base = opened.base,
                                .bytes = opened.bytes,
                                .context = (uint64_t)(uintptr_t)opened.context,
                                .device = opened.device,
                                .id = id(ID_OF_IMPORT, opened.number),
                                .block = id(ID_OF_IMPORT, opened.number),
                                .is_resident = true};
    if (found && !has_record && !is_pools)
        *address = NOBODYS;
    return (found && has_record) || is_pools || mapping || is_opened;
}

static bool find(CUdeviceptr *address, struct place *place)
{
    *place = (struct place){0};
    if (!charge_has_any())
        return false;
    guard_lock(&swap_state()->lock);
    bool is_found = find_under_lock(address, place);
    guard_unlock(&swap_state()->lock);
    return is_found;
}

bool swap_has_physical_memory(CUdeviceptr address)
{
    guard_lock(&swap_state()->lock);
    bool is_ours = extents_find(&swap_state()->extents, address) != NULL;
    guard_unlock(&swap_state()->lock);
    return is_ours;
}

CUresult swap_address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct place place;
    CUdevice current;
    if (!find(&address, &place))
        return engine_plain.address_range(base, bytes, address);
    CUresult result = real(cuCtxGetDevice)(&current); /* like the driver, only in a living context */
    if (result != CUDA_SUCCESS)
        return result;
    if (base)
        *base = place.base;
    if (bytes)
        *bytes = place.bytes;
    return CUDA_SUCCESS;
}

/* Under the lock. Set the attribute's value, and return how many bytes it has; 0: ask the driver, which knows better, or refuses. */
static size_t attribute(CUpointer_attribute which, CUdeviceptr address, const struct place *place,
                        uint64_t *value)
{
    *value = 0;
    switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *value = place->context;
        return place->context ? 8 : 0;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *value = (uint64_t)(uintptr_t)place->pool;
        return place->pool ? 8 : 0;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *value = CU_MEMORYTYPE_DEVICE;
        return 4;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *value = address;
        return 8;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *value = (uint64_t)place->device;
        return 4;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *value = place->base;
        return 8;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *value = place->bytes;
        return 8;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *value = place->shared ? id(ID_OF_SMALL, extent_number_small(place->shared, place->base)) : place->id;
        return 8;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *value = place->block;
        return 8;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *value = 1;
        return 4;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *value = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return 4;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return 4;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *value = place->is_linear;
        return 4;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *value = place->is_for_rdma;
        return place->is_resident ? 0 : 4;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *value = place->is_synchronous;
        return place->is_resident && !place->is_linear ? 0 : 4;
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return place->is_resident ? 0 : 4;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *value = place->handle_types;
        return 8;
    default:
        return 0;
    }
}

/* The lock is held until the driver has answered, so that what is on the card stays there. */
CUresult swap_pointer_attribute(void *value, CUpointer_attribute which, CUdeviceptr address)
{
    struct place place;
    uint64_t word;
    CUresult result = CUDA_SUCCESS;
    if (!value || !charge_has_any())
        return engine_plain.pointer_attribute(value, which, address);
    guard_lock(&swap_state()->lock);
    size_t bytes = find_under_lock(&address, &place) ? attribute(which, address, &place, &word) : 0;
    if (!bytes)
        result = engine_plain.pointer_attribute(value, which, address);
    guard_unlock(&swap_state()->lock);
    memcpy(value, &word, bytes); /* the low bytes: both processors that we support are little-endian */
    return result;
}

/* The driver answers first, since it checks the arguments. It does not know an evicted address, and answers as for
 * 0. */
CUresult swap_pointer_attributes(unsigned count, CUpointer_attribute *which, void **values,
                                 CUdeviceptr address)
{
    struct place place;
    CUdeviceptr asked = address;
    if (!charge_has_any())
        return engine_plain.pointer_attributes(count, which, values, address);
    guard_lock(&swap_state()->lock);
    bool is_ours = find_under_lock(&asked, &place);
    CUresult result = engine_plain.pointer_attributes(count, which, values, asked);
    for (unsigned i = 0; is_ours && result == CUDA_SUCCESS && i < count; i++) {
        uint64_t word;
        size_t bytes = attribute(which[i], address, &place, &word);
        memcpy(values[i], &word, bytes);
    }
    guard_unlock(&swap_state()->lock);
    return result;
}
