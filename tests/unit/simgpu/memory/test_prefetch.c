/* Tests of managed memory: advice, prefetching and what is told of it. */
#include "simulated.h"

static CUcontext context;
static const CUmemLocation on_device = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                           on_host = {CU_MEM_LOCATION_TYPE_HOST, 7};

static CUdeviceptr managed(size_t bytes)
{
    CUdeviceptr made;
    assert_cuda(cuMemAllocManaged(&made, bytes, CU_MEM_ATTACH_GLOBAL));
    return made;
}

static CUstream stream(void)
{
    CUstream made;
    assert_cuda(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
}

static int told(CUmem_range_attribute attribute, CUdeviceptr at, size_t bytes)
{
    int value = -99;
    assert_cuda(cuMemRangeGetAttribute(&value, sizeof(value), attribute, at, bytes));
    return value;
}

/* How long one prefetch keeps a stream. */
static float prefetch_ms(CUdeviceptr at, size_t bytes, CUmemLocation to)
{
    CUstream some = stream();
    CUevent begin, end;
    float ms;
    assert_cuda(cuEventCreate(&begin, 0));
    assert_cuda(cuEventCreate(&end, 0));
    assert_cuda(cuEventRecord(begin, some));
    assert_cuda(cuMemPrefetchAsync_v2(at, bytes, to, 0, some));
    assert_cuda(cuEventRecord(end, some));
    assert_cuda(cuEventSynchronize(end));
    assert_cuda(cuEventElapsedTime_v2(&ms, begin, end));
    return ms;
}

static void prefetching_takes_the_links_time_only_for_bytes_that_are_elsewhere(void **state)
{
    (void)state;
    CUdeviceptr at = managed(16 * MIB); /* at 1 GB/s */
    assert_true(prefetch_ms(at, 8 * MIB, on_device) >= 8.3f);
    assert_true(prefetch_ms(at, 16 * MIB, on_device) >= 8.3f);
    CUstream some = stream();
    assert_cuda(cuMemPrefetchAsync_v2(at, 16 * MIB, on_device, 0, some));
    assert_cuda(cuStreamQuery(some));
    assert_true(prefetch_ms(at, 16 * MIB, on_host) >= 16.7f);
    assert_cuda(cuMemFree_v2(at));
}

static void a_read_mostly_range_has_a_copy_in_both_places_until_it_is_not(void **state)
{
    (void)state;
    CUdeviceptr at = managed(8 * MIB);
    CUstream some = stream();
    assert_cuda(cuMemAdvise(at, 8 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 99));
    assert_int_equal(told(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, 8 * MIB), 1);
    assert_true(prefetch_ms(at, 8 * MIB, on_device) >= 8.3f);
    assert_cuda(cuMemPrefetchAsync_v2(at, 8 * MIB, on_host, 0, some));
    assert_cuda(cuStreamQuery(some));
    assert_cuda(cuMemAdvise(at, 8 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0));
    assert_cuda(cuMemAdvise(at, 8 * MIB, CU_MEM_ADVISE_UNSET_READ_MOSTLY, 0));
    assert_true(prefetch_ms(at, 8 * MIB, on_host) >= 8.3f);
    assert_cuda(cuMemFree_v2(at));
}

static void what_was_discarded_is_not_moved(void **state)
{
    (void)state;
    CUdeviceptr at[] = {managed(256 * MIB), managed(256 * MIB)};
    size_t bytes[] = {256 * MIB, 256 * MIB}, first[] = {0, 1};
    CUmemLocation locations[] = {on_device, on_host};
    CUstream some = stream();
    assert_cuda(cuMemDiscardBatchAsync(at, bytes, 2, 0, some));
    assert_cuda(cuMemPrefetchBatchAsync(at, bytes, 2, locations, first, 2, 0, some));
    assert_cuda(cuStreamQuery(some));
    locations[0] = on_host, locations[1] = on_device;
    assert_cuda(cuMemDiscardAndPrefetchBatchAsync(at, bytes, 2, locations, first, 2, 0, some));
    assert_cuda(cuStreamQuery(some));
    assert_int_equal(told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, at[0], bytes[0]), -1);
    assert_int_equal(told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, at[1], bytes[1]), 0);
    assert_cuda(cuMemPrefetchBatchAsync(at, bytes, 2, &locations[1], first, 1, 0, some));
    assert_int_equal(cuStreamQuery(some), CUDA_ERROR_NOT_READY);
    assert_cuda(cuMemFree_v2(at[0]));
    assert_cuda(cuMemFree_v2(at[1]));
}

static void what_is_told_is_what_all_pages_have_in_common(void **state)
{
    (void)state;
    CUdeviceptr at = managed(MIB);
    CUstream some = stream();
    assert_int_equal(told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, at, MIB), -2);
    assert_cuda(cuMemPrefetchAsync(at + 5000, 1, -1, some)); /* the page from 4096 on */
    assert_int_equal(told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, at + 4096, 4096), -1);
    assert_int_equal(told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, at + 4096, 4097), -2);
    assert_int_equal(told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, at + 4096, 4096),
                     CU_MEM_LOCATION_TYPE_HOST);
    assert_cuda(cuMemPrefetchAsync(at, MIB, 0, some));
    assert_int_equal(told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, at, MIB), 0);

    CUmemLocation here = {CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 99};
    assert_cuda(cuMemAdvise_v2(at, MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    assert_int_equal(told(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, at, MIB),
                     CU_MEM_LOCATION_TYPE_HOST_NUMA);
    assert_cuda(cuMemAdvise(at, 4096, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 99));
    assert_int_equal(told(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, at, MIB), -2);

    int devices[3], read_mostly = -99;
    assert_cuda(cuMemAdvise(at, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
    assert_cuda(cuMemAdvise_v2(at, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, on_host));
    assert_cuda(cuMemAdvise(at, 4096, CU_MEM_ADVISE_UNSET_ACCESSED_BY, -1));
    void *data[] = {devices, &read_mostly};
    size_t sizes[] = {sizeof(devices), sizeof(read_mostly)};
    CUmem_range_attribute asked[] = {CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY};
    assert_cuda(cuMemRangeGetAttributes(data, sizes, asked, 2, at, MIB));
    assert_int_equal(devices[0], 0);
    assert_int_equal(devices[1], -2);
    assert_int_equal(devices[2], -2);
    assert_int_equal(read_mostly, 0);
    assert_cuda(cuMemFree_v2(at));
}

static void new_memory_at_an_old_address_knows_nothing_of_the_old(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        CUdeviceptr at = managed(4096);
        assert_int_equal(told(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, 4096), 0);
        assert_cuda(cuMemAdvise(at, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
        assert_cuda(cuMemFree_v2(at));
    }
}

static void a_variable_declared_managed_is_managed_and_others_are_not(void **state)
{
    (void)state;
    CUmodule module;
    CUdeviceptr at, plain;
    size_t bytes;
    CUstream some = stream();
    assert_cuda(cuModuleLoadData(&module, ".version 7.0\n.target sm_70\n.address_size 64\n"
                                          ".visible .global .attribute(.managed) .align 4 .u32 shown[4];\n"
                                          ".visible .global .align 4 .u32 plain[4];\n"));
    assert_cuda(cuModuleGetGlobal_v2(&plain, &bytes, module, "plain"));
    assert_int_equal(cuMemPrefetchAsync(plain, bytes, 0, some), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuModuleGetGlobal_v2(&at, &bytes, module, "shown"));
    assert_cuda(cuMemPrefetchAsync(at, bytes, 0, some));
    assert_int_equal(told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, at, bytes), 0);
    unsigned is_managed = 0;
    assert_cuda(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at));
    assert_int_equal(is_managed, 1);
}

static void a_prefetch_begins_when_what_is_before_it_on_the_stream_is_done(void **state)
{
    (void)state;
    CUstream some = stream(), other = stream();
    CUdeviceptr at = managed(8 * MIB), front = managed(16 * MIB);
    CUevent begin, end;
    float ms;
    assert_cuda(cuEventCreate(&begin, 0));
    assert_cuda(cuEventCreate(&end, 0));
    assert_cuda(cuEventRecord(begin, some));
    assert_cuda(cuMemPrefetchAsync(front, 16 * MIB, 0, some)); /* in, and then out on the other engine */
    assert_cuda(cuMemPrefetchAsync(front, 16 * MIB, -1, some));
    assert_cuda(cuEventRecord(end, some));
    assert_cuda(cuStreamWaitEvent(other, end, 0));
    assert_cuda(cuMemPrefetchAsync(at, 8 * MIB, 0, other));
    assert_cuda(cuEventRecord(end, other));
    assert_cuda(cuEventSynchronize(end));
    assert_cuda(cuEventElapsedTime_v2(&ms, begin, end));
    assert_true(ms >= 41.9f);
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    CUstream some = stream();
    CUdeviceptr at = managed(MIB), plain;
    size_t bytes = MIB, first = 0, second = 1;
    CUmemLocation location = on_device, none = {CU_MEM_LOCATION_TYPE_NONE, 0};
    CUmemLocation device_9 = {CU_MEM_LOCATION_TYPE_DEVICE, 9}, numa = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    int value;
    assert_cuda(cuMemAlloc_v2(&plain, MIB));
    assert_int_equal(cuMemPrefetchAsync_v2(plain, MIB, on_device, 0, some), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemPrefetchAsync_v2(at, 0, on_device, 0, some), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemPrefetchAsync_v2(at, MIB + 1, on_device, 0, some), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemPrefetchAsync_v2(at, MIB, on_device, 1, some), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemPrefetchAsync_v2(at, MIB, none, 0, some), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemPrefetchAsync_v2(at, MIB, device_9, 0, some), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(cuMemPrefetchAsync(at, MIB, -2, some), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(cuMemPrefetchBatchAsync(&at, &bytes, 1, &location, &first, 1, 0, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemPrefetchBatchAsync_ptsz(&at, &bytes, 1, &location, &first, 1, 0, NULL));
    assert_int_equal(cuMemPrefetchBatchAsync(&at, &bytes, 1, &location, &second, 1, 0, some),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemPrefetchBatchAsync(&at, &bytes, 1, NULL, NULL, 0, 0, some),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemDiscardBatchAsync(&plain, &bytes, 1, 0, some), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAdvise_v2(at, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, numa), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAdvise(at, MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 9),
                     CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(cuMemAdvise(at, MIB, (CUmem_advise)7, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemRangeGetAttribute(&value, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, MIB),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemRangeGetAttribute(&value, 4, (CUmem_range_attribute)9, at, MIB),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, plain, MIB),
                     CUDA_ERROR_INVALID_VALUE);
}

static void a_prefetch_cannot_be_captured(void **state)
{
    (void)state;
    CUstream some = stream();
    CUdeviceptr at = managed(MIB);
    CUgraph graph;
    assert_cuda(cuStreamBeginCapture_v2(some, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(cuMemPrefetchAsync_v2(at, MIB, on_device, 0, some),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuStreamEndCapture(some, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, at, MIB), -2);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_CONTEXT_BYTES=0", "FAKECUDA_LINK_GBPS=1", NULL});
    if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefetching_takes_the_links_time_only_for_bytes_that_are_elsewhere),
        cmocka_unit_test(a_read_mostly_range_has_a_copy_in_both_places_until_it_is_not),
        cmocka_unit_test(what_was_discarded_is_not_moved),
        cmocka_unit_test(what_is_told_is_what_all_pages_have_in_common),
        cmocka_unit_test(new_memory_at_an_old_address_knows_nothing_of_the_old),
        cmocka_unit_test(a_variable_declared_managed_is_managed_and_others_are_not),
        cmocka_unit_test(a_prefetch_begins_when_what_is_before_it_on_the_stream_is_done),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(a_prefetch_cannot_be_captured),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    simulated_remove();
    return failed;
}
