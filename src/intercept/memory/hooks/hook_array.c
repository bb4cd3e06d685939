/* hook_array.c - arrays and mipmapped arrays, charged for what their elements take (cuda/array_size.h). A sparse
 * array, or one of deferred mapping, takes nothing itself: its parts hold what is mapped into them. */
#include "cuda/array_size.h"
#include "intercept/memory/engine/engine.h"
#include "intercept/memory/physical.h"
#include "intercept/memory/road.h"
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

static CUresult create(enum alloc_way way, CUarray *array, const void *descriptor,
                       const CUDA_ARRAY3D_DESCRIPTOR *wide)
{
    return allocate(&(struct allocation){
        .way = way, .bytes = size_of(wide, 1), .got = array, .array = {.descriptor = descriptor}});
}

/* The program gave no place for the array, or no descriptor: the driver will refuse. */
static CUresult create_uncharged(enum alloc_way way, void *array, const void *descriptor, unsigned levels)
{
    return allocate(
        &(struct allocation){.way = way, .is_uncharged = true, .got = array, .array = {descriptor, levels}});
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor)
{
    if (!array || !descriptor)
        return create_uncharged(WAY_cuArrayCreate, array, descriptor, 1);
    CUDA_ARRAY3D_DESCRIPTOR wide = widen_2d_v1(descriptor);
    return create(WAY_cuArrayCreate, array, descriptor, &wide);
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    if (!array || !descriptor)
        return create_uncharged(WAY_cuArrayCreate_v2, array, descriptor, 1);
    CUDA_ARRAY3D_DESCRIPTOR wide = widen_2d(descriptor);
    return create(WAY_cuArrayCreate_v2, array, descriptor, &wide);
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor)
{
    if (!array || !descriptor)
        return create_uncharged(WAY_cuArray3DCreate, array, descriptor, 1);
    CUDA_ARRAY3D_DESCRIPTOR wide = widen_3d_v1(descriptor);
    return create(WAY_cuArray3DCreate, array, descriptor, &wide);
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    if (!array || !descriptor)
        return create_uncharged(WAY_cuArray3DCreate_v2, array, descriptor, 1);
    return create(WAY_cuArray3DCreate_v2, array, descriptor, descriptor);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                unsigned int levels)
{
    if (!array || !descriptor)
        return create_uncharged(WAY_cuMipmappedArrayCreate, array, descriptor, levels);
    return allocate(&(struct allocation){.way = WAY_cuMipmappedArrayCreate,
                                         .bytes = size_of(descriptor, levels),
                                         .got = array,
                                         .array = {descriptor, levels}});
}

/* --- Parts of sparse arrays ------------------------------------------------------------------------ */

static uint64_t resource_of(const CUarrayMapInfo *info)
{
    return (uint64_t)(uintptr_t)info->resource.array; /* either member: a pointer */
}

/* A part's name is a hash of its place: two different parts of one array have the same name once in 2^64. */
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
    if (records_take(memory_records(), RECORD_TILE, part, &tile))
        physical_let_go(tile.hold.physical);
}

#define TILE_BYTES UINT64_C(65536) /* CUDA programming guide: sparse CUDA arrays */

static uint64_t tiles_for(uint64_t extent, uint64_t tile)
{
    return tile ? (extent + tile - 1) / tile : extent;
}

/* How much of the memory that is mapped there a part takes; 0 if the driver cannot tell. */
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

/* Before the driver maps: memory of another session is charged for the part of it that is mapped. */
static bool fits(const CUarrayMapInfo *infos, unsigned count)
{
    for (unsigned i = 0; infos && i < count; i++) {
        uint64_t number = infos[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP
                              ? physical_of_handle(infos[i].memHandle.memHandle)
                              : 0;
        struct record physical;
        if (number && records_find(memory_records(), RECORD_PHYSICAL, number, &physical) &&
            physical.flags & RECORD_IMPORTED &&
            !physical_charge_import(number, infos[i].offset + part_bytes(&infos[i])))
            return false;
    }
    return true;
}

/* The driver has taken the work. In order, parts now hold what was mapped into them, and let go of what was unmapped.
 * A part that is unmapped in other pieces than it was mapped stays held until its array is destroyed. */
static void follow(const CUarrayMapInfo *info)
{
    struct record displaced;
    uint64_t number;
    if (info->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP) {
        leave_part(part_of(info));
        return;
    }
    if (info->memOperationType != CU_MEM_OPERATION_TYPE_MAP ||
        !(number = physical_of_handle(info->memHandle.memHandle)))
        return;
    physical_keep(number);
    struct record tile = {.key = part_of(info), .kind = RECORD_TILE, .hold = {.array = resource_of(info)}};
    if (!physical_point_at(tile, number, &displaced)) {
        physical_let_go(number);
        return;
    }
    if (displaced.kind != RECORD_FREE)
        physical_let_go(displaced.hold.physical);
    atomic_store_explicit(&memory_area()->uses_tiles, true, memory_order_relaxed);
}

#define PARTS_AT_ONCE 32u

/* The driver gets its own handles. Their memory stays on the card from now on. */
static CUresult map_some(CUresult (*driver)(CUarrayMapInfo *, unsigned int, CUstream), CUarrayMapInfo *infos,
                         unsigned int count, CUstream stream)
{
    const struct engine_vmm *vmm = engine_of_process()->vmm;
    CUmemGenericAllocationHandle programs[PARTS_AT_ONCE];
    bool is_pinned[PARTS_AT_ONCE];
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count; i++) {
        programs[i] = infos[i].memHandle.memHandle;
        is_pinned[i] = infos[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP && result == CUDA_SUCCESS;
        if (is_pinned[i])
            result = vmm->pin(&infos[i].memHandle.memHandle, WIRE_STAYS_BOUND);
    }
    if (result == CUDA_SUCCESS)
        result = driver(infos, count, stream);
    for (unsigned i = 0; i < count; i++) {
        infos[i].memHandle.memHandle = programs[i];
        if (is_pinned[i] && result != CUDA_SUCCESS)
            vmm->unpin(programs[i], WIRE_STAYS_BOUND);
    }
    return result;
}

static CUresult map_by_driver(CUresult (*driver)(CUarrayMapInfo *, unsigned int, CUstream),
                              CUarrayMapInfo *infos, unsigned int count, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    if (!infos || !count || engine_of_process() == &engine_plain)
        return driver(infos, count, stream);
    for (unsigned at = 0; at < count && result == CUDA_SUCCESS; at += PARTS_AT_ONCE)
        result =
            map_some(driver, infos + at, count - at < PARTS_AT_ONCE ? count - at : PARTS_AT_ONCE, stream);
    return result;
}

/* The parts are mapped in stream order, so the call passes the gate. `to` is the stream that `stream` means in this
 * form of the call. */
static CUresult map_parts(CUresult (*driver)(CUarrayMapInfo *, unsigned int, CUstream), CUarrayMapInfo *infos,
                          unsigned int count, CUstream stream, CUstream to)
{
    struct gate *gate = gate_of();
    if (gate)
        gate_enter(gate, to);
    CUresult result = charge_has_any() && !fits(infos, count) ? CUDA_ERROR_OUT_OF_MEMORY
                                                              : map_by_driver(driver, infos, count, stream);
    if (gate)
        gate_leave(gate, to);
    for (unsigned i = 0; result == CUDA_SUCCESS && charge_has_any() && i < count; i++)
        follow(&infos[i]);
    return result;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *infos, unsigned int count, CUstream stream)
{
    real_needed(cuMemMapArrayAsync);
    return map_parts(real(cuMemMapArrayAsync), infos, count, stream, stream ? stream : CU_STREAM_LEGACY);
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *infos, unsigned int count, CUstream stream)
{
    real_needed(cuMemMapArrayAsync_ptsz);
    return map_parts(real(cuMemMapArrayAsync_ptsz), infos, count, stream,
                     stream ? stream : CU_STREAM_PER_THREAD);
}

/* --- Destroying ------------------------------------------------------------------------------------ */

static bool is_part(const struct record *tile, const void *array)
{
    return tile->hold.array == *(const uint64_t *)array;
}

/* What was mapped into a sparse array's parts goes with the array. */
static CUresult destroy(enum release_way way, uint64_t array)
{
    CUresult result = release_allocation(way, array, NULL);
    if (result == CUDA_SUCCESS && charge_has_any() &&
        atomic_load_explicit(&memory_area()->uses_tiles, memory_order_relaxed))
        physical_let_go_all(RECORD_TILE, is_part, &array);
    return result;
}

CUresult cuArrayDestroy(CUarray array)
{
    return destroy(RELEASE_cuArrayDestroy, (uint64_t)(uintptr_t)array);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    return destroy(RELEASE_cuMipmappedArrayDestroy, (uint64_t)(uintptr_t)array);
}
