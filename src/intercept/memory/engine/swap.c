#include "intercept/memory/engine/swap.h"

#include <string.h>

#include "base/check.h"
#include "intercept/memory/charge.h"

_Static_assert(sizeof(struct swap) <= MEMORY_ENGINE_BYTES, "it has room in the memory area");

static struct swap *state(void)
{
    return (struct swap *)(void *)memory_area()->engine;
}

void swap_choose(void)
{
    if (strcmp(session_settings()->oversubscribe, "swap") == 0)
        atomic_store_explicit(&engine_in_use, &engine_swap, memory_order_relaxed);
}

/* --- Physical memory ------------------------------------------------------------------------------- */

static const uint64_t granularity_bytes = UINT64_C(2)
                                          << 20; /* of device memory on all cards so far (measure) */

static CUresult make_resident(struct extent *extent)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, extent->device}};
    const CUmemAccessDesc access = {.location = properties.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = real(cuMemCreate)(&extent->handle, extent->bytes, &properties, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = real(cuMemMap)(extent->address, extent->bytes, 0, extent->handle, 0);
    if (result == CUDA_SUCCESS) {
        result = real(cuMemSetAccess)(extent->address, extent->bytes, &access, 1);
        if (result == CUDA_SUCCESS)
            extent->is_resident = true;
        else
            real(cuMemUnmap)(extent->address, extent->bytes);
    }
    if (result != CUDA_SUCCESS)
        real(cuMemRelease)(extent->handle);
    return result;
}

static CUresult leave_card(struct extent *extent)
{
    CUresult result = real(cuMemUnmap)(extent->address, extent->bytes);
    if (result != CUDA_SUCCESS)
        return result;
    real(cuMemRelease)(extent->handle);
    extent->is_resident = false;
    return CUDA_SUCCESS;
}

/* --- Extents --------------------------------------------------------------------------------------- */

static struct extent *make_extent(CUcontext context, CUdevice device, uint64_t bytes, bool is_shared,
                                  CUresult *result)
{
    struct extent made = {.context = context, .device = device, .is_shared = is_shared};
    CUdeviceptr address;
    made.bytes = (bytes + granularity_bytes - 1) & ~(granularity_bytes - 1);
    *result = CUDA_ERROR_OUT_OF_MEMORY;
    if (made.bytes < bytes)
        return NULL;
    *result = real(cuMemAddressReserve)(&address, made.bytes, 0, 0, 0);
    if (*result != CUDA_SUCCESS)
        return NULL;
    made.address = address;
    if (!state()->is_evicted)
        *result = make_resident(&made);
    struct extent *extent = *result == CUDA_SUCCESS ? extents_add(&state()->extents, &made) : NULL;
    if (extent)
        return extent;
    if (*result == CUDA_SUCCESS)
        *result = CUDA_ERROR_OUT_OF_MEMORY; /* of the host, or more extents than we keep */
    if (made.is_resident)
        leave_card(&made);
    real(cuMemAddressFree)(address, made.bytes);
    return NULL;
}

static CUresult end_extent(struct extent *extent)
{
    CUresult result = extent->is_resident ? leave_card(extent) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    real(cuMemAddressFree)(extent->address, extent->bytes);
    extents_remove(&state()->extents, extent);
    return CUDA_SUCCESS;
}

/* Room in a shared extent of the context; 0 with `*result` where there is none. */
static uint64_t take_small(CUcontext context, CUdevice device, uint64_t bytes, CUresult *result)
{
    struct extents *extents = &state()->extents;
    uint64_t address = 0;
    for (struct extent *extent = extents_next(extents, NULL); extent && !address;
         extent = extents_next(extents, extent))
        if (extent->is_shared && extent->context == context)
            address = extent_take(extent, bytes);
    if (address)
        return address;
    struct extent *extent = make_extent(context, device, EXTENT_SHARED_BYTES, true, result);
    return extent ? extent_take(extent, bytes) : 0;
}

/* Under the lock. */
static CUresult take(CUcontext context, uint64_t bytes, CUdeviceptr *address)
{
    CUdevice device;
    CUresult result = real(cuCtxGetDevice)(&device);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t taken;
    if (bytes <= EXTENT_SHARED_BYTES / 2) {
        taken = take_small(context, device, bytes, &result);
    } else {
        struct extent *extent = make_extent(context, device, bytes, false, &result);
        taken = extent ? extent->address : 0;
    }
    if (taken)
        *address = taken;
    return taken ? CUDA_SUCCESS : result;
}

/* --- Allocating and freeing ------------------------------------------------------------------------ */

#define PITCH_BYTES 512u /* what rows are multiples of, on all cards so far (measure) */

/* The pitch that the driver would choose: that of one row. On a card that is full it is not asked. */
static CUresult choose_pitch(const struct allocation *wanted)
{
    CUdeviceptr row;
    size_t width = wanted->pitched.width;
    CUresult result =
        real(cuMemAllocPitch_v2)(&row, wanted->pitched.pitch, width, 1, wanted->pitched.element_bytes);
    if (result == CUDA_SUCCESS)
        return real(cuMemFree_v2)(row);
    if (result != CUDA_ERROR_OUT_OF_MEMORY || width > SIZE_MAX - PITCH_BYTES)
        return result;
    *wanted->pitched.pitch = (width + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES;
    return CUDA_SUCCESS;
}

static CUresult swap_allocate(const struct allocation *wanted, CUcontext context)
{
    uint64_t bytes = wanted->bytes;
    bool is_pitched = wanted->way == WAY_cuMemAllocPitch_v2;
    if (wanted->way != WAY_cuMemAlloc_v2 && !is_pitched)
        return plain_allocate(wanted);
    CUresult result = is_pitched ? choose_pitch(wanted) : charge_capture_forbids();
    if (result == CUDA_SUCCESS && is_pitched &&
        __builtin_mul_overflow((uint64_t)*wanted->pitched.pitch, wanted->pitched.height, &bytes))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&state()->lock);
    result = take(context, bytes, wanted->got);
    pthread_mutex_unlock(&state()->lock);
    return result;
}

static CUresult synchronize(CUcontext context)
{
    struct own_calls calls;
    if (!own_calls_begin(&calls, context))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = real(cuCtxSynchronize)();
    own_calls_end(&calls);
    return result;
}

/* The driver's own free waits for the work that may use the memory, and refuses in some captures. So does the free of
 * something else in the same context; on a card that has no room even for that, the context is waited for. */
static CUresult wait_as_free_does(CUcontext context)
{
    CUdeviceptr other;
    if (!own_calls_push(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = real(cuMemAlloc_v2)(&other, 1);
    if (result == CUDA_SUCCESS)
        result = real(cuMemFree_v2)(other);
    own_calls_pop();
    return result == CUDA_ERROR_OUT_OF_MEMORY ? synchronize(context) : result;
}

/* A free in stream order waits for that stream. */
static CUresult wait_for_stream(enum release_way way, CUstream stream)
{
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    CUresult result = way == RELEASE_cuMemFreeAsync_ptsz ? real(cuStreamSynchronize_ptsz)(stream)
                                                         : real(cuStreamSynchronize)(stream);
    own_calls_end(&calls);
    return result;
}

/* Whether the context has another shared extent that is empty. */
static bool has_spare(const struct extent *but)
{
    struct extents *extents = &state()->extents;
    for (struct extent *extent = extents_next(extents, NULL); extent; extent = extents_next(extents, extent))
        if (extent != but && extent->is_shared && extent->context == but->context && extent_is_empty(extent))
            return true;
    return false;
}

/* One empty extent is kept: programs that free what is small allocate it again. */
static CUresult give_back(struct extent *extent, uint64_t address)
{
    if (!extent->is_shared)
        return end_extent(extent);
    extent_give_back(extent, address);
    if (extent_is_empty(extent) && has_spare(extent))
        end_extent(extent); /* one that the driver keeps is used again */
    return CUDA_SUCCESS;
}

static CUresult swap_release(enum release_way way, uint64_t key, CUstream stream)
{
    if (release_rows[way].record != RECORD_POINTER)
        return plain_release(way, key, stream);
    pthread_mutex_lock(&state()->lock);
    struct extent *extent = extents_find(&state()->extents, key);
    bool is_ours = extent && extent_has(extent, key);
    bool is_resident = is_ours && extent->is_resident;
    CUcontext context = is_ours ? extent->context : NULL;
    pthread_mutex_unlock(&state()->lock);
    if (!is_ours)
        return plain_release(way, key, stream);
    CUdevice current;
    CUresult result = real(cuCtxGetDevice)(&current); /* as the driver: only in a context that lives */
    if (result == CUDA_SUCCESS && is_resident)
        result = way == RELEASE_cuMemFree_v2 ? wait_as_free_does(context) : wait_for_stream(way, stream);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&state()->lock);
    extent = extents_find(&state()->extents, key);
    result = extent ? give_back(extent, key) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&state()->lock);
    return result;
}

static void swap_forget_context(CUcontext context)
{
    struct extents *extents = &state()->extents;
    pthread_mutex_lock(&state()->lock);
    for (struct extent *extent = extents_next(extents, NULL); extent; extent = extents_next(extents, extent))
        if (extent->context == context)
            end_extent(extent);
    pthread_mutex_unlock(&state()->lock);
}

/* --- What the program asks about addresses --------------------------------------------------------- */

/* The record of an allocation in our extents. */
static bool find(CUdeviceptr address, struct record *record, struct extent *extent)
{
    if (!charge_has_any() || !records_find_around(memory_records(), address, record) ||
        record->kind != RECORD_POINTER)
        return false;
    pthread_mutex_lock(&state()->lock);
    const struct extent *found = extents_find(&state()->extents, address);
    if (found)
        *extent = *found;
    pthread_mutex_unlock(&state()->lock);
    return found != NULL;
}

static bool swap_has_physical_memory(CUdeviceptr address)
{
    pthread_mutex_lock(&state()->lock);
    bool is_ours = extents_find(&state()->extents, address) != NULL;
    pthread_mutex_unlock(&state()->lock);
    return is_ours;
}

static CUresult swap_address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct record record;
    struct extent extent;
    if (!find(address, &record, &extent))
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

/* How many bytes the attribute has, and which; 0: what the driver says of the extent holds. */
static size_t attribute(CUpointer_attribute which, CUdeviceptr address, const struct record *record,
                        const struct extent *extent, uint64_t *value)
{
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
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *value = 0;
        return 4;
    default:
        return 0;
    }
}

static CUresult swap_pointer_attribute(void *value, CUpointer_attribute which, CUdeviceptr address)
{
    struct record record;
    struct extent extent;
    uint64_t word;
    size_t bytes =
        value && find(address, &record, &extent) ? attribute(which, address, &record, &extent, &word) : 0;
    if (!bytes)
        return engine_plain.pointer_attribute(value, which, address);
    memcpy(value, &word, bytes); /* the low bytes: both of our processors are little-endian */
    return CUDA_SUCCESS;
}

/* The driver answers first: it checks the arguments. An evicted address it does not know, and answers that for 0. */
static CUresult swap_pointer_attributes(unsigned count, CUpointer_attribute *which, void **values,
                                        CUdeviceptr address)
{
    struct record record;
    struct extent extent;
    CUresult result = engine_plain.pointer_attributes(count, which, values, address);
    if (result != CUDA_SUCCESS || !find(address, &record, &extent))
        return result;
    for (unsigned i = 0; i < count; i++) {
        uint64_t word;
        size_t bytes = attribute(which[i], address, &record, &extent, &word);
        memcpy(values[i], &word, bytes);
    }
    return result;
}

/* --- Moving ---------------------------------------------------------------------------------------- */

/* Copy between an extent and its place in the arena, in the extent's context. */
static CUresult copy(struct extent *extent, bool to_arena)
{
    struct own_calls calls;
    void *place = state()->arena.base + extent->arena_offset;
    if (!own_calls_begin(&calls, extent->context))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = to_arena ? real(cuMemcpyDtoH_v2)(place, extent->address, extent->bytes)
                               : real(cuMemcpyHtoD_v2)(extent->address, place, extent->bytes);
    own_calls_end(&calls);
    return result;
}

/* Give each extent its place in the arena, and have memory there. Those that are kept empty go. */
static bool make_room(struct swap *swap)
{
    uint64_t bytes = 0;
    for (struct extent *extent = extents_next(&swap->extents, NULL); extent;
         extent = extents_next(&swap->extents, extent))
        if (extent->is_shared && extent_is_empty(extent))
            end_extent(extent);
    for (struct extent *extent = extents_next(&swap->extents, NULL); extent;
         extent = extents_next(&swap->extents, extent)) {
        extent->arena_offset = bytes;
        bytes += extent->bytes;
    }
    return arena_grow(&swap->arena, bytes);
}

/* Physical memory for all that has none, before anything is copied. What is made here `is_returning`. */
static CUresult make_all_resident(struct swap *swap)
{
    CUresult result = CUDA_SUCCESS;
    for (struct extent *extent = extents_next(&swap->extents, NULL); extent && result == CUDA_SUCCESS;
         extent = extents_next(&swap->extents, extent)) {
        extent->is_returning = !extent->is_resident;
        if (extent->is_returning)
            result = make_resident(extent);
    }
    return result;
}

static CUresult copy_back(struct swap *swap)
{
    CUresult result = CUDA_SUCCESS;
    for (struct extent *extent = extents_next(&swap->extents, NULL); extent && result == CUDA_SUCCESS;
         extent = extents_next(&swap->extents, extent))
        if (extent->has_copy)
            result = copy(extent, false);
    return result;
}

/* What was returning is on the card, and needs its copy no more; or it leaves again, and its copy holds. */
static void end_return(struct swap *swap, bool is_back)
{
    for (struct extent *extent = extents_next(&swap->extents, NULL); extent;
         extent = extents_next(&swap->extents, extent)) {
        if (is_back)
            extent->has_copy = false;
        else if (extent->is_returning && extent->is_resident)
            leave_card(extent);
        extent->is_returning = false;
    }
    swap->is_evicted = !is_back;
}

static CUresult restore(struct swap *swap)
{
    CUresult result = make_all_resident(swap);
    if (result == CUDA_SUCCESS)
        result = copy_back(swap);
    end_return(swap, result == CUDA_SUCCESS);
    return result;
}

/* Where physical memory cannot be given back half-way, what has gone returns. If even that fails, the process is evicted
 * with what has gone in the arena, and the rest comes through the next restore where it is. */
static CUresult evict(struct swap *swap)
{
    CUresult result = make_room(swap) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    struct extent *extent = NULL;
    while (result == CUDA_SUCCESS && (extent = extents_next(&swap->extents, extent)))
        result = copy(extent, true);
    if (result != CUDA_SUCCESS)
        return result; /* all is on the card still */
    while (result == CUDA_SUCCESS && (extent = extents_next(&swap->extents, extent))) {
        result = leave_card(extent);
        extent->has_copy = result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS)
        swap->is_evicted = true;
    else
        restore(swap);
    return result;
}

CUresult swap_evict(void)
{
    struct swap *swap = state();
    pthread_mutex_lock(&swap->lock);
    CUresult result = swap->is_evicted ? CUDA_SUCCESS : evict(swap);
    pthread_mutex_unlock(&swap->lock);
    return result;
}

CUresult swap_restore(void)
{
    struct swap *swap = state();
    pthread_mutex_lock(&swap->lock);
    CUresult result = swap->is_evicted ? restore(swap) : CUDA_SUCCESS;
    pthread_mutex_unlock(&swap->lock);
    return result;
}

struct swap_bytes swap_bytes(void)
{
    struct swap *swap = state();
    struct swap_bytes bytes = {0};
    pthread_mutex_lock(&swap->lock);
    for (struct extent *extent = extents_next(&swap->extents, NULL); extent;
         extent = extents_next(&swap->extents, extent))
        *(extent->is_resident ? &bytes.resident_bytes : &bytes.evicted_bytes) += extent->bytes;
    pthread_mutex_unlock(&swap->lock);
    return bytes;
}

const struct engine engine_swap = {
    .uses_ranges = true,
    .allocate = swap_allocate,
    .release = swap_release,
    .forget_context = swap_forget_context,
    .has_physical_memory = swap_has_physical_memory,
    .address_range = swap_address_range,
    .pointer_attribute = swap_pointer_attribute,
    .pointer_attributes = swap_pointer_attributes,
};
