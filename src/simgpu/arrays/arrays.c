#include "simgpu/arrays/array_shape.h"

#include <stdlib.h>
#include <string.h>

#include "simgpu/arrays/tiles.h"
#include "simgpu/memory/blocks.h"
#include "simgpu/memory/heap.h"
#include "simgpu/memory/vmm.h"
#include "simgpu/time/execution.h"

/* --- Making ---------------------------------------------------------------------------------------- */

static CUarray array_new(CUcontext context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    CUarray array = calloc(1, sizeof(*array));
    if (!array)
        return NULL;
    array->context = context;
    array->context_id = context->id;
    array->descriptor = *descriptor;
    array_measure(array);
    unsigned plane_count = array_plane_count(descriptor->Format);
    for (unsigned i = 0; i < plane_count; i++) {
        CUDA_ARRAY3D_DESCRIPTOR plane = array_plane(descriptor, i);
        CUarray part = array_new(context, &plane);
        if (!part)
            break;
        part->whole = array;
        array->planes[array->plane_count++] = part;
        array->bytes += part->bytes;
    }
    if (array->plane_count == plane_count)
        return array;
    while (array->plane_count > 0)
        free(array->planes[--array->plane_count]);
    free(array);
    return NULL;
}

static void array_free(CUarray array)
{
    while (array->plane_count > 0)
        free(array->planes[--array->plane_count]);
    free(array);
}

/* From here on the struct stays (sim.h). */
static void array_publish(CUarray array, uint64_t address)
{
    if (array->tiles && !(array->descriptor.Flags & ARRAY_SPARSE))
        array->tail_offset = address;
    array->address = address;
    for (unsigned i = 0; i < array->plane_count; i++) {
        array_publish(array->planes[i], address);
        address += array->planes[i]->bytes;
    }
    atomic_store(&array->kind, SIM_ARRAY);
}

/* Memory for an array or the levels of one: `*bytes` in whole pages at `*address`, or tiles. */
static CUresult array_memory(CUcontext context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray *levels,
                             unsigned level_count, uint64_t *bytes, uint64_t *address)
{
    struct tiles *tiles;
    *bytes = array_pages(*bytes);
    *address = 0;
    if (descriptor->Flags & (ARRAY_SPARSE | ARRAY_DEFERRED))
        return tiles_make(context, descriptor, levels, level_count, *bytes, &tiles);
    return memory_take(context, context->gpu, MEMORY_ARRAY, *bytes, descriptor->Flags, address);
}

static CUresult array_create(CUarray *array_out, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(array_out && descriptor);
    SIM_TRY(context_current(&context));
    SIM_TRY(array_descriptor_check(descriptor));
    CUarray array = array_new(context, descriptor);
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t address;
    CUresult result = array_memory(context, descriptor, &array, 1, &array->bytes, &address);
    if (result != CUDA_SUCCESS) {
        array_free(array);
        return result;
    }
    array_publish(array, address);
    *array_out = array;
    return CUDA_SUCCESS;
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    return array_create(array, descriptor);
}

/* What all descriptors say. */
#define ARRAY_LIKE(descriptor, ...)                                                                          \
    (&(CUDA_ARRAY3D_DESCRIPTOR){.Width = (descriptor)->Width,                                                \
                                .Height = (descriptor)->Height,                                              \
                                .Format = (descriptor)->Format,                                              \
                                .NumChannels = (descriptor)->NumChannels,                                    \
                                ##__VA_ARGS__})

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(descriptor);
    return array_create(array, ARRAY_LIKE(descriptor));
}

/* The forms before CUDA 3.2 have narrower numbers, and no device address: they do the same. */
CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(descriptor);
    return array_create(array,
                        ARRAY_LIKE(descriptor, .Depth = descriptor->Depth, .Flags = descriptor->Flags));
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(descriptor);
    return array_create(array, ARRAY_LIKE(descriptor));
}

/* --- Destroying ------------------------------------------------------------------------------------ */

static CUresult owner_check(CUcontext context, unsigned long long id)
{
    SIM_TRY(context_check(context));
    return context->id == id ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult array_check(CUarray array)
{
    SIM_TRY(sim_ready());
    if (!array || atomic_load(&array->kind) != SIM_ARRAY)
        return CUDA_ERROR_INVALID_HANDLE;
    return owner_check(array->context, array->context_id);
}

CUresult mipmap_check(CUmipmappedArray mipmap)
{
    SIM_TRY(sim_ready());
    if (!mipmap || atomic_load(&mipmap->kind) != SIM_MIPMAP)
        return CUDA_ERROR_INVALID_HANDLE;
    return owner_check(mipmap->context, mipmap->context_id);
}

static void memory_return(CUcontext context, CUarray array)
{
    struct memory_allocation allocation;
    context_wait(context);
    if (array->tiles)
        tiles_end(array->tiles);
    else if (heap_free(array->address, 1u << MEMORY_ARRAY, &allocation))
        blocks_give_back(allocation.gpu, allocation.kind, allocation.bytes);
}

static void array_retire(CUarray array)
{
    atomic_store(&array->kind, SIM_DESTROYED);
    for (unsigned i = 0; i < array->plane_count; i++)
        array_retire(array->planes[i]);
}

CUresult cuArrayDestroy(CUarray array)
{
    SIM_TRY(array_check(array));
    if (array->mipmap || array->whole)
        return CUDA_ERROR_INVALID_HANDLE; /* it ends with what it is a part of */
    unsigned kind = SIM_ARRAY;
    if (!atomic_compare_exchange_strong(&array->kind, &kind, SIM_DESTROYED))
        return CUDA_ERROR_INVALID_HANDLE;
    array_retire(array);
    memory_return(array->context, array);
    return CUDA_SUCCESS;
}

/* --- What an array is like ------------------------------------------------------------------------- */

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray array)
{
    SIM_TRY(array_check(array));
    SIM_REQUIRE(descriptor);
    *descriptor = array->descriptor;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *descriptor, CUarray array)
{
    SIM_TRY(array_check(array));
    SIM_REQUIRE(descriptor);
    const CUDA_ARRAY3D_DESCRIPTOR *d = &array->descriptor;
    *descriptor = (CUDA_ARRAY_DESCRIPTOR){
        .Width = d->Width, .Height = d->Height, .Format = d->Format, .NumChannels = d->NumChannels};
    return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor, CUarray array)
{
    SIM_TRY(array_check(array));
    SIM_REQUIRE(descriptor);
    const CUDA_ARRAY3D_DESCRIPTOR *d = &array->descriptor;
    *descriptor = (CUDA_ARRAY3D_DESCRIPTOR_v1){.Width = (unsigned)d->Width,
                                               .Height = (unsigned)d->Height,
                                               .Depth = (unsigned)d->Depth,
                                               .Format = d->Format,
                                               .NumChannels = d->NumChannels,
                                               .Flags = d->Flags};
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *descriptor, CUarray array)
{
    SIM_TRY(array_check(array));
    SIM_REQUIRE(descriptor);
    const CUDA_ARRAY3D_DESCRIPTOR *d = &array->descriptor;
    *descriptor = (CUDA_ARRAY_DESCRIPTOR_v1){.Width = (unsigned)d->Width,
                                             .Height = (unsigned)d->Height,
                                             .Format = d->Format,
                                             .NumChannels = d->NumChannels};
    return CUDA_SUCCESS;
}

CUresult cuArrayGetPlane(CUarray *plane, CUarray array, unsigned int index)
{
    SIM_TRY(array_check(array));
    SIM_REQUIRE(plane && index < array->plane_count);
    *plane = array->planes[index];
    return CUDA_SUCCESS;
}

/* Only arrays whose mapping is deferred have requirements (driver API reference). */
static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, unsigned flags, uint64_t bytes,
                             CUdevice device)
{
    SIM_REQUIRE(out);
    SIM_TRY(device_check(device));
    SIM_REQUIRE(flags & ARRAY_DEFERRED);
    *out = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = bytes, .alignment = ARRAY_PAGE_BYTES};
    return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUarray array, CUdevice device)
{
    SIM_TRY(array_check(array));
    return requirements(out, array->descriptor.Flags, array->bytes, device);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUmipmappedArray mipmap,
                                               CUdevice device)
{
    SIM_TRY(mipmap_check(mipmap));
    return requirements(out, mipmap->descriptor.Flags, mipmap->bytes, device);
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *out, CUarray array)
{
    SIM_TRY(array_check(array));
    return tiles_properties(out, &array->descriptor, 1);
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *out, CUmipmappedArray mipmap)
{
    SIM_TRY(mipmap_check(mipmap));
    return tiles_properties(out, &mipmap->descriptor, mipmap->level_count);
}

/* --- Mipmapped arrays ------------------------------------------------------------------------------ */

static size_t halved(size_t extent, unsigned level)
{
    return extent == 0 ? 0 : extent >> level ? extent >> level : 1;
}

static void mipmap_free(CUmipmappedArray mipmap)
{
    for (unsigned level = 0; mipmap->levels && level < mipmap->level_count; level++)
        free(mipmap->levels[level]);
    free(mipmap->levels);
    free(mipmap);
}

static CUmipmappedArray mipmap_new(CUcontext context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                   unsigned level_count)
{
    CUmipmappedArray mipmap = calloc(1, sizeof(*mipmap));
    if (!mipmap)
        return NULL;
    mipmap->context = context;
    mipmap->context_id = context->id;
    mipmap->descriptor = *descriptor;
    mipmap->level_count = level_count;
    mipmap->levels = calloc(level_count, sizeof(CUarray));
    bool layered = descriptor->Flags & (ARRAY_LAYERED | ARRAY_CUBEMAP);
    for (unsigned level = 0; mipmap->levels && level < level_count; level++) {
        CUDA_ARRAY3D_DESCRIPTOR part = *descriptor;
        part.Width = halved(part.Width, level);
        part.Height = halved(part.Height, level);
        part.Depth = layered ? part.Depth : halved(part.Depth, level);
        mipmap->levels[level] = array_new(context, &part);
        if (!mipmap->levels[level]) {
            mipmap_free(mipmap);
            return NULL;
        }
        mipmap->levels[level]->mipmap = mipmap;
        mipmap->bytes += mipmap->levels[level]->bytes;
    }
    if (!mipmap->levels) {
        free(mipmap);
        return NULL;
    }
    return mipmap;
}

/* Memory of its own, or what lies at `offset` of `external`. */
static CUresult mipmap_memory(CUmipmappedArray mipmap, struct handle *external, uint64_t offset,
                              uint64_t *address)
{
    struct tiles *tiles;
    if (!external)
        return array_memory(mipmap->context, &mipmap->descriptor, mipmap->levels, mipmap->level_count,
                            &mipmap->bytes, address);
    *address = 0;
    mipmap->bytes = array_pages(mipmap->bytes);
    SIM_REQUIRE(offset % ARRAY_PAGE_BYTES == 0 && offset <= external->bytes &&
                mipmap->bytes <= external->bytes - offset);
    SIM_TRY(tiles_make(mipmap->context, &mipmap->descriptor, mipmap->levels, mipmap->level_count,
                       mipmap->bytes, &tiles));
    CUresult result = tiles_map(tiles, external, offset);
    if (result != CUDA_SUCCESS)
        tiles_end(tiles);
    return result;
}

/* The number of levels is clamped to what halving can make (driver API reference). */
CUresult mipmap_create(CUmipmappedArray *mipmap_out, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                       unsigned level_count, struct handle *external, uint64_t offset)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(mipmap_out && descriptor && level_count > 0);
    SIM_TRY(context_current(&context));
    SIM_TRY(array_descriptor_check(descriptor));
    SIM_REQUIRE(array_texel_of(descriptor->Format, descriptor->NumChannels).bytes > 0); /* no planes */
    size_t longest = descriptor->Width > descriptor->Height ? descriptor->Width : descriptor->Height;
    if (!(descriptor->Flags & (ARRAY_LAYERED | ARRAY_CUBEMAP)) && descriptor->Depth > longest)
        longest = descriptor->Depth;
    unsigned most = 64 - (unsigned)__builtin_clzll(longest);
    CUmipmappedArray mipmap = mipmap_new(context, descriptor, level_count < most ? level_count : most);
    if (!mipmap)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t address;
    CUresult result = mipmap_memory(mipmap, external, offset, &address);
    if (result != CUDA_SUCCESS) {
        mipmap_free(mipmap);
        return result;
    }
    for (unsigned level = 0; level < mipmap->level_count; level++) {
        array_publish(mipmap->levels[level], address);
        address += mipmap->levels[level]->bytes;
    }
    atomic_store(&mipmap->kind, SIM_MIPMAP);
    *mipmap_out = mipmap;
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *mipmap, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                unsigned int level_count)
{
    return mipmap_create(mipmap, descriptor, level_count, NULL, 0);
}

CUresult cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray mipmap, unsigned int level)
{
    SIM_TRY(mipmap_check(mipmap));
    SIM_REQUIRE(array && level < mipmap->level_count);
    *array = mipmap->levels[level];
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
    SIM_TRY(mipmap_check(mipmap));
    unsigned kind = SIM_MIPMAP;
    if (!atomic_compare_exchange_strong(&mipmap->kind, &kind, SIM_DESTROYED))
        return CUDA_ERROR_INVALID_HANDLE;
    for (unsigned level = 0; level < mipmap->level_count; level++)
        array_retire(mipmap->levels[level]);
    memory_return(mipmap->context, mipmap->levels[0]);
    return CUDA_SUCCESS;
}
