#include "simgpu/arrays/arrays.h"

#include <stdlib.h>
#include <string.h>

#include "simgpu/arrays/tiles.h"
#include "simgpu/memory/blocks.h"
#include "simgpu/memory/heap.h"
#include "simgpu/memory/vmm.h"
#include "simgpu/time/execution.h"

#define GOB_BYTES UINT64_C(64) /* the card's smallest block: 64 bytes x 8 rows */
#define GOB_ROWS UINT64_C(8)
#define BLOCK_MOST UINT64_C(16)
#define LINE_BYTES UINT64_C(512)

/* --- Formats --------------------------------------------------------------------------------------- */

struct format {
    CUarray_format format;
    uint8_t channel_bytes; /* of each of 1, 2 or 4 channels; 0: as follows */
    uint8_t texel_bytes;   /* whatever the channels */
    uint8_t block_edge;    /* 4: compressed */
    /* Planes after the first have `plane_channels` channels; width and height are shifted so. */
    uint8_t plane_count, plane_bytes, plane_channels, plane_shift_x, plane_shift_y;
};

static const struct format formats[] = {
    {CU_AD_FORMAT_UNSIGNED_INT8, .channel_bytes = 1},
    {CU_AD_FORMAT_UNSIGNED_INT16, .channel_bytes = 2},
    {CU_AD_FORMAT_UNSIGNED_INT32, .channel_bytes = 4},
    {CU_AD_FORMAT_SIGNED_INT8, .channel_bytes = 1},
    {CU_AD_FORMAT_SIGNED_INT16, .channel_bytes = 2},
    {CU_AD_FORMAT_SIGNED_INT32, .channel_bytes = 4},
    {CU_AD_FORMAT_HALF, .channel_bytes = 2},
    {CU_AD_FORMAT_FLOAT, .channel_bytes = 4},
    {CU_AD_FORMAT_UNORM_INT8X1, .texel_bytes = 1},
    {CU_AD_FORMAT_UNORM_INT8X2, .texel_bytes = 2},
    {CU_AD_FORMAT_UNORM_INT8X4, .texel_bytes = 4},
    {CU_AD_FORMAT_UNORM_INT16X1, .texel_bytes = 2},
    {CU_AD_FORMAT_UNORM_INT16X2, .texel_bytes = 4},
    {CU_AD_FORMAT_UNORM_INT16X4, .texel_bytes = 8},
    {CU_AD_FORMAT_SNORM_INT8X1, .texel_bytes = 1},
    {CU_AD_FORMAT_SNORM_INT8X2, .texel_bytes = 2},
    {CU_AD_FORMAT_SNORM_INT8X4, .texel_bytes = 4},
    {CU_AD_FORMAT_SNORM_INT16X1, .texel_bytes = 2},
    {CU_AD_FORMAT_SNORM_INT16X2, .texel_bytes = 4},
    {CU_AD_FORMAT_SNORM_INT16X4, .texel_bytes = 8},
    {CU_AD_FORMAT_UNORM_INT_101010_2, .texel_bytes = 4},
    {CU_AD_FORMAT_BC1_UNORM, .texel_bytes = 8, .block_edge = 4},
    {CU_AD_FORMAT_BC1_UNORM_SRGB, .texel_bytes = 8, .block_edge = 4},
    {CU_AD_FORMAT_BC2_UNORM, .texel_bytes = 16, .block_edge = 4},
    {CU_AD_FORMAT_BC2_UNORM_SRGB, .texel_bytes = 16, .block_edge = 4},
    {CU_AD_FORMAT_BC3_UNORM, .texel_bytes = 16, .block_edge = 4},
    {CU_AD_FORMAT_BC3_UNORM_SRGB, .texel_bytes = 16, .block_edge = 4},
    {CU_AD_FORMAT_BC4_UNORM, .texel_bytes = 8, .block_edge = 4},
    {CU_AD_FORMAT_BC4_SNORM, .texel_bytes = 8, .block_edge = 4},
    {CU_AD_FORMAT_BC5_UNORM, .texel_bytes = 16, .block_edge = 4},
    {CU_AD_FORMAT_BC5_SNORM, .texel_bytes = 16, .block_edge = 4},
    {CU_AD_FORMAT_BC6H_UF16, .texel_bytes = 16, .block_edge = 4},
    {CU_AD_FORMAT_BC6H_SF16, .texel_bytes = 16, .block_edge = 4},
    {CU_AD_FORMAT_BC7_UNORM, .texel_bytes = 16, .block_edge = 4},
    {CU_AD_FORMAT_BC7_UNORM_SRGB, .texel_bytes = 16, .block_edge = 4},
    {CU_AD_FORMAT_NV12, .plane_count = 2, .plane_bytes = 1, .plane_channels = 2, 1, 1},
    {CU_AD_FORMAT_P010, .plane_count = 2, .plane_bytes = 2, .plane_channels = 2, 1, 1},
    {CU_AD_FORMAT_P016, .plane_count = 2, .plane_bytes = 2, .plane_channels = 2, 1, 1},
    {CU_AD_FORMAT_NV16, .plane_count = 2, .plane_bytes = 1, .plane_channels = 2, 1, 0},
    {CU_AD_FORMAT_P210, .plane_count = 2, .plane_bytes = 2, .plane_channels = 2, 1, 0},
    {CU_AD_FORMAT_P216, .plane_count = 2, .plane_bytes = 2, .plane_channels = 2, 1, 0},
    {CU_AD_FORMAT_Y444_PLANAR8, .plane_count = 3, .plane_bytes = 1, .plane_channels = 1},
    {CU_AD_FORMAT_Y444_PLANAR10, .plane_count = 3, .plane_bytes = 2, .plane_channels = 1},
    {CU_AD_FORMAT_YUV444_8bit_SemiPlanar, .plane_count = 2, .plane_bytes = 1, .plane_channels = 2},
    {CU_AD_FORMAT_YUV444_16bit_SemiPlanar, .plane_count = 2, .plane_bytes = 2, .plane_channels = 2},
    {CU_AD_FORMAT_YUY2, .texel_bytes = 2},
    {CU_AD_FORMAT_Y210, .texel_bytes = 4},
    {CU_AD_FORMAT_Y216, .texel_bytes = 4},
    {CU_AD_FORMAT_AYUV, .texel_bytes = 4},
    {CU_AD_FORMAT_Y410, .texel_bytes = 4},
    {CU_AD_FORMAT_Y416, .texel_bytes = 8},
};

static const struct format *format_find(CUarray_format value)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (formats[i].format == value)
            return &formats[i];
    return NULL;
}

struct array_texel array_texel_of(CUarray_format value, unsigned channels)
{
    const struct format *format = format_find(value);
    struct array_texel texel = {.block_edge = 1};
    if (!format || format->plane_count)
        return texel;
    if (!format->channel_bytes) {
        texel.bytes = format->texel_bytes;
        texel.block_edge = format->block_edge ? format->block_edge : 1;
    } else if (channels == 1 || channels == 2 || channels == 4) {
        texel.bytes = format->channel_bytes * channels;
    }
    return texel;
}

/* --- What a descriptor may say (driver API reference, cuArray3DCreate; sizes of compute capability 9.0)  */

static CUresult descriptor_check(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    const struct format *format = format_find(d->Format);
    SIM_REQUIRE(format && d->Width > 0 && (d->Flags & ~(unsigned)ARRAY_FLAGS) == 0);
    if (format->plane_count) {
        SIM_REQUIRE(d->NumChannels == 3 && d->Height > 0 && d->Depth == 0);
        SIM_REQUIRE(d->Width % (1u << format->plane_shift_x) == 0 &&
                    d->Height % (1u << format->plane_shift_y) == 0);
        SIM_REQUIRE((d->Flags & (ARRAY_LAYERED | ARRAY_CUBEMAP | ARRAY_SPARSE)) == 0);
    } else {
        SIM_REQUIRE(d->NumChannels == 1 || d->NumChannels == 2 || d->NumChannels == 4 ||
                    (format->block_edge == 4 && d->NumChannels == 3));
        SIM_REQUIRE(array_texel_of(d->Format, d->NumChannels).bytes > 0);
    }
    if (d->Flags & ARRAY_GATHER)
        SIM_REQUIRE(d->Height > 0 && d->Depth == 0);
    if (d->Flags & ARRAY_SPARSE)
        SIM_REQUIRE(d->Height > 0 && !(d->Flags & ARRAY_DEFERRED));
    if (d->Flags & ARRAY_CUBEMAP) {
        SIM_REQUIRE(d->Width == d->Height && d->Width <= 32768);
        return d->Flags & ARRAY_LAYERED
                   ? (d->Depth > 0 && d->Depth % 6 == 0 && d->Depth <= 2046 ? CUDA_SUCCESS
                                                                            : CUDA_ERROR_INVALID_VALUE)
                   : (d->Depth == 6 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    }
    if (d->Flags & ARRAY_LAYERED) {
        SIM_REQUIRE(d->Depth > 0 && d->Depth <= 2048);
        SIM_REQUIRE(d->Width <= 32768 && d->Height <= 32768);
        return CUDA_SUCCESS;
    }
    if (d->Depth > 0) {
        SIM_REQUIRE(d->Height > 0);
        SIM_REQUIRE(d->Width <= 16384 && d->Height <= 16384 && d->Depth <= 16384);
        return CUDA_SUCCESS;
    }
    SIM_REQUIRE(d->Width <= 131072 && d->Height <= 65536);
    return CUDA_SUCCESS;
}

/* --- Sizes (arrays.h) ------------------------------------------------------------------------------ */

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

/* The least power of two that covers `count`, BLOCK_MOST at most. */
static uint64_t block_count(uint64_t count)
{
    uint64_t block = 1;
    while (block < count && block < BLOCK_MOST)
        block *= 2;
    return block;
}

static uint64_t blocks_bytes(uint64_t row_bytes, uint64_t rows, uint64_t slices, bool is_line, bool is_volume)
{
    if (is_line)
        return round_up(row_bytes, LINE_BYTES) * slices;
    uint64_t high = block_count((rows + GOB_ROWS - 1) / GOB_ROWS) * GOB_ROWS;
    uint64_t deep = is_volume ? block_count(slices) : 1;
    return round_up(row_bytes, GOB_BYTES) * round_up(rows, high) * round_up(slices, deep);
}

static uint64_t extent_or_one(uint64_t extent)
{
    return extent ? extent : 1;
}

/* Set what follows from the descriptor, for one level or plane; the bytes without rounding to pages. */
static void array_measure(CUarray array)
{
    const CUDA_ARRAY3D_DESCRIPTOR *d = &array->descriptor;
    array->texel = array_texel_of(d->Format, d->NumChannels);
    unsigned edge = array->texel.block_edge;
    array->row_bytes = (d->Width + edge - 1) / edge * array->texel.bytes;
    array->rows = (extent_or_one(d->Height) + edge - 1) / edge;
    array->slices = extent_or_one(d->Depth);
    bool is_volume = d->Depth > 0 && !(d->Flags & (ARRAY_LAYERED | ARRAY_CUBEMAP));
    array->bytes = blocks_bytes(array->row_bytes, array->rows, array->slices, d->Height == 0, is_volume);
}

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
    const struct format *format = format_find(descriptor->Format);
    for (unsigned i = 0; i < format->plane_count; i++) {
        CUDA_ARRAY3D_DESCRIPTOR plane = *descriptor;
        plane.Format = format->plane_bytes == 1 ? CU_AD_FORMAT_UNSIGNED_INT8 : CU_AD_FORMAT_UNSIGNED_INT16;
        plane.NumChannels = i == 0 ? 1 : format->plane_channels;
        plane.Width >>= i == 0 ? 0 : format->plane_shift_x;
        plane.Height >>= i == 0 ? 0 : format->plane_shift_y;
        CUarray part = array_new(context, &plane);
        if (!part)
            break;
        part->whole = array;
        array->planes[array->plane_count++] = part;
        array->bytes += part->bytes;
    }
    if (array->plane_count == format->plane_count)
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

/* From here on the struct stays. */
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
    *bytes = round_up(*bytes, ARRAY_PAGE_BYTES);
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
    SIM_TRY(descriptor_check(descriptor));
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

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(descriptor);
    return array_create(array, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = descriptor->Width,
                                                          .Height = descriptor->Height,
                                                          .Format = descriptor->Format,
                                                          .NumChannels = descriptor->NumChannels});
}

/* The forms before CUDA 3.2 have narrower numbers, and no device address: they do the same. */
CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(descriptor);
    return array_create(array, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = descriptor->Width,
                                                          .Height = descriptor->Height,
                                                          .Depth = descriptor->Depth,
                                                          .Format = descriptor->Format,
                                                          .NumChannels = descriptor->NumChannels,
                                                          .Flags = descriptor->Flags});
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(descriptor);
    return array_create(array, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = descriptor->Width,
                                                          .Height = descriptor->Height,
                                                          .Format = descriptor->Format,
                                                          .NumChannels = descriptor->NumChannels});
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
        return CUDA_ERROR_INVALID_HANDLE; /* goes with what it is a part of */
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

/* Only of arrays whose mapping is deferred (driver API reference). */
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
    mipmap->bytes = round_up(mipmap->bytes, ARRAY_PAGE_BYTES);
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
    SIM_TRY(descriptor_check(descriptor));
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
