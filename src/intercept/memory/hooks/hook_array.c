/* hook_array.c - arrays and mipmapped arrays, charged by what their elements take (cuda/array_size.h); a
 * sparse one, and one of deferred mapping, takes nothing itself: its parts hold what is mapped into them. */
#include "cuda/array_size.h"
#include "intercept/memory/hooks/vmm.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/gate.h"

#define SPARSE 0x40           /* CUDA_ARRAY3D_SPARSE */
#define DEFERRED_MAPPING 0x80 /* CUDA_ARRAY3D_DEFERRED_MAPPING */

static uint64_t size_of(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels)
{
    return descriptor->Flags & (SPARSE | DEFERRED_MAPPING) ? 0 : cuda_array_bytes(descriptor, levels);
}

static CUDA_ARRAY3D_DESCRIPTOR widen_2d(const CUDA_ARRAY_DESCRIPTOR *flat)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = flat->Width,
                                     .Height = flat->Height,
                                     .Format = flat->Format,
                                     .NumChannels = flat->NumChannels};
}

static CUDA_ARRAY3D_DESCRIPTOR widen_2d_v1(const CUDA_ARRAY_DESCRIPTOR_v1 *flat)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = flat->Width,
                                     .Height = flat->Height,
                                     .Format = flat->Format,
                                     .NumChannels = flat->NumChannels};
}

static CUDA_ARRAY3D_DESCRIPTOR widen_3d_v1(const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = descriptor->Width,
                                     .Height = descriptor->Height,
                                     .Depth = descriptor->Depth,
                                     .Format = descriptor->Format,
                                     .NumChannels = descriptor->NumChannels,
                                     .Flags = descriptor->Flags};
}

static CUDA_ARRAY3D_DESCRIPTOR as_it_is(const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    return *descriptor;
}

/* The forms differ in their descriptor and in what destroys the array. */
#define CREATES(symbol, parameters, arguments, widen, levels, destroy)                                       \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        struct charge charge;                                                                                \
        if (!real_ready() || !real(symbol) || !real(destroy))                                                \
            return real_absent();                                                                            \
        if (!array || !descriptor)                                                                           \
            return real(symbol) arguments;                                                                   \
        CUDA_ARRAY3D_DESCRIPTOR wide = widen(descriptor);                                                    \
        switch (charge_take_current(&charge, size_of(&wide, levels))) {                                      \
        case CHARGE_PASS:                                                                                    \
            return real(symbol) arguments;                                                                   \
        case CHARGE_REFUSED:                                                                                 \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                 \
        case CHARGE_TAKEN:                                                                                   \
            break;                                                                                           \
        }                                                                                                    \
        charge_enter();                                                                                      \
        CUresult result = real(symbol) arguments;                                                            \
        if (result == CUDA_SUCCESS && !charge_keep(&charge, RECORD_ARRAY, (uint64_t)(uintptr_t)*array)) {    \
            real(destroy)(*array);                                                                           \
            result = CUDA_ERROR_OUT_OF_MEMORY;                                                               \
        }                                                                                                    \
        charge_leave();                                                                                      \
        if (result != CUDA_SUCCESS)                                                                          \
            charge_return(&charge);                                                                          \
        return result;                                                                                       \
    }
CREATES(cuArrayCreate, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor), (array, descriptor),
        widen_2d_v1, 1, cuArrayDestroy)
CREATES(cuArrayCreate_v2, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR *descriptor), (array, descriptor),
        widen_2d, 1, cuArrayDestroy)
CREATES(cuArray3DCreate, (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor), (array, descriptor),
        widen_3d_v1, 1, cuArrayDestroy)
CREATES(cuArray3DCreate_v2, (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor), (array, descriptor),
        as_it_is, 1, cuArrayDestroy)
CREATES(cuMipmappedArrayCreate,
        (CUmipmappedArray * array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels),
        (array, descriptor, levels), as_it_is, levels, cuMipmappedArrayDestroy)

/* --- Parts of sparse arrays ------------------------------------------------------------------------ */

static uint64_t resource_of(const CUarrayMapInfo *info)
{
    return (uint64_t)(uintptr_t)info->resource.array; /* either member: a pointer */
}

/* A part is named by its place; two different parts of one array share a name once in 2^64. */
static uint64_t part_of(const CUarrayMapInfo *info)
{
    uint64_t words[9] = {resource_of(info), (uint64_t)info->subresourceType};
    unsigned count = 2;
    if (info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
        words[count++] = info->subresource.miptail.layer;
        words[count++] = info->subresource.miptail.offset;
    } else {
        words[count++] =
            (uint64_t)info->subresource.sparseLevel.level << 32 | info->subresource.sparseLevel.layer;
        words[count++] =
            (uint64_t)info->subresource.sparseLevel.offsetX << 32 | info->subresource.sparseLevel.offsetY;
        words[count++] = info->subresource.sparseLevel.offsetZ;
    }
    uint64_t hash = UINT64_C(0x9e3779b97f4a7c15);
    for (unsigned i = 0; i < count; i++) {
        hash = (hash ^ words[i]) * UINT64_C(0xff51afd7ed558ccd);
        hash ^= hash >> 32;
    }
    return hash;
}

static void leave_part(uint64_t part)
{
    struct record tile;
    if (records_take(&private_get()->records, RECORD_TILE, part, &tile))
        vmm_let_go(tile.owner);
}

#define TILE_BYTES UINT64_C(65536) /* CUDA programming guide: sparse CUDA arrays */

static uint64_t tiles_for(uint64_t extent, uint64_t tile)
{
    return tile ? (extent + tile - 1) / tile : extent;
}

/* What a part takes of the memory that is mapped there; 0 where the driver cannot tell. */
static uint64_t part_bytes(const CUarrayMapInfo *info)
{
    CUDA_ARRAY_SPARSE_PROPERTIES tile;
    CUDA_ARRAY_MEMORY_REQUIREMENTS whole;
    bool is_array = info->resourceType == CU_RESOURCE_TYPE_ARRAY;
    CUdevice device = (CUdevice)__builtin_ctz(info->deviceBitMask | 1u << 31);
    if (!real(cuArrayGetSparseProperties) || !real(cuMipmappedArrayGetSparseProperties))
        return 0;
    if ((is_array
             ? real(cuArrayGetSparseProperties)(&tile, info->resource.array)
             : real(cuMipmappedArrayGetSparseProperties)(&tile, info->resource.mipmap)) != CUDA_SUCCESS) {
        if (!real(cuArrayGetMemoryRequirements) || !real(cuMipmappedArrayGetMemoryRequirements))
            return 0;
        CUresult result =
            is_array ? real(cuArrayGetMemoryRequirements)(&whole, info->resource.array, device)
                     : real(cuMipmappedArrayGetMemoryRequirements)(&whole, info->resource.mipmap, device);
        return result == CUDA_SUCCESS ? whole.size : 0;
    }
    if (info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL)
        return info->subresource.miptail.size;
    return tiles_for(info->subresource.sparseLevel.extentWidth, tile.tileExtent.width) *
           tiles_for(info->subresource.sparseLevel.extentHeight, tile.tileExtent.height) *
           tiles_for(info->subresource.sparseLevel.extentDepth, tile.tileExtent.depth) * TILE_BYTES;
}

/* Before the driver maps: another session's memory is charged for what is mapped of it. */
static bool fits(const CUarrayMapInfo *infos, unsigned count)
{
    for (unsigned i = 0; infos && i < count; i++) {
        uint64_t number = infos[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP
                              ? vmm_allocation_of(infos[i].memHandle.memHandle)
                              : 0;
        struct record allocation;
        if (number && records_find(&private_get()->records, RECORD_ALLOCATION, number, &allocation) &&
            allocation.flags & RECORD_IMPORTED &&
            !vmm_charge_import(number, infos[i].offset + part_bytes(&infos[i])))
            return false;
    }
    return true;
}

/* The driver has taken the work: later parts hold what is mapped there, earlier ones let go. A part that is
 * unmapped in other pieces than it was mapped stays held until its array goes. */
static void follow(const CUarrayMapInfo *info)
{
    struct record displaced;
    uint64_t number;
    if (info->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP) {
        leave_part(part_of(info));
        return;
    }
    if (info->memOperationType != CU_MEM_OPERATION_TYPE_MAP ||
        !(number = vmm_allocation_of(info->memHandle.memHandle)))
        return;
    vmm_hold(number);
    struct record tile = {.key = part_of(info), .kind = RECORD_TILE, .bytes = resource_of(info)};
    if (!vmm_point_at(tile, number, &displaced)) {
        vmm_let_go(number);
        return;
    }
    if (displaced.kind != RECORD_FREE)
        vmm_let_go(displaced.owner);
    atomic_store_explicit(&private_get()->tiles_used, true, memory_order_relaxed);
}

#define MAPS(symbol, default_stream)                                                                         \
    CUresult symbol(CUarrayMapInfo *infos, unsigned int count, CUstream stream)                              \
    {                                                                                                        \
        if (!real_ready() || !real(symbol))                                                                  \
            return real_absent();                                                                            \
        CUstream to = stream ? stream : (default_stream);                                                    \
        struct gate *gate = gate_of();                                                                       \
        if (gate)                                                                                            \
            gate_enter(gate, to);                                                                            \
        CUresult result = charge_holds() && !fits(infos, count) ? CUDA_ERROR_OUT_OF_MEMORY                   \
                                                                : real(symbol)(infos, count, stream);        \
        if (gate)                                                                                            \
            gate_leave(gate, to);                                                                            \
        for (unsigned i = 0; result == CUDA_SUCCESS && charge_holds() && i < count; i++)                     \
            follow(&infos[i]);                                                                               \
        return result;                                                                                       \
    }
MAPS(cuMemMapArrayAsync, CU_STREAM_LEGACY)
MAPS(cuMemMapArrayAsync_ptsz, CU_STREAM_PER_THREAD)

static bool is_part(const struct record *record, const void *array)
{
    return record->bytes == *(const uint64_t *)array;
}

#define DESTROYS(symbol, type)                                                                               \
    CUresult symbol(type array)                                                                              \
    {                                                                                                        \
        struct record record;                                                                                \
        uint64_t key = (uint64_t)(uintptr_t)array;                                                           \
        if (!real_ready() || !real(symbol))                                                                  \
            return real_absent();                                                                            \
        if (!charge_drop(RECORD_ARRAY, key, &record))                                                        \
            return real(symbol)(array);                                                                      \
        charge_enter();                                                                                      \
        CUresult result = real(symbol)(array);                                                               \
        charge_leave();                                                                                      \
        charge_dropped(&record, result);                                                                     \
        if (result == CUDA_SUCCESS &&                                                                        \
            atomic_load_explicit(&private_get()->tiles_used, memory_order_relaxed))                          \
            vmm_let_go_all(RECORD_TILE, is_part, &key);                                                      \
        return result;                                                                                       \
    }
DESTROYS(cuArrayDestroy, CUarray)
DESTROYS(cuMipmappedArrayDestroy, CUmipmappedArray)
