/* swap_answers.c - what the program asks about addresses of the swap engine, on the card or not. */
#include <stddef.h>
#include <string.h>

#include "intercept/memory/charge.h"
#include "intercept/memory/engine/swap_parts.h"

/* An address of one of our extents, but of nothing that was allocated there: the driver is asked about this one. */
#define NOBODYS ((CUdeviceptr)1)

/* The record of an allocation in our extents. Else false, and the address that the driver can be asked about. */
static bool find(CUdeviceptr *address, struct record *record, struct extent *extent)
{
    if (!charge_has_any())
        return false;
    bool has_record =
        records_find_around(memory_records(), *address, record) && record->kind == RECORD_POINTER;
    pthread_mutex_lock(&swap_state()->lock);
    const struct extent *found = extents_find(&swap_state()->extents, *address);
    if (found)
        memcpy(extent, found, offsetof(struct extent, taken));
    pthread_mutex_unlock(&swap_state()->lock);
    if (found && !has_record)
        *address = NOBODYS;
    return found && has_record;
}

bool swap_has_physical_memory(CUdeviceptr address)
{
    pthread_mutex_lock(&swap_state()->lock);
    bool is_ours = extents_find(&swap_state()->extents, address) != NULL;
    pthread_mutex_unlock(&swap_state()->lock);
    return is_ours;
}

CUresult swap_address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct record record;
    struct extent extent;
    if (!find(&address, &record, &extent))
        return engine_plain.address_range(base, bytes, address);
    if (base)
        *base = record.key;
    if (bytes)
        *bytes = record.charged.bytes;
    return CUDA_SUCCESS;
}

/* A number of the allocation: of its extent's addresses and its place there. */
static uint64_t id_of(const struct record *record)
{
    return record->key;
}

/* How many bytes the attribute has, and which; 0: the driver knows better, or refuses. */
static size_t attribute(CUpointer_attribute which, CUdeviceptr address, const struct record *record,
                        const struct extent *extent, uint64_t *value)
{
    *value = 0;
    switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *value = record->charged.context;
        return 8;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *value = CU_MEMORYTYPE_DEVICE;
        return 4;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *value = address;
        return 8;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *value = (uint64_t)extent->device;
        return 4;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *value = record->key;
        return 8;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *value = record->charged.bytes;
        return 8;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *value = id_of(record);
        return 8;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *value = 1;
        return 4;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *value = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return 4;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return 4;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return extent->is_resident ? 0 : 4;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return 8;
    default:
        return 0;
    }
}

CUresult swap_pointer_attribute(void *value, CUpointer_attribute which, CUdeviceptr address)
{
    struct record record;
    struct extent extent;
    uint64_t word;
    size_t bytes =
        value && find(&address, &record, &extent) ? attribute(which, address, &record, &extent, &word) : 0;
    if (!bytes)
        return engine_plain.pointer_attribute(value, which, address);
    memcpy(value, &word, bytes); /* the low bytes: both of our processors are little-endian */
    return CUDA_SUCCESS;
}

/* The driver answers first: it checks the arguments. An evicted address it does not know, and answers that for 0. */
CUresult swap_pointer_attributes(unsigned count, CUpointer_attribute *which, void **values,
                                 CUdeviceptr address)
{
    struct record record;
    struct extent extent;
    CUdeviceptr asked = address;
    bool is_ours = find(&asked, &record, &extent);
    CUresult result = engine_plain.pointer_attributes(count, which, values, asked);
    for (unsigned i = 0; is_ours && result == CUDA_SUCCESS && i < count; i++) {
        uint64_t word;
        size_t bytes = attribute(which[i], address, &record, &extent, &word);
        memcpy(values[i], &word, bytes);
    }
    return result;
}
