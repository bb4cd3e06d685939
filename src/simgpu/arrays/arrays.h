/* arrays.h - arrays and mipmapped arrays: opaque memory of textures and surfaces.
 *
 * Here their bytes lie in rows. They take as much of the device as a card's block-linear layout takes:
 *
 * block   the card's smallest is 64 bytes x 8 rows. A block has as many rows of these as cover the height,
 *         16 at most, and as many slices as cover the depth of a volume, 16 at most
 * layer   each layer, face, level and plane begins at a block
 * page    an array takes whole pages of 64 KiB
 *
 * One-dimensional arrays are rows of 512 bytes. Sparse arrays and those whose mapping is deferred take
 * nothing themselves: their memory is what is mapped into them (tiles.h). */
#pragma once

#include "simgpu/driver/sim.h"
#include "simgpu/memory/memory.h"

#define ARRAY_PAGE_BYTES (UINT64_C(64) << 10)
#define ARRAY_PLANES 3u

/* CUDA_ARRAY3D_... of cuda.h */
enum {
    ARRAY_LAYERED = 0x01,
    ARRAY_SURFACE = 0x02,
    ARRAY_CUBEMAP = 0x04,
    ARRAY_GATHER = 0x08,
    ARRAY_DEPTH = 0x10,
    ARRAY_COLOR = 0x20,
    ARRAY_SPARSE = 0x40,
    ARRAY_DEFERRED = 0x80,
    ARRAY_VIDEO = 0x100,
    ARRAY_FLAGS = 0x1ff,
};

struct array_texel {
    unsigned bytes;      /* of a texel or a compressed block of 4 x 4; 0: has planes */
    unsigned block_edge; /* 1 or 4 texels */
};

struct CUarray_st {
    _Atomic unsigned kind; /* SIM_ARRAY; structs stay (sim.h) */
    CUcontext context;
    unsigned long long context_id; /* a primary context comes again under the same handle */
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    struct array_texel texel;
    uint64_t address;
    uint64_t row_bytes, rows, slices; /* as the bytes lie: slices are layers, faces or the depth */
    CUmipmappedArray mipmap;          /* of which it is a level */
    CUarray whole;                    /* of which it is a plane */
    CUarray planes[ARRAY_PLANES];
    unsigned plane_count;
    uint64_t bytes; /* what it takes when it is mapped */

    /* Of an array that is mapped in tiles (tiles.h). */
    struct tiles *tiles; /* NULL: its memory is its own, at `address` */
    uint64_t first_tile, tiles_across, tiles_down;
    uint64_t tail_offset; /* where it begins in the tail, if `tiles_across` is 0 */
};

struct CUmipmappedArray_st {
    _Atomic unsigned kind; /* SIM_MIPMAP */
    CUcontext context;
    unsigned long long context_id;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    unsigned level_count;
    CUarray *levels;
    uint64_t bytes;
};

/* INVALID_HANDLE unless `array` is a living array. */
CUresult array_check(CUarray array);
CUresult mipmap_check(CUmipmappedArray mipmap);

/* cuMipmappedArrayCreate; with `external`, on what lies at `offset` of that memory, which the array keeps. */
struct handle;
CUresult mipmap_create(CUmipmappedArray *mipmap, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                       unsigned level_count, struct handle *external, uint64_t offset);

/* Bytes of a texel; 0 for a format that does not exist, or has planes. */
struct array_texel array_texel_of(CUarray_format format, unsigned channels);
