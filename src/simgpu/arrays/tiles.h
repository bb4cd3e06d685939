/* tiles.h - where the bytes of sparse arrays lie, and of those whose mapping is deferred.
 *
 * tile   64 KiB of memory of cuMemCreate, mapped into an array by cuMemMapArrayAsync; or nothing: what is
 *        read there is 0, and what is written is lost
 * tail   the levels that span less than a tile in some direction: rows one after the other, in tiles of
 *        their own, for each layer. Arrays of deferred mapping and those on external memory are all tail,
 *        of one layer, mapped in one piece. */
#pragma once

#include "simgpu/arrays/arrays.h"

struct handle; /* vmm.h */

#define TILE_BYTES ARRAY_PAGE_BYTES

/* What cuArrayGetSparseProperties answers. INVALID_VALUE if the array is not sparse. */
CUresult tiles_properties(CUDA_ARRAY_SPARSE_PROPERTIES *out, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                          unsigned level_count);

/* Tiles for an array, or for the levels of one; none is mapped. `bytes`: what a deferred mapping needs. */
CUresult tiles_make(CUcontext context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray *levels,
                    unsigned level_count, uint64_t bytes, struct tiles **tiles);

/* Map all tiles of an array that is not sparse, from `offset` on; after a failure some may be mapped. */
CUresult tiles_map(struct tiles *tiles, struct handle *handle, uint64_t offset);

/* Let go of what is mapped, as an array or everything of a context ends. */
void tiles_end(struct tiles *tiles);
void tiles_drop_context(CUcontext context);

/* The address of an array's byte `offset`, counted row by row as in memory; `*bytes` becomes how many follow
 * each other there. 0 where nothing is mapped. For all arrays. */
uint64_t array_at(const struct CUarray_st *array, uint64_t offset, uint64_t *bytes);

/* Copy; a NULL array's offset is an address. */
void array_move(const struct CUarray_st *to_array, uint64_t to, const struct CUarray_st *from_array,
                uint64_t from, uint64_t bytes);
