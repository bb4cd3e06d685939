#include "simgpu/arrays/tiles.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>

#include "base/least.h"
#include "cuda/driver_more.h"
#include "simgpu/memory/vmm.h"
#include "simgpu/time/execution.h"

#define USAGE_TILE_POOL 1u /* CU_MEM_CREATE_USAGE_TILE_POOL */

struct tile {
    struct handle *handle; /* NULL: nothing is mapped */
    unsigned char *memory;
};

/* Of one array or mipmapped array; under vmm_lock. */
struct tiles {
    LIST_ENTRY(tiles) entry;
    CUcontext context;
    bool is_listed; /* in all_tiles */
    bool is_line;   /* rows one after the other, all mapped in one piece */
    bool is_layered;
    uint64_t row_bytes, rows, slices; /* of a tile */
    CUDA_ARRAY_SPARSE_PROPERTIES properties;
    CUarray *levels; /* a copy of the handles */
    unsigned level_count;
    uint64_t tail_first, tail_tiles; /* of the first layer; in each layer */
    uint64_t layer_count;
    uint64_t tile_count;
    struct tile tile[];
};

static LIST_HEAD(, tiles) all_tiles = LIST_HEAD_INITIALIZER(all_tiles); /* whose memory may be mapped */

static uint64_t tiles_for(uint64_t extent, uint64_t tile)
{
    return (extent + tile - 1) / tile;
}

/* --- Shapes ---------------------------------------------------------------------------------------- */

static bool is_layered(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    return d->Flags & (ARRAY_LAYERED | ARRAY_CUBEMAP);
}

/* The shapes that graphics APIs have agreed on, in texels (or compressed blocks) of 1 to 16 bytes. */
static void tile_shape(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned shape[static 3])
{
    static const uint16_t flat[5][2] = {{256, 256}, {256, 128}, {128, 128}, {128, 64}, {64, 64}};
    static const uint16_t volume[5][3] = {
        {64, 32, 32}, {32, 32, 32}, {32, 32, 16}, {32, 16, 16}, {16, 16, 16}};
    unsigned size = (unsigned)__builtin_ctz(array_texel_of(d->Format, d->NumChannels).bytes);
    bool is_flat = is_layered(d) || d->Depth == 0;
    shape[0] = is_flat ? flat[size][0] : volume[size][0];
    shape[1] = is_flat ? flat[size][1] : volume[size][1];
    shape[2] = is_flat ? 1 : volume[size][2];
}

static size_t level_extent(size_t extent, unsigned level)
{
    return extent >> level ? extent >> level : 1;
}

/* How many bytes a level takes in a layer of the tail. */
static uint64_t tail_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned level)
{
    struct array_texel texel = array_texel_of(d->Format, d->NumChannels);
    uint64_t depth = is_layered(d) || d->Depth == 0 ? 1 : level_extent(d->Depth, level);
    return tiles_for(level_extent(d->Width, level), texel.block_edge) * texel.bytes *
           tiles_for(level_extent(d->Height, level), texel.block_edge) * depth;
}

CUresult tiles_properties(CUDA_ARRAY_SPARSE_PROPERTIES *out, const CUDA_ARRAY3D_DESCRIPTOR *d,
                          unsigned level_count)
{
    unsigned shape[3], level = 0;
    SIM_REQUIRE(out && d->Flags & ARRAY_SPARSE);
    tile_shape(d, shape);
    unsigned edge = array_texel_of(d->Format, d->NumChannels).block_edge;
    *out = (CUDA_ARRAY_SPARSE_PROPERTIES){
        .tileExtent = {.width = shape[0] * edge, .height = shape[1] * edge, .depth = shape[2]}};
    while (level < level_count && d->Width >> level >= out->tileExtent.width &&
           d->Height >> level >= out->tileExtent.height && (shape[2] == 1 || d->Depth >> level >= shape[2]))
        level++;
    out->miptailFirstLevel = level;
    uint64_t bytes = 0;
    for (; level < level_count; level++)
        bytes += tail_bytes(d, level);
    out->miptailSize = tiles_for(bytes, TILE_BYTES) * TILE_BYTES; /* of each layer */
    return CUDA_SUCCESS;
}

/* --- Making ---------------------------------------------------------------------------------------- */

/* Give a level its part of the tiles; `*next` is the first that no level has. */
static void level_place(CUarray array, unsigned level, struct tiles *tiles, uint64_t *next, uint64_t *in_tail)
{
    array->tiles = tiles;
    for (unsigned i = 0; i < array->plane_count; i++)
        array->planes[i]->tiles = tiles;
    if (tiles->is_line)
        return; /* array_publish() sets where each lies */
    if (level >= tiles->properties.miptailFirstLevel) {
        array->tail_offset = *in_tail;
        *in_tail += tail_bytes(&tiles->levels[0]->descriptor, level);
        return;
    }
    array->first_tile = *next;
    array->tiles_across = tiles_for(array->row_bytes, tiles->row_bytes);
    array->tiles_down = tiles_for(array->rows, tiles->rows);
    *next += array->tiles_across * array->tiles_down * tiles_for(array->slices, tiles->slices);
}

CUresult tiles_make(CUcontext context, const CUDA_ARRAY3D_DESCRIPTOR *d, CUarray *levels,
                    unsigned level_count, uint64_t bytes, struct tiles **tiles_out)
{
    struct tiles shape = {.context = context, .is_line = !(d->Flags & ARRAY_SPARSE), .layer_count = 1};
    uint64_t count = 0, in_tail = 0;
    if (shape.is_line) {
        shape.tail_tiles = tiles_for(bytes, TILE_BYTES);
    } else {
        unsigned extent[3];
        SIM_TRY(tiles_properties(&shape.properties, d, level_count));
        tile_shape(d, extent);
        shape.is_layered = is_layered(d);
        shape.row_bytes = extent[0] * array_texel_of(d->Format, d->NumChannels).bytes;
        shape.rows = extent[1];
        shape.slices = extent[2];
        shape.layer_count = shape.is_layered ? levels[0]->slices : 1;
        shape.tail_tiles = shape.properties.miptailSize / TILE_BYTES;
        for (unsigned level = 0; level < shape.properties.miptailFirstLevel; level++)
            shape.tail_first += tiles_for(levels[level]->row_bytes, shape.row_bytes) *
                                tiles_for(levels[level]->rows, shape.rows) *
                                tiles_for(levels[level]->slices, shape.slices);
    }
    shape.tile_count = shape.tail_first + shape.tail_tiles * shape.layer_count;
    struct tiles *tiles = calloc(1, sizeof(*tiles) + shape.tile_count * sizeof(struct tile));
    CUarray *own_levels = malloc(level_count * sizeof(CUarray));
    if (!tiles || !own_levels) {
        free(tiles);
        free(own_levels);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *tiles = shape;
    memcpy(own_levels, levels, level_count * sizeof(CUarray));
    tiles->levels = own_levels;
    tiles->level_count = level_count;
    for (unsigned level = 0; level < level_count; level++)
        level_place(levels[level], level, tiles, &count, &in_tail);
    pthread_mutex_lock(&vmm_lock);
    LIST_INSERT_HEAD(&all_tiles, tiles, entry);
    tiles->is_listed = true;
    pthread_mutex_unlock(&vmm_lock);
    *tiles_out = tiles;
    return CUDA_SUCCESS;
}

/* Under vmm_lock. */
static void tile_clear(struct tile *tile)
{
    if (!tile->handle)
        return;
    munmap(tile->memory, TILE_BYTES);
    tile->handle->mappings--;
    handle_settle(tile->handle);
    *tile = (struct tile){0};
}

/* Under vmm_lock. The arrays' structs stay (sim.h), and so does what they point to. */
static void tiles_clear(struct tiles *tiles)
{
    if (!tiles->is_listed)
        return;
    LIST_REMOVE(tiles, entry);
    tiles->is_listed = false;
    for (uint64_t i = 0; i < tiles->tile_count; i++)
        tile_clear(&tiles->tile[i]);
}

void tiles_end(struct tiles *tiles)
{
    pthread_mutex_lock(&vmm_lock);
    tiles_clear(tiles);
    pthread_mutex_unlock(&vmm_lock);
}

void tiles_drop_context(CUcontext context)
{
    pthread_mutex_lock(&vmm_lock);
    for (struct tiles *tiles = LIST_FIRST(&all_tiles), *next; tiles; tiles = next) {
        next = LIST_NEXT(tiles, entry);
        if (tiles->context == context)
            tiles_clear(tiles);
    }
    pthread_mutex_unlock(&vmm_lock);
}

/* --- Where bytes lie ------------------------------------------------------------------------------- */

uint64_t array_at(const struct CUarray_st *array, uint64_t offset, uint64_t *bytes)
{
    const struct tiles *tiles = array->tiles;
    if (!tiles)
        return array->address + offset;
    uint64_t index, inside, slice_bytes = array->row_bytes * array->rows, z = offset / slice_bytes;
    if (array->tiles_across) {
        uint64_t x = offset % array->row_bytes, y = offset % slice_bytes / array->row_bytes;
        index = array->first_tile +
                (z / tiles->slices * array->tiles_down + y / tiles->rows) * array->tiles_across +
                x / tiles->row_bytes;
        inside =
            ((z % tiles->slices) * tiles->rows + y % tiles->rows) * tiles->row_bytes + x % tiles->row_bytes;
        *bytes = least(*bytes, least(array->row_bytes - x, tiles->row_bytes - x % tiles->row_bytes));
    } else {
        uint64_t layer = tiles->is_layered ? z : 0;
        uint64_t in_tail = array->tail_offset + offset - layer * slice_bytes;
        index = tiles->tail_first + layer * tiles->tail_tiles + in_tail / TILE_BYTES;
        inside = in_tail % TILE_BYTES;
        *bytes = least(*bytes, TILE_BYTES - inside);
        if (tiles->is_layered)
            *bytes = least(*bytes, (layer + 1) * slice_bytes - offset);
    }
    const struct tile *tile = &tiles->tile[index];
    return tile->handle ? (uint64_t)(uintptr_t)(tile->memory + inside) : 0;
}

void array_move(const struct CUarray_st *to_array, uint64_t to, const struct CUarray_st *from_array,
                uint64_t from, uint64_t bytes)
{
    while (bytes > 0) {
        uint64_t part = bytes;
        uint64_t from_address = from_array ? array_at(from_array, from, &part) : from;
        uint64_t to_address = to_array ? array_at(to_array, to, &part) : to;
        if (to_address && from_address)
            memmove((void *)(uintptr_t)to_address, (const void *)(uintptr_t)from_address, part);
        else if (to_address)
            memset((void *)(uintptr_t)to_address, 0, part);
        to += part;
        from += part;
        bytes -= part;
    }
}

/* --- Mapping --------------------------------------------------------------------------------------- */

/* A box of tiles of one level, or a run of them. */
struct part {
    uint64_t first, across, down, deep; /* `deep` boxes of `down` rows of `across` tiles */
    uint64_t row_step, slice_step;
};

static CUresult find_tail(const struct tiles *tiles, const CUarrayMapInfo *info, struct part *part)
{
    uint64_t offset = info->subresource.miptail.offset, bytes = info->subresource.miptail.size;
    SIM_REQUIRE(info->subresource.miptail.layer < tiles->layer_count && tiles->tail_tiles > 0);
    SIM_REQUIRE(offset % TILE_BYTES == 0 && bytes % TILE_BYTES == 0 && bytes > 0);
    SIM_REQUIRE(offset <= tiles->tail_tiles * TILE_BYTES && bytes <= tiles->tail_tiles * TILE_BYTES - offset);
    *part = (struct part){.first = tiles->tail_first + info->subresource.miptail.layer * tiles->tail_tiles +
                                   offset / TILE_BYTES,
                          .across = bytes / TILE_BYTES,
                          .down = 1,
                          .deep = 1};
    return CUDA_SUCCESS;
}

/* In one direction: `at` and `extent` in texels, `tile` of them in a tile, `count` tiles. An extent may end
 * where the level does. */
static bool is_whole_tiles(uint64_t at, uint64_t extent, uint64_t tile, uint64_t level_texels)
{
    return at % tile == 0 && extent > 0 && at < level_texels &&
           (extent % tile == 0 ? at + extent <= tiles_for(level_texels, tile) * tile
                               : at + extent == level_texels);
}

static CUresult find_level(const struct tiles *tiles, const CUarrayMapInfo *info, struct part *part)
{
    __typeof__(info->subresource.sparseLevel) at = info->subresource.sparseLevel;
    const CUDA_ARRAY_SPARSE_PROPERTIES *p = &tiles->properties;
    SIM_REQUIRE(at.level < p->miptailFirstLevel && at.layer < tiles->layer_count);
    const struct CUarray_st *array = tiles->levels[at.level];
    const CUDA_ARRAY3D_DESCRIPTOR *d = &array->descriptor;
    uint64_t depth = tiles->is_layered || d->Depth == 0 ? 1 : d->Depth;
    SIM_REQUIRE(is_whole_tiles(at.offsetX, at.extentWidth, p->tileExtent.width, d->Width) &&
                is_whole_tiles(at.offsetY, at.extentHeight, p->tileExtent.height, d->Height) &&
                is_whole_tiles(at.offsetZ, at.extentDepth, p->tileExtent.depth, depth));
    uint64_t slice = tiles->is_layered ? at.layer : at.offsetZ / p->tileExtent.depth;
    part->row_step = array->tiles_across;
    part->slice_step = array->tiles_across * array->tiles_down;
    part->first = array->first_tile + slice * part->slice_step +
                  at.offsetY / p->tileExtent.height * part->row_step + at.offsetX / p->tileExtent.width;
    part->across = tiles_for(at.extentWidth, p->tileExtent.width);
    part->down = tiles_for(at.extentHeight, p->tileExtent.height);
    part->deep = tiles_for(at.extentDepth, p->tileExtent.depth);
    return CUDA_SUCCESS;
}

static CUresult find_part(const CUarrayMapInfo *info, struct tiles **tiles, struct part *part)
{
    switch (info->resourceType) {
    case CU_RESOURCE_TYPE_ARRAY:
        SIM_TRY(array_check(info->resource.array));
        SIM_REQUIRE(!info->resource.array->mipmap && !info->resource.array->whole);
        *tiles = info->resource.array->tiles;
        break;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        SIM_TRY(mipmap_check(info->resource.mipmap));
        *tiles = info->resource.mipmap->levels[0]->tiles;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_REQUIRE(*tiles && (*tiles)->levels[0]->descriptor.Flags & (ARRAY_SPARSE | ARRAY_DEFERRED));
    if ((*tiles)->is_line) {
        *part = (struct part){.across = (*tiles)->tile_count, .down = 1, .deep = 1};
        return CUDA_SUCCESS;
    }
    switch (info->subresourceType) {
    case CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL:
        return find_level(*tiles, info, part);
    case CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL:
        return find_tail(*tiles, info, part);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Under vmm_lock. Tiles follow each other in memory as they do in rows. `handle`: NULL to unmap. */
static CUresult apply(struct tiles *tiles, const struct part *part, struct handle *handle, uint64_t offset)
{
    for (uint64_t i = 0; i < part->across * part->down * part->deep; i++) {
        struct tile *tile = &tiles->tile[part->first + i / (part->across * part->down) * part->slice_step +
                                         i / part->across % part->down * part->row_step + i % part->across];
        void *memory = handle ? mmap(NULL, TILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                                     handle->fd, (off_t)(offset + i * TILE_BYTES))
                              : NULL;
        if (memory == MAP_FAILED)
            return CUDA_ERROR_OUT_OF_MEMORY;
        if (handle) {
            madvise(memory, TILE_BYTES, MADV_DONTFORK);
            handle->mappings++;
        }
        tile_clear(tile);
        *tile = (struct tile){.handle = handle, .memory = memory};
    }
    return CUDA_SUCCESS;
}

CUresult tiles_map(struct tiles *tiles, struct handle *handle, uint64_t offset)
{
    const struct part all = {.across = tiles->tile_count, .down = 1, .deep = 1};
    pthread_mutex_lock(&vmm_lock);
    CUresult result = apply(tiles, &all, handle, offset);
    pthread_mutex_unlock(&vmm_lock);
    return result;
}

/* Under vmm_lock. */
static CUresult map_part(const CUarrayMapInfo *info, const struct CUctx_st *context, bool only_check)
{
    struct tiles *tiles;
    struct part part = {0};
    struct handle *handle = NULL;
    SIM_TRY(find_part(info, &tiles, &part));
    SIM_REQUIRE(info->flags == 0 && info->reserved[0] == 0 && info->reserved[1] == 0);
    SIM_REQUIRE(info->deviceBitMask == 1u << context->device && tiles->context->gpu == context->gpu);
    if (info->memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
        handle = handle_of(info->memHandle.memHandle);
        SIM_REQUIRE(info->memHandleType == CU_MEM_HANDLE_TYPE_GENERIC && handle && handle->references > 0);
        SIM_REQUIRE(handle->is_device && handle->gpu == context->gpu && info->offset % TILE_BYTES == 0);
        SIM_REQUIRE(tiles->is_line || handle->properties.allocFlags.usage & USAGE_TILE_POOL);
        SIM_REQUIRE(info->offset <= handle->bytes &&
                    part.across * part.down * part.deep * TILE_BYTES <= handle->bytes - info->offset);
    } else {
        SIM_REQUIRE(info->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP && !info->memHandle.memHandle);
    }
    return only_check ? CUDA_SUCCESS : apply(tiles, &part, handle, info->offset);
}

/* Check all mappings before doing the first. */
static CUresult map_arrays(const CUarrayMapInfo *infos, unsigned count, CUstream handle, bool per_thread)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(infos && count > 0);
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&vmm_lock);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = map_part(&infos[i], context, true);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = map_part(&infos[i], context, false);
    pthread_mutex_unlock(&vmm_lock);
    return result;
}

SIM_FORMS(cuMemMapArrayAsync, _ptsz, (CUarrayMapInfo * infos, unsigned int count, CUstream stream),
          map_arrays(infos, count, stream, per_thread))
