#include "cuda/array_size.h"

#include <stdbool.h>
#include <stddef.h>

#define LAYERED 0x01 /* CUDA_ARRAY3D_LAYERED: depth counts layers */
#define CUBEMAP 0x04 /* CUDA_ARRAY3D_CUBEMAP: depth counts faces */

/* A format by what a block of it takes: `bytes` for `width` x `height` elements. Where `per_channel`, `bytes`
 * are of one channel. */
struct format {
    unsigned format;
    uint8_t width, height, bytes;
    bool per_channel;
};

static const struct format formats[] = {
    {CU_AD_FORMAT_UNSIGNED_INT8, 1, 1, 1, true},
    {CU_AD_FORMAT_UNSIGNED_INT16, 1, 1, 2, true},
    {CU_AD_FORMAT_UNSIGNED_INT32, 1, 1, 4, true},
    {CU_AD_FORMAT_SIGNED_INT8, 1, 1, 1, true},
    {CU_AD_FORMAT_SIGNED_INT16, 1, 1, 2, true},
    {CU_AD_FORMAT_SIGNED_INT32, 1, 1, 4, true},
    {CU_AD_FORMAT_HALF, 1, 1, 2, true},
    {CU_AD_FORMAT_FLOAT, 1, 1, 4, true},
    {CU_AD_FORMAT_UNORM_INT_101010_2, 1, 1, 4, false},
    /* 4:2:0: two half-size planes of chroma; 4:2:2: half the width; 4:4:4: all of it. */
    {CU_AD_FORMAT_NV12, 2, 2, 6, false},
    {CU_AD_FORMAT_P010, 2, 2, 12, false},
    {CU_AD_FORMAT_P016, 2, 2, 12, false},
    {CU_AD_FORMAT_NV16, 2, 1, 4, false},
    {CU_AD_FORMAT_P210, 2, 1, 8, false},
    {CU_AD_FORMAT_P216, 2, 1, 8, false},
    {CU_AD_FORMAT_YUY2, 2, 1, 4, false},
    {CU_AD_FORMAT_Y210, 2, 1, 8, false},
    {CU_AD_FORMAT_Y216, 2, 1, 8, false},
    {CU_AD_FORMAT_AYUV, 1, 1, 4, false},
    {CU_AD_FORMAT_Y410, 1, 1, 4, false},
    {CU_AD_FORMAT_Y416, 1, 1, 8, false},
    {CU_AD_FORMAT_Y444_PLANAR8, 1, 1, 3, false},
    {CU_AD_FORMAT_Y444_PLANAR10, 1, 1, 6, false},
    {CU_AD_FORMAT_YUV444_8bit_SemiPlanar, 1, 1, 3, false},
    {CU_AD_FORMAT_YUV444_16bit_SemiPlanar, 1, 1, 6, false},
    {CU_AD_FORMAT_UNORM_INT8X1, 1, 1, 1, false},
    {CU_AD_FORMAT_UNORM_INT8X2, 1, 1, 2, false},
    {CU_AD_FORMAT_UNORM_INT8X4, 1, 1, 4, false},
    {CU_AD_FORMAT_UNORM_INT16X1, 1, 1, 2, false},
    {CU_AD_FORMAT_UNORM_INT16X2, 1, 1, 4, false},
    {CU_AD_FORMAT_UNORM_INT16X4, 1, 1, 8, false},
    {CU_AD_FORMAT_SNORM_INT8X1, 1, 1, 1, false},
    {CU_AD_FORMAT_SNORM_INT8X2, 1, 1, 2, false},
    {CU_AD_FORMAT_SNORM_INT8X4, 1, 1, 4, false},
    {CU_AD_FORMAT_SNORM_INT16X1, 1, 1, 2, false},
    {CU_AD_FORMAT_SNORM_INT16X2, 1, 1, 4, false},
    {CU_AD_FORMAT_SNORM_INT16X4, 1, 1, 8, false},
    {CU_AD_FORMAT_BC1_UNORM, 4, 4, 8, false},
    {CU_AD_FORMAT_BC1_UNORM_SRGB, 4, 4, 8, false},
    {CU_AD_FORMAT_BC2_UNORM, 4, 4, 16, false},
    {CU_AD_FORMAT_BC2_UNORM_SRGB, 4, 4, 16, false},
    {CU_AD_FORMAT_BC3_UNORM, 4, 4, 16, false},
    {CU_AD_FORMAT_BC3_UNORM_SRGB, 4, 4, 16, false},
    {CU_AD_FORMAT_BC4_UNORM, 4, 4, 8, false},
    {CU_AD_FORMAT_BC4_SNORM, 4, 4, 8, false},
    {CU_AD_FORMAT_BC5_UNORM, 4, 4, 16, false},
    {CU_AD_FORMAT_BC5_SNORM, 4, 4, 16, false},
    {CU_AD_FORMAT_BC6H_UF16, 4, 4, 16, false},
    {CU_AD_FORMAT_BC6H_SF16, 4, 4, 16, false},
    {CU_AD_FORMAT_BC7_UNORM, 4, 4, 16, false},
    {CU_AD_FORMAT_BC7_UNORM_SRGB, 4, 4, 16, false},
};

static const struct format *format_of(unsigned value)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
        if (formats[i].format == value)
            return &formats[i];
    return NULL;
}

static uint64_t product(uint64_t one, uint64_t other)
{
    uint64_t result;
    return __builtin_mul_overflow(one, other, &result) ? UINT64_MAX : result;
}

static uint64_t blocks(uint64_t elements, unsigned of)
{
    return elements / of + (elements % of != 0);
}

static uint64_t at_least_one(uint64_t extent)
{
    return extent ? extent : 1;
}

#define TILE_BYTES UINT64_C(64)
#define TILE_ROWS UINT64_C(8)
#define TILES_MOST UINT64_C(16)
#define LINE_BYTES UINT64_C(512)
#define PAGE_BYTES UINT64_C(65536)

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return value > UINT64_MAX - step ? UINT64_MAX : (value + step - 1) / step * step;
}

/* The least power of two that covers `count`, TILES_MOST at most. */
static uint64_t tiles(uint64_t count)
{
    uint64_t side = 1;
    while (side < count && side < TILES_MOST)
        side *= 2;
    return side;
}

static uint64_t tiled(uint64_t row_bytes, uint64_t rows, uint64_t slices, bool is_row, bool is_volume)
{
    if (is_row)
        return product(round_up(row_bytes, LINE_BYTES), slices);
    uint64_t high = tiles(round_up(rows, TILE_ROWS) / TILE_ROWS) * TILE_ROWS;
    uint64_t deep = is_volume ? tiles(slices) : 1;
    return product(product(round_up(row_bytes, TILE_BYTES), round_up(rows, high)), round_up(slices, deep));
}

uint64_t cuda_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels)
{
    const struct format *format = format_of((unsigned)descriptor->Format);
    if (!format)
        return 0;
    uint64_t block_bytes = format->bytes * (uint64_t)(format->per_channel ? descriptor->NumChannels : 1);
    uint64_t width = at_least_one(descriptor->Width), height = at_least_one(descriptor->Height),
             depth = at_least_one(descriptor->Depth), bytes = 0;
    bool is_volume = !(descriptor->Flags & (LAYERED | CUBEMAP));
    bool is_row = descriptor->Height == 0; /* one dimension: blocks of it are one element high */

    for (unsigned level = 0; level == 0 || level < levels; level++) {
        uint64_t rows = is_row ? 1 : blocks(height, format->height);
        uint64_t level_bytes = tiled(product(blocks(width, format->width), block_bytes), rows, depth, is_row,
                                     is_volume && descriptor->Depth > 0);
        if (__builtin_add_overflow(bytes, level_bytes, &bytes))
            return UINT64_MAX;
        if (width == 1 && height == 1 && (depth == 1 || !is_volume))
            break;
        width = at_least_one(width / 2);
        height = at_least_one(height / 2);
        if (is_volume)
            depth = at_least_one(depth / 2);
    }
    return round_up(bytes, PAGE_BYTES);
}
