/* Tests of memory mapped into sparse arrays, and into those of deferred mapping. The GPU has 64 MiB; contexts
 * cost nothing. */
#include "simulated.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda/driver_more.h"

#define TOTAL (64 * MIB)
#define TILE (64 * KIB)
#define SPARSE 0x40u
#define DEFERRED 0x80u
#define LAYERED 0x01u

/* One channel of 32 bits: tiles of 128 x 128, or 32 x 32 x 16. */
static CUDA_ARRAY3D_DESCRIPTOR of(size_t width, size_t height, size_t depth, unsigned flags)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = width,
                                     .Height = height,
                                     .Depth = depth,
                                     .Format = CU_AD_FORMAT_UNSIGNED_INT32,
                                     .NumChannels = 1,
                                     .Flags = flags};
}

static CUarray array_of(size_t width, size_t height, size_t depth, unsigned flags)
{
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR how = of(width, height, depth, flags);
    assert_cuda(cuArray3DCreate_v2(&array, &how));
    return array;
}

static CUmemGenericAllocationHandle memory_of(size_t bytes, unsigned short usage)
{
    CUmemGenericAllocationHandle memory;
    const CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                     .allocFlags.usage = usage};
    assert_cuda(cuMemCreate(&memory, bytes, &how, 0));
    return memory;
}

static CUarrayMapInfo tile_at(CUarray array, unsigned x, unsigned y, unsigned layer)
{
    return (CUarrayMapInfo){.resourceType = CU_RESOURCE_TYPE_ARRAY,
                            .resource.array = array,
                            .subresource.sparseLevel = {.layer = layer,
                                                        .offsetX = x,
                                                        .offsetY = y,
                                                        .extentWidth = 128,
                                                        .extentHeight = 128,
                                                        .extentDepth = 1},
                            .memOperationType = CU_MEM_OPERATION_TYPE_UNMAP,
                            .deviceBitMask = 1};
}

static CUarrayMapInfo mapped(CUarrayMapInfo part, CUmemGenericAllocationHandle memory, uint64_t offset)
{
    part.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    part.memHandle.memHandle = memory;
    part.offset = offset;
    return part;
}

static CUresult apply(CUarrayMapInfo part)
{
    return cuMemMapArrayAsync(&part, 1, NULL);
}

static CUDA_MEMCPY3D whole(CUarray array, void *host, size_t width, size_t height, size_t depth,
                           bool is_write)
{
    CUDA_MEMCPY3D copy = {.WidthInBytes = width * 4, .Height = height, .Depth = depth};
    copy.srcMemoryType = is_write ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
    copy.dstMemoryType = is_write ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
    copy.srcHost = copy.dstHost = host;
    copy.srcArray = copy.dstArray = array;
    copy.srcPitch = copy.dstPitch = width * 4;
    copy.srcHeight = copy.dstHeight = height;
    return copy;
}

static void fill(CUarray array, unsigned first, size_t width, size_t height, size_t depth)
{
    uint32_t *values = malloc(width * height * depth * 4);
    for (size_t i = 0; i < width * height * depth; i++)
        values[i] = (uint32_t)(first + i);
    CUDA_MEMCPY3D copy = whole(array, values, width, height, depth, true);
    assert_cuda(cuMemcpy3D_v2(&copy));
    free(values);
}

/* What is there: how many texels are as fill() left them; all others are 0. */
static size_t kept(CUarray array, unsigned first, size_t width, size_t height, size_t depth)
{
    size_t count = 0, size = width * height * depth;
    uint32_t *values = malloc(size * 4);
    memset(values, 0xff, size * 4);
    CUDA_MEMCPY3D copy = whole(array, values, width, height, depth, false);
    assert_cuda(cuMemcpy3D_v2(&copy));
    for (size_t i = 0; i < size; i++) {
        if (values[i] == (uint32_t)(first + i))
            count++;
        else
            assert_int_equal(values[i], 0);
    }
    free(values);
    return count;
}

static void what_is_not_mapped_reads_as_0_and_keeps_nothing(void **state)
{
    CUarray array = array_of(200, 300, 0, SPARSE); /* 2 x 3 tiles, those at the edges partly used */
    CUmemGenericAllocationHandle memory = memory_of(2 * MIB, 1);
    fill(array, 1, 200, 300, 1);
    assert_int_equal(kept(array, 1, 200, 300, 1), 0);
    assert_cuda(apply(mapped(tile_at(array, 0, 128, 0), memory, TILE)));
    fill(array, 1, 200, 300, 1);
    assert_int_equal(kept(array, 1, 200, 300, 1), 128 * 128);
    assert_cuda(apply(mapped(tile_at(array, 128, 256, 0), memory, 5 * TILE)));
    fill(array, 1, 200, 300, 1);
    assert_int_equal(kept(array, 1, 200, 300, 1), 128 * 128 + (200 - 128) * (300 - 256));
    assert_cuda(apply(tile_at(array, 0, 128, 0)));
    assert_int_equal(kept(array, 1, 200, 300, 1), (200 - 128) * (300 - 256));
    assert_cuda(cuMemRelease(memory));
    assert_cuda(cuArrayDestroy(array));
    assert_int_equal(simulated_free_bytes(), TOTAL);
}

static void a_tile_in_two_arrays_is_the_same_bytes(void **state)
{
    CUarray first = array_of(128, 128, 0, SPARSE), second = array_of(256, 128, 0, SPARSE);
    CUmemGenericAllocationHandle memory = memory_of(2 * MIB, 1);
    uint32_t values[128];
    assert_cuda(apply(mapped(tile_at(first, 0, 0, 0), memory, 3 * TILE)));
    assert_cuda(apply(mapped(tile_at(second, 128, 0, 0), memory, 3 * TILE)));
    fill(first, 7, 128, 128, 1);
    const CUDA_MEMCPY2D row = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                               .srcArray = second,
                               .srcXInBytes = 512,
                               .srcY = 5,
                               .dstMemoryType = CU_MEMORYTYPE_HOST,
                               .dstHost = values,
                               .WidthInBytes = 512,
                               .Height = 1};
    assert_cuda(cuMemcpy2D_v2(&row));
    for (unsigned i = 0; i < 128; i++)
        assert_int_equal(values[i], 7 + 5 * 128 + i);
    assert_cuda(cuMemcpyAtoH_v2(values, second, 5 * 1024 + 512, sizeof(values)));
    assert_int_equal(values[127], 7 + 5 * 128 + 127);
    assert_cuda(cuMemRelease(memory));
    assert_cuda(cuArrayDestroy(first));
    assert_cuda(cuArrayDestroy(second));
}

static void layers_and_volumes_are_mapped_tile_by_tile(void **state)
{
    CUarray layers = array_of(128, 256, 3, SPARSE | LAYERED), volume = array_of(64, 40, 20, SPARSE);
    CUmemGenericAllocationHandle memory = memory_of(2 * MIB, 1);
    assert_cuda(apply(mapped(tile_at(layers, 0, 128, 2), memory, 0)));
    fill(layers, 1, 128, 256, 3);
    assert_int_equal(kept(layers, 1, 128, 256, 3), 128 * 128);
    CUarrayMapInfo part = tile_at(volume, 32, 32, 0);
    part.subresource.sparseLevel.extentWidth = 32;
    part.subresource.sparseLevel.extentHeight = 8; /* up to where the array ends */
    part.subresource.sparseLevel.offsetZ = 16;
    part.subresource.sparseLevel.extentDepth = 4;
    assert_cuda(apply(mapped(part, memory, 2 * TILE)));
    fill(volume, 1, 64, 40, 20);
    assert_int_equal(kept(volume, 1, 64, 40, 20), 32 * 8 * 4);
    part.subresource.sparseLevel.offsetX = 0;
    part.subresource.sparseLevel.offsetY = 0;
    part.subresource.sparseLevel.offsetZ = 0;
    part.subresource.sparseLevel.extentWidth = 64;
    part.subresource.sparseLevel.extentHeight = 64;
    part.subresource.sparseLevel.extentDepth = 32;
    assert_cuda(apply(mapped(part, memory, 0)));
    fill(volume, 1, 64, 40, 20);
    assert_int_equal(kept(volume, 1, 64, 40, 20), 64 * 40 * 20);
    assert_cuda(cuMemRelease(memory));
    assert_cuda(cuArrayDestroy(layers));
    assert_cuda(cuArrayDestroy(volume));
    assert_int_equal(simulated_free_bytes(), TOTAL);
}

static size_t at_level(size_t extent, unsigned level)
{
    return extent >> level ? extent >> level : 1;
}

static void the_tail_holds_the_levels_that_are_smaller_than_a_tile(void **state)
{
    CUmipmappedArray mipmap;
    CUarray levels[10];
    CUDA_ARRAY_SPARSE_PROPERTIES properties;
    CUDA_ARRAY3D_DESCRIPTOR how = of(1020, 250, 0, SPARSE);
    CUmemGenericAllocationHandle memory = memory_of(4 * MIB, 1);
    assert_cuda(cuMipmappedArrayCreate(&mipmap, &how, 10));
    assert_cuda(cuMipmappedArrayGetSparseProperties(&properties, mipmap));
    assert_int_equal(properties.miptailFirstLevel, 1);
    uint64_t bytes = 0;
    for (unsigned level = 1; level < 10; level++)
        bytes += (uint64_t)(at_level(1020, level)) * (at_level(250, level)) * 4;
    assert_int_equal(properties.miptailSize, (bytes + TILE - 1) / TILE * TILE);
    assert_int_equal(properties.miptailSize, 6 * TILE);
    CUarrayMapInfo tail = {.resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
                           .resource.mipmap = mipmap,
                           .subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL,
                           .subresource.miptail.size = properties.miptailSize,
                           .deviceBitMask = 1};
    assert_cuda(apply(mapped(tail, memory, 2 * MIB)));
    for (unsigned level = 0; level < 10; level++) {
        assert_cuda(cuMipmappedArrayGetLevel(&levels[level], mipmap, level));
        fill(levels[level], 1 + 100000 * level, at_level(1020, level), at_level(250, level), 1);
    }
    assert_int_equal(kept(levels[0], 1, 1020, 250, 1), 0);
    for (unsigned level = 1; level < 10; level++) {
        size_t width = at_level(1020, level), height = at_level(250, level);
        assert_int_equal(kept(levels[level], 1 + 100000 * level, width, height, 1), width * height);
    }
    CUarrayMapInfo level = tile_at(levels[1], 0, 0, 0);
    assert_int_equal(apply(mapped(level, memory, 0)), CUDA_ERROR_INVALID_VALUE); /* by the mipmap only */
    level.resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    level.resource.mipmap = mipmap;
    level.subresource.sparseLevel.extentWidth = 1024;
    level.subresource.sparseLevel.extentHeight = 256;
    assert_cuda(apply(mapped(level, memory, 0)));
    fill(levels[0], 3, 1020, 250, 1);
    assert_int_equal(kept(levels[0], 3, 1020, 250, 1), 1020 * 250);
    level.subresource.sparseLevel.level = 1;
    assert_int_equal(apply(mapped(level, memory, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemRelease(memory));
    assert_int_equal(simulated_free_bytes(), TOTAL - 4 * MIB);
    assert_cuda(cuMipmappedArrayDestroy(mipmap));
    assert_int_equal(simulated_free_bytes(), TOTAL);
}

static void a_deferred_array_is_mapped_in_one_piece(void **state)
{
    CUarray array = array_of(500, 300, 0, DEFERRED);
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    assert_cuda(cuArrayGetMemoryRequirements(&needs, array, 0));
    CUmemGenericAllocationHandle memory = memory_of(2 * MIB, 0);
    CUarrayMapInfo all = {
        .resourceType = CU_RESOURCE_TYPE_ARRAY, .resource.array = array, .deviceBitMask = 1};
    assert_int_equal(apply(mapped(all, memory, 2 * MIB - needs.size + TILE)), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(apply(mapped(all, memory, 2 * MIB - needs.size)));
    assert_cuda(cuMemRelease(memory));
    fill(array, 9, 500, 300, 1);
    assert_int_equal(kept(array, 9, 500, 300, 1), 500 * 300);
    assert_int_equal(simulated_free_bytes(), TOTAL - 2 * MIB);
    all.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
    assert_cuda(apply(all));
    assert_int_equal(simulated_free_bytes(), TOTAL);
    assert_int_equal(kept(array, 9, 500, 300, 1), 0);
    assert_cuda(cuArrayDestroy(array));
}

static void mapping_what_does_not_go_is_refused_and_changes_nothing(void **state)
{
    CUarray array = array_of(256, 256, 0, SPARSE), plain = array_of(256, 256, 0, 0);
    uint64_t before = simulated_free_bytes();
    CUmemGenericAllocationHandle memory = memory_of(2 * MIB, 1), other = memory_of(2 * MIB, 0);
    CUarrayMapInfo part = tile_at(array, 0, 0, 0);
    assert_int_equal(apply(mapped(tile_at(plain, 0, 0, 0), memory, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(apply(mapped(part, other, 0)), CUDA_ERROR_INVALID_VALUE); /* no tile pool */
    assert_int_equal(apply(mapped(part, memory, TILE / 2)), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(apply(mapped(part, memory, 2 * MIB)), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(apply(mapped(tile_at(array, 64, 0, 0), memory, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(apply(mapped(tile_at(array, 256, 0, 0), memory, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(apply(mapped(tile_at(array, 0, 0, 1), memory, 0)), CUDA_ERROR_INVALID_VALUE);
    part.deviceBitMask = 2;
    assert_int_equal(apply(mapped(part, memory, 0)), CUDA_ERROR_INVALID_VALUE);
    part.deviceBitMask = 1;
    part.memHandle.memHandle = memory;
    assert_int_equal(apply(part), CUDA_ERROR_INVALID_VALUE); /* an unmap names no memory */
    CUarrayMapInfo both[2] = {mapped(tile_at(array, 0, 0, 0), memory, 0),
                              mapped(tile_at(array, 64, 0, 0), memory, 0)};
    assert_int_equal(cuMemMapArrayAsync(both, 2, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemRelease(memory));
    assert_cuda(cuMemRelease(other));
    assert_int_equal(simulated_free_bytes(), before); /* so the first of both was not mapped */
    assert_cuda(cuArrayDestroy(array));
    assert_cuda(cuArrayDestroy(plain));
}

static void tiles_go_with_the_context_of_their_array(void **state)
{
    CUcontext other;
    assert_cuda(cuCtxCreate_v2(&other, 0, 0));
    CUarray array = array_of(128, 128, 0, SPARSE);
    CUmemGenericAllocationHandle memory = memory_of(2 * MIB, 1);
    assert_cuda(apply(mapped(tile_at(array, 0, 0, 0), memory, 0)));
    assert_cuda(cuMemRelease(memory));
    assert_int_equal(simulated_free_bytes(), TOTAL - 2 * MIB);
    assert_cuda(cuCtxDestroy_v2(other));
    assert_int_equal(simulated_free_bytes(), TOTAL);
}

static void an_array_on_external_memory_is_its_bytes(void **state)
{
    CUexternalMemory external;
    CUmipmappedArray mipmap;
    CUarray level;
    uint32_t last;
    int fd = memfd_create("other API", 0);
    assert_int_equal(ftruncate(fd, 2 * MIB), 0);
    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC memory = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = dup(fd), .size = 2 * MIB};
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC how = {
        .offset = TILE, .arrayDesc = of(256, 128, 0, 0), .numLevels = 3};
    assert_cuda(cuImportExternalMemory(&external, &memory));
    assert_cuda(cuExternalMemoryGetMappedMipmappedArray(&mipmap, external, &how));
    assert_int_equal(simulated_free_bytes(), TOTAL);
    for (unsigned i = 0; i < 3; i++) {
        assert_cuda(cuMipmappedArrayGetLevel(&level, mipmap, i));
        fill(level, 5, at_level(256, i), at_level(128, i), 1);
    }
    assert_cuda(cuDestroyExternalMemory(external)); /* what is mapped stays */
    for (unsigned i = 0; i < 3; i++) {
        assert_cuda(cuMipmappedArrayGetLevel(&level, mipmap, i));
        assert_int_equal(kept(level, 5, at_level(256, i), at_level(128, i), 1),
                         at_level(256, i) * at_level(128, i));
    }
    assert_int_equal(pread(fd, &last, 4, (off_t)(TILE + 256 * 128 * 4 - 4)), 4);
    assert_int_equal(last, 5 + 256 * 128 - 1);
    CUarrayMapInfo all = {.resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
                          .resource.mipmap = mipmap,
                          .memOperationType = CU_MEM_OPERATION_TYPE_UNMAP,
                          .deviceBitMask = 1};
    assert_int_equal(apply(all), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMipmappedArrayDestroy(mipmap));
    close(fd);
}

static void an_array_that_external_memory_does_not_hold_is_refused(void **state)
{
    CUexternalMemory external;
    CUmipmappedArray mipmap;
    int fd = memfd_create("other API", 0);
    assert_int_equal(ftruncate(fd, 2 * TILE), 0);
    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC memory = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd, .size = 2 * TILE};
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC how = {.arrayDesc = of(256, 128, 0, 0), .numLevels = 1};
    assert_cuda(cuImportExternalMemory(&external, &memory));
    assert_cuda(cuExternalMemoryGetMappedMipmappedArray(&mipmap, external, &how));
    assert_cuda(cuMipmappedArrayDestroy(mipmap));
    how.numLevels = 2;
    assert_int_equal(cuExternalMemoryGetMappedMipmappedArray(&mipmap, external, &how),
                     CUDA_ERROR_INVALID_VALUE);
    how.numLevels = 1;
    how.offset = TILE;
    assert_int_equal(cuExternalMemoryGetMappedMipmappedArray(&mipmap, external, &how),
                     CUDA_ERROR_INVALID_VALUE);
    how.offset = 0;
    how.arrayDesc.Flags = SPARSE;
    assert_int_equal(cuExternalMemoryGetMappedMipmappedArray(&mipmap, external, &how),
                     CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuDestroyExternalMemory(external));
    assert_int_equal(cuExternalMemoryGetMappedMipmappedArray(&mipmap, external, &how),
                     CUDA_ERROR_INVALID_HANDLE);
}

static int initialise(void **state)
{
    CUcontext context;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=64MiB", "FAKECUDA_CONTEXT_BYTES=0", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_mapped_reads_as_0_and_keeps_nothing),
        cmocka_unit_test(a_tile_in_two_arrays_is_the_same_bytes),
        cmocka_unit_test(layers_and_volumes_are_mapped_tile_by_tile),
        cmocka_unit_test(the_tail_holds_the_levels_that_are_smaller_than_a_tile),
        cmocka_unit_test(a_deferred_array_is_mapped_in_one_piece),
        cmocka_unit_test(mapping_what_does_not_go_is_refused_and_changes_nothing),
        cmocka_unit_test(an_array_on_external_memory_is_its_bytes),
        cmocka_unit_test(an_array_that_external_memory_does_not_hold_is_refused),
        cmocka_unit_test(tiles_go_with_the_context_of_their_array),
    };
    int failed = cmocka_run_group_tests(tests, initialise, NULL);
    simulated_remove();
    return failed;
}
