/* array_shape.c - what descriptors of arrays may say, and how many bytes follow from them. */
#include "simgpu/arrays/array_shape.h"

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
    /* Planes after the first have `plane_channels` channels; plane_shift_* shift their width and height. */
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

CUresult array_descriptor_check(const CUDA_ARRAY3D_DESCRIPTOR *d)
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

/* Set what follows from the descriptor, for one level or plane; the bytes are not rounded to pages yet. */
void array_measure(CUarray array)
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

unsigned array_plane_count(CUarray_format value)
{
    return format_find(value)->plane_count;
}

CUDA_ARRAY3D_DESCRIPTOR array_plane(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned index)
{
    const struct format *format = format_find(descriptor->Format);
    CUDA_ARRAY3D_DESCRIPTOR plane = *descriptor;
    plane.Format = format->plane_bytes == 1 ? CU_AD_FORMAT_UNSIGNED_INT8 : CU_AD_FORMAT_UNSIGNED_INT16;
    plane.NumChannels = index == 0 ? 1 : format->plane_channels;
    plane.Width >>= index == 0 ? 0 : format->plane_shift_x;
    plane.Height >>= index == 0 ? 0 : format->plane_shift_y;
    return plane;
}

uint64_t array_pages(uint64_t bytes)
{
    return round_up(bytes, ARRAY_PAGE_BYTES);
}
