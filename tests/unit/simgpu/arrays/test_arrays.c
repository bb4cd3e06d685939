/* Tests of arrays and mipmapped arrays: what they take, what they hold, and copies to and from them. */
#include "simulated.h"

#include <string.h>

#define TOTAL (64 * MIB)
#define PAGE (64 * KIB)

static CUcontext context;

static CUDA_ARRAY3D_DESCRIPTOR of(size_t width, size_t height, size_t depth, unsigned flags)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = width,
                                     .Height = height,
                                     .Depth = depth,
                                     .Format = CU_AD_FORMAT_FLOAT,
                                     .NumChannels = 1,
                                     .Flags = flags};
}

/* What an array of this shape takes of the device. */
static uint64_t taken(CUDA_ARRAY3D_DESCRIPTOR descriptor)
{
    CUarray array;
    uint64_t before = simulated_free_bytes();
    assert_cuda(cuArray3DCreate_v2(&array, &descriptor));
    uint64_t bytes = before - simulated_free_bytes();
    assert_cuda(cuArrayDestroy(array));
    assert_int_equal(simulated_free_bytes(), before);
    assert_int_equal(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    return bytes;
}

static void arrays_take_whole_blocks_in_pages_of_64_kib(void **state)
{
    assert_int_equal(taken(of(1, 0, 0, 0)), PAGE);
    assert_int_equal(taken(of(16384, 0, 0, 0)), PAGE);
    assert_int_equal(taken(of(16385, 0, 0, 0)), 2 * PAGE);
    /* 1000 x 4 bytes are 63 blocks of 64 bytes; 1000 rows are 8 blocks of 128. */
    assert_int_equal(taken(of(1000, 1000, 0, 0)), 63 * PAGE);
    /* 9 rows need a block of 16. */
    assert_int_equal(taken(of(1024, 9, 0, 0)), PAGE);
    assert_int_equal(taken(of(1024, 17, 0, 0)), 2 * PAGE);
    /* Five layers each begin anew; five slices of a volume make eight. */
    assert_int_equal(taken(of(1024, 16, 5, 1)), 5 * PAGE);
    assert_int_equal(taken(of(1024, 16, 5, 0)), 8 * PAGE);
    assert_int_equal(taken(of(128, 128, 6, 4)), 6 * PAGE);
    assert_int_equal(taken(of(128, 128, 12, 5)), 12 * PAGE);
}

static void an_array_that_does_not_fit_is_refused(void **state)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = of(4096, 4096, 0, 0);
    CUarray array, other;
    assert_cuda(cuArray3DCreate_v2(&array, &descriptor));
    assert_int_equal(simulated_free_bytes(), 0);
    assert_int_equal(cuArray3DCreate_v2(&other, &descriptor), CUDA_ERROR_OUT_OF_MEMORY);
    assert_cuda(cuArrayDestroy(array));
    assert_int_equal(simulated_free_bytes(), TOTAL);
}

static void descriptors_are_checked_and_told_again(void **state)
{
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR wrong[] = {
        of(0, 1, 0, 0),     of(8, 0, 8, 0),      of(8, 8, 5, 4),     of(8, 9, 6, 4),     of(8, 8, 7, 5),
        of(8, 8, 0, 1),     of(131073, 0, 0, 0), of(8, 65537, 0, 0), of(16385, 8, 8, 0), of(8, 0, 0, 8),
        of(8, 8, 0, 0x200), of(8, 8, 2049, 1),   of(8, 0, 0, 0x40),
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(cuArray3DCreate_v2(&array, &wrong[i]), CUDA_ERROR_INVALID_VALUE);
    CUDA_ARRAY3D_DESCRIPTOR three = of(8, 8, 0, 0), got;
    three.NumChannels = 3;
    assert_int_equal(cuArray3DCreate_v2(&array, &three), CUDA_ERROR_INVALID_VALUE);
    three.NumChannels = 4;
    three.Flags = 2;
    assert_cuda(cuArray3DCreate_v2(&array, &three));
    assert_cuda(cuArray3DGetDescriptor_v2(&got, array));
    assert_memory_equal(&got, &three, sizeof(got));
    CUDA_ARRAY_DESCRIPTOR flat;
    assert_cuda(cuArrayGetDescriptor_v2(&flat, array));
    assert_int_equal(flat.Width, 8);
    assert_int_equal(flat.NumChannels, 4);
    CUDA_ARRAY_DESCRIPTOR_v1 old;
    assert_cuda(cuArrayGetDescriptor(&old, array));
    assert_int_equal(old.Height, 8);
    assert_cuda(cuArrayDestroy(array));
    assert_int_equal(cuArray3DGetDescriptor_v2(&got, array), CUDA_ERROR_INVALID_HANDLE);
}

static void planes_are_arrays_of_their_own(void **state)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {
        .Width = 256, .Height = 128, .Format = CU_AD_FORMAT_NV12, .NumChannels = 3};
    CUarray array, luma, chroma, none;
    CUDA_ARRAY_DESCRIPTOR flat;
    assert_cuda(cuArray3DCreate_v2(&array, &descriptor));
    assert_int_equal(simulated_free_bytes(), TOTAL - PAGE); /* 32 + 16 KiB */
    assert_cuda(cuArrayGetPlane(&luma, array, 0));
    assert_cuda(cuArrayGetPlane(&chroma, array, 1));
    assert_int_equal(cuArrayGetPlane(&none, array, 2), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuArrayGetDescriptor_v2(&flat, chroma));
    assert_int_equal(flat.Width, 128);
    assert_int_equal(flat.Height, 64);
    assert_int_equal(flat.NumChannels, 2);
    char row[256], back[256];
    memset(row, 3, sizeof(row));
    assert_cuda(cuMemcpyHtoA_v2(luma, 127 * 256, row, 256));
    memset(row, 4, sizeof(row));
    assert_cuda(cuMemcpyHtoA_v2(chroma, 0, row, 256));
    assert_cuda(cuMemcpyAtoH_v2(back, luma, 127 * 256, 256));
    assert_int_equal(back[255], 3);
    assert_int_equal(cuArrayDestroy(luma), CUDA_ERROR_INVALID_HANDLE);
    assert_cuda(cuArrayDestroy(array));
    assert_int_equal(cuMemcpyAtoH_v2(back, luma, 0, 256), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(simulated_free_bytes(), TOTAL);
}

static void boxes_come_back_as_they_went(void **state)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = of(20, 10, 6, 0);
    CUarray array;
    CUdeviceptr pointer;
    size_t pitch;
    static float source[4][6][10], back[4][6][10];
    for (unsigned i = 0; i < 240; i++)
        ((float *)source)[i] = (float)i + 1;
    assert_cuda(cuArray3DCreate_v2(&array, &descriptor));
    assert_cuda(cuMemAllocPitch_v2(&pointer, &pitch, 40, 4 * 6, 4));
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = source,
                          .srcPitch = 40,
                          .srcHeight = 6,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .dstXInBytes = 40,
                          .dstY = 4,
                          .dstZ = 2,
                          .WidthInBytes = 40,
                          .Height = 6,
                          .Depth = 4};
    assert_cuda(cuMemcpy3D_v2(&copy));
    copy.dstZ = 3;
    assert_int_equal(cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.dstZ = 2;
    copy.dstXInBytes = 39;
    assert_int_equal(cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY3D to_device = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                               .srcArray = array,
                               .srcXInBytes = 40,
                               .srcY = 4,
                               .srcZ = 2,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = pointer,
                               .dstPitch = pitch,
                               .dstHeight = 6,
                               .WidthInBytes = 40,
                               .Height = 6,
                               .Depth = 4};
    assert_cuda(cuMemcpy3DAsync_v2(&to_device, NULL));
    to_device.dstHeight = 7; /* beyond the allocation then */
    assert_int_equal(cuMemcpy3DAsync_v2(&to_device, NULL), CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY3D_PEER to_host = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                  .srcDevice = pointer,
                                  .srcContext = context,
                                  .srcPitch = pitch,
                                  .srcHeight = 6,
                                  .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                  .dstDevice = (CUdeviceptr)(uintptr_t)back,
                                  .dstContext = context,
                                  .dstPitch = 40,
                                  .dstHeight = 6,
                                  .WidthInBytes = 40,
                                  .Height = 6,
                                  .Depth = 4};
    assert_cuda(cuMemcpy3DPeer(&to_host));
    assert_memory_equal(back, source, sizeof(back));
    to_host.srcContext = NULL;
    assert_int_equal(cuMemcpy3DPeer(&to_host), CUDA_ERROR_INVALID_CONTEXT);
    assert_cuda(cuMemFree_v2(pointer));
    assert_cuda(cuArrayDestroy(array));
}

static void lines_go_between_arrays_host_and_device(void **state)
{
    CUDA_ARRAY_DESCRIPTOR descriptor = {
        .Width = 1000, .Format = CU_AD_FORMAT_UNSIGNED_INT16, .NumChannels = 1};
    CUarray first, second;
    CUdeviceptr pointer;
    uint16_t source[1000], back[1000] = {0};
    for (unsigned i = 0; i < 1000; i++)
        source[i] = (uint16_t)(i * 7);
    assert_cuda(cuArrayCreate_v2(&first, &descriptor));
    assert_cuda(cuArrayCreate_v2(&second, &descriptor));
    assert_cuda(cuMemAlloc_v2(&pointer, 2000));
    assert_cuda(cuMemcpyHtoAAsync_v2(first, 0, source, 2000, NULL));
    assert_cuda(cuMemcpyAtoA_v2(second, 0, first, 1000, 1000));
    assert_cuda(cuMemcpyAtoA(second, 1000, first, 0, 1000));
    assert_cuda(cuMemcpyAtoD_v2(pointer, second, 0, 2000));
    assert_cuda(cuMemcpyDtoA_v2(first, 0, pointer, 2000));
    assert_cuda(cuMemcpyAtoHAsync_v2(back, first, 0, 2000, NULL));
    assert_memory_equal(back, source + 500, 1000);
    assert_memory_equal(back + 500, source, 1000);
    assert_int_equal(cuMemcpyAtoH_v2(back, first, 2, 2000), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyAtoH_v2(back, first, 1, 2), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyAtoH_v2(back, NULL, 0, 2), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemFree_v2(pointer));
    assert_cuda(cuArrayDestroy(first));
    assert_cuda(cuArrayDestroy(second));
}

static void mipmaps_take_all_their_levels(void **state)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = of(256, 256, 0, 0);
    CUmipmappedArray mipmap;
    CUarray level, none;
    CUDA_ARRAY3D_DESCRIPTOR got;
    assert_cuda(cuMipmappedArrayCreate(&mipmap, &descriptor, 100));
    /* 256, 64, 16, 4 KiB, then whole blocks of 64 x 16, 8, 8, 8, 8 rows */
    assert_int_equal(TOTAL - simulated_free_bytes(), 6 * PAGE);
    assert_cuda(cuMipmappedArrayGetLevel(&level, mipmap, 8));
    assert_int_equal(cuMipmappedArrayGetLevel(&none, mipmap, 9), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuArray3DGetDescriptor_v2(&got, level));
    assert_int_equal(got.Width, 1);
    float value = 5, back = 0;
    assert_cuda(cuMemcpyHtoA_v2(level, 0, &value, 4));
    assert_cuda(cuMemcpyAtoH_v2(&back, level, 0, 4));
    assert_true(back == 5);
    assert_int_equal(cuArrayDestroy(level), CUDA_ERROR_INVALID_HANDLE);
    assert_cuda(cuMipmappedArrayDestroy(mipmap));
    assert_int_equal(cuMipmappedArrayDestroy(mipmap), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(simulated_free_bytes(), TOTAL);
    assert_int_equal(cuMipmappedArrayCreate(&mipmap, &descriptor, 0), CUDA_ERROR_INVALID_VALUE);
}

static void sparse_and_deferred_arrays_take_nothing(void **state)
{
    CUDA_ARRAY3D_DESCRIPTOR sparse = of(4096, 8192, 0, 0x40), deferred = of(1024, 1024, 0, 0x80);
    CUDA_ARRAY_SPARSE_PROPERTIES properties;
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    CUmipmappedArray mipmap;
    CUarray array;
    assert_cuda(cuArray3DCreate_v2(&array, &sparse));
    assert_int_equal(simulated_free_bytes(), TOTAL);
    assert_cuda(cuArrayGetSparseProperties(&properties, array));
    assert_int_equal(properties.tileExtent.width * properties.tileExtent.height * 4, PAGE);
    assert_int_equal(properties.miptailFirstLevel, 1);
    assert_int_equal(properties.miptailSize, 0);
    assert_int_equal(cuArrayGetMemoryRequirements(&needs, array, 0), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuArrayDestroy(array));
    assert_cuda(cuMipmappedArrayCreate(&mipmap, &sparse, 20));
    assert_cuda(cuMipmappedArrayGetSparseProperties(&properties, mipmap));
    assert_int_equal(properties.miptailFirstLevel, 6);
    assert_int_equal(properties.miptailSize, PAGE);
    assert_cuda(cuMipmappedArrayDestroy(mipmap));
    assert_cuda(cuArray3DCreate_v2(&array, &deferred));
    assert_int_equal(simulated_free_bytes(), TOTAL);
    assert_cuda(cuArrayGetMemoryRequirements(&needs, array, 0));
    assert_int_equal(needs.size, 4 * MIB);
    assert_int_equal(needs.alignment, PAGE);
    assert_int_equal(cuArrayGetSparseProperties(&properties, array), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuArrayDestroy(array));
}

static void arrays_go_with_their_context(void **state)
{
    CUcontext other;
    CUarray array, sparse_array;
    CUDA_ARRAY3D_DESCRIPTOR descriptor = of(1024, 1024, 0, 0), sparse = of(1024, 1024, 0, 0x40);
    assert_cuda(cuCtxCreate_v2(&other, 0, 0));
    assert_cuda(cuArray3DCreate_v2(&array, &descriptor));
    assert_cuda(cuArray3DCreate_v2(&sparse_array, &sparse));
    assert_int_equal(simulated_free_bytes(), TOTAL - 4 * MIB);
    assert_cuda(cuCtxDestroy_v2(other));
    assert_int_equal(simulated_free_bytes(), TOTAL);
    assert_int_equal(cuArrayDestroy(array), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

static void textures_and_surfaces_remember_what_they_are_of(void **state)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = of(64, 64, 0, 0);
    CUarray plain, surface_array;
    CUtexObject texture;
    CUsurfObject surface;
    assert_cuda(cuArray3DCreate_v2(&plain, &descriptor));
    descriptor.Flags = 2;
    assert_cuda(cuArray3DCreate_v2(&surface_array, &descriptor));
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY}, got;
    CUDA_TEXTURE_DESC sampling = {.filterMode = CU_TR_FILTER_MODE_LINEAR}, got_sampling;
    resource.res.array.hArray = plain;
    assert_int_equal(cuSurfObjectCreate(&surface, &resource), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuTexObjectCreate(&texture, &resource, &sampling, NULL));
    assert_cuda(cuTexObjectGetResourceDesc(&got, texture));
    assert_ptr_equal(got.res.array.hArray, plain);
    assert_cuda(cuTexObjectGetTextureDesc(&got_sampling, texture));
    assert_int_equal(got_sampling.filterMode, CU_TR_FILTER_MODE_LINEAR);
    resource.res.array.hArray = surface_array;
    assert_cuda(cuSurfObjectCreate(&surface, &resource));
    assert_int_equal(cuTexObjectDestroy(surface), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuSurfObjectDestroy(surface));
    assert_cuda(cuTexObjectDestroy(texture));
    assert_int_equal(cuTexObjectDestroy(texture), CUDA_ERROR_INVALID_VALUE);
    resource = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_LINEAR};
    resource.res.linear.devPtr = 4096;
    resource.res.linear.format = CU_AD_FORMAT_FLOAT;
    resource.res.linear.numChannels = 1;
    resource.res.linear.sizeInBytes = 4;
    assert_int_equal(cuTexObjectCreate(&texture, &resource, &sampling, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuArrayDestroy(plain));
    assert_cuda(cuArrayDestroy(surface_array));
}

static void batches_copy_all_or_say_which_is_wrong(void **state)
{
    CUdeviceptr first, second;
    CUstream stream;
    char source[100], back[100];
    memset(source, 6, sizeof(source));
    assert_cuda(cuStreamCreate(&stream, 0));
    assert_cuda(cuMemAlloc_v2(&first, 100));
    assert_cuda(cuMemAlloc_v2(&second, 100));
    CUdeviceptr to[] = {first, second, (CUdeviceptr)(uintptr_t)back},
                from[] = {(CUdeviceptr)(uintptr_t)source, first, second};
    size_t bytes[] = {100, 100, 100}, starts[] = {0}, failed = 77;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    assert_cuda(cuMemcpyBatchAsync_v2(to, from, bytes, 3, &attributes, starts, 1, stream));
    assert_cuda(cuStreamSynchronize(stream));
    assert_int_equal(back[99], 6);
    assert_int_equal(cuMemcpyBatchAsync(to, from, bytes, 3, &attributes, starts, 1, &failed, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(failed, SIZE_MAX);
    bytes[1] = 101;
    assert_int_equal(cuMemcpyBatchAsync(to, from, bytes, 3, &attributes, starts, 1, &failed, stream),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(failed, 1);
    starts[0] = 1;
    assert_int_equal(cuMemcpyBatchAsync_v2(to, from, bytes, 1, &attributes, starts, 1, stream),
                     CUDA_ERROR_INVALID_VALUE);

    CUDA_ARRAY3D_DESCRIPTOR descriptor = of(5, 5, 0, 0);
    CUarray array;
    assert_cuda(cuArray3DCreate_v2(&array, &descriptor));
    CUDA_MEMCPY3D_BATCH_OP operations[2] = {
        {.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = first}},
         .dst = {.type = CU_MEMCPY_OPERAND_TYPE_ARRAY, .op.array = {.array = array}},
         .extent = {5, 5, 1},
         .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},
        {.src = {.type = CU_MEMCPY_OPERAND_TYPE_ARRAY, .op.array = {.array = array, .offset = {1, 1, 0}}},
         .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = second, .rowLength = 5}},
         .extent = {4, 4, 1},
         .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},
    };
    memset(source, 8, sizeof(source));
    assert_cuda(cuMemcpyHtoD_v2(first, source, 100));
    assert_cuda(cuMemcpy3DBatchAsync_v2(2, operations, 0, stream));
    assert_cuda(cuMemcpyDtoH_v2(back, second, 100));
    assert_int_equal(back[15], 8);
    assert_int_equal(back[16], 6); /* between the rows */
    operations[1].extent.width = 5;
    assert_int_equal(cuMemcpy3DBatchAsync(2, operations, &failed, 0, stream), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(failed, 1);
    assert_cuda(cuMemcpyPeer(first, context, second, context, 100));
    assert_int_equal(cuMemcpyPeer(first, context, second, NULL, 100), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuMemcpyPeerAsync(first, context, second, context, 101, stream),
                     CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuArrayDestroy(array));
    assert_cuda(cuMemFree_v2(first));
    assert_cuda(cuMemFree_v2(second));
    assert_cuda(cuStreamDestroy_v2(stream));
}

static int initialise(void **state)
{
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=64MiB", "FAKECUDA_CONTEXT_BYTES=0", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_take_whole_blocks_in_pages_of_64_kib),
        cmocka_unit_test(an_array_that_does_not_fit_is_refused),
        cmocka_unit_test(descriptors_are_checked_and_told_again),
        cmocka_unit_test(planes_are_arrays_of_their_own),
        cmocka_unit_test(boxes_come_back_as_they_went),
        cmocka_unit_test(lines_go_between_arrays_host_and_device),
        cmocka_unit_test(mipmaps_take_all_their_levels),
        cmocka_unit_test(sparse_and_deferred_arrays_take_nothing),
        cmocka_unit_test(arrays_go_with_their_context),
        cmocka_unit_test(textures_and_surfaces_remember_what_they_are_of),
        cmocka_unit_test(batches_copy_all_or_say_which_is_wrong),
    };
    int failed = cmocka_run_group_tests(tests, initialise, NULL);
    simulated_remove();
    return failed;
}
