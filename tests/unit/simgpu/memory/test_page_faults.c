/* Tests of managed memory that work of the GPU touches: what moves, and what a fault costs. The link has 1
 * GB/s, a fault takes 1 ms, and times are the simulated ones: of work that is submitted while the stream is
 * still busy. */
#include "managed_work.h"

#define FAULT_MS 1.0

static const CUmemLocation on_device = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                           on_host = {CU_MEM_LOCATION_TYPE_HOST, 0};

static void fill(CUdeviceptr to, uint64_t words)
{
    unsigned value = 7;
    launch("gs_fill_u32", (void *[]){&to, &value, &words});
}

static void checksum(CUdeviceptr from, uint64_t words, CUdeviceptr out)
{
    launch("gs_checksum_u32", (void *[]){&from, &words, &out});
}

static void assert_ms(double expected)
{
    assert_work_ms(expected - 0.02, expected + 0.02);
}

static void assert_prefetch_ms(CUdeviceptr at, size_t bytes, CUmemLocation to, double expected)
{
    work_begins();
    assert_cuda(cuMemPrefetchAsync_v2(at, bytes, to, 0, stream));
    assert_ms(expected);
}

static void a_kernel_moves_what_it_touches_and_once(void **state)
{
    CUdeviceptr at = managed(8 * MIB);
    work_begins();
    fill(at, 8 * MIB / 4);
    assert_ms(LINK_MS(8 * MIB) + 4 * FAULT_MS); /* a fault for each 2 MiB */
    work_begins();
    fill(at, 8 * MIB / 4);
    assert_ms(0);
    assert_prefetch_ms(at, 8 * MIB, on_device, 0);
    assert_prefetch_ms(at, 8 * MIB, on_host, LINK_MS(8 * MIB));
    assert_cuda(cuMemFree_v2(at));
}

static void a_word_moves_64_kib(void **state)
{
    CUdeviceptr at = managed(MIB);
    work_begins();
    fill(at + 100 * KIB, 1);
    assert_ms(LINK_MS(64 * KIB) + FAULT_MS);
    assert_prefetch_ms(at, MIB, on_device, LINK_MS(MIB - 64 * KIB));
    assert_cuda(cuMemFree_v2(at));
}

static void a_copy_touches_with_the_side_that_it_names(void **state)
{
    CUdeviceptr at = managed(4 * MIB), plain;
    char *host = malloc(4 * MIB);
    assert_non_null(host);
    assert_cuda(cuMemAlloc_v2(&plain, 4 * MIB));
    work_begins();
    assert_cuda(cuMemcpyDtoHAsync_v2(host, at, 4 * MIB, stream)); /* to the device, and from there */
    assert_ms(2 * LINK_MS(4 * MIB) + 2 * FAULT_MS);
    work_begins();
    assert_cuda(cuMemcpyDtoHAsync_v2(host, at, 4 * MIB, stream));
    assert_ms(LINK_MS(4 * MIB));
    work_begins();
    assert_cuda(
        cuMemcpyHtoDAsync_v2(plain, (const void *)(uintptr_t)at, 4 * MIB, stream)); /* to the host first */
    assert_ms(2 * LINK_MS(4 * MIB) + 2 * FAULT_MS);
    assert_prefetch_ms(at, 4 * MIB, on_host, 0);
    work_begins();
    assert_cuda(cuMemsetD8Async(at, 1, 4 * MIB, stream));
    assert_ms(LINK_MS(4 * MIB) + 2 * FAULT_MS);
    free(host);
    assert_cuda(cuMemFree_v2(plain));
    assert_cuda(cuMemFree_v2(at));
}

static void a_copy_by_address_alone_uses_pages_where_they_are(void **state)
{
    CUdeviceptr at = managed(4 * MIB), plain;
    assert_cuda(cuMemAlloc_v2(&plain, 4 * MIB));
    work_begins();
    assert_cuda(cuMemcpyAsync(plain, at, 4 * MIB, stream));
    assert_ms(LINK_MS(4 * MIB));
    assert_prefetch_ms(at, 4 * MIB, on_host, 0); /* where it still is */
    assert_prefetch_ms(at, 4 * MIB, on_device, LINK_MS(4 * MIB));
    work_begins();
    assert_cuda(cuMemcpyAsync(plain, at, 4 * MIB, stream));
    assert_ms(0);
    assert_cuda(cuMemFree_v2(plain));
    assert_cuda(cuMemFree_v2(at));
}

static void a_box_touches_all_from_its_first_row_to_its_last(void **state)
{
    CUdeviceptr at = managed(2 * MIB), plain;
    assert_cuda(cuMemAlloc_v2(&plain, 2 * MIB));
    CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = at,
                         .srcPitch = 64 * KIB,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = plain,
                         .dstPitch = 64 * KIB,
                         .WidthInBytes = 16,
                         .Height = 4};
    work_begins();
    assert_cuda(cuMemcpy2DAsync_v2(&box, stream));
    assert_ms(LINK_MS(4 * 64 * KIB) + FAULT_MS);
    assert_cuda(cuMemFree_v2(plain));
    assert_cuda(cuMemFree_v2(at));
}

static void what_is_read_mostly_is_copied_until_it_is_written(void **state)
{
    CUdeviceptr at = managed(2 * MIB), out;
    assert_cuda(cuMemAlloc_v2(&out, 512));
    assert_cuda(cuMemAdvise(at, 2 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    work_begins();
    checksum(at, 2 * MIB / 4, out);
    assert_ms(LINK_MS(2 * MIB) + FAULT_MS);
    assert_prefetch_ms(at, 2 * MIB, on_host, 0);
    fill(at, 2 * MIB / 4);
    assert_prefetch_ms(at, 2 * MIB, on_host, LINK_MS(2 * MIB));
    assert_cuda(cuMemFree_v2(out));
    assert_cuda(cuMemFree_v2(at));
}

static void what_is_mapped_by_advice_is_used_from_afar(void **state)
{
    static const CUmem_advise advice[] = {CU_MEM_ADVISE_SET_ACCESSED_BY,
                                          CU_MEM_ADVISE_SET_PREFERRED_LOCATION};
    for (unsigned i = 0; i < 2; i++) {
        CUdeviceptr at = managed(2 * MIB);
        assert_cuda(cuMemAdvise_v2(at, 2 * MIB, advice[i], i == 0 ? on_device : on_host));
        for (unsigned times = 0; times < 2; times++) {
            work_begins();
            fill(at, 2 * MIB / 4);
            assert_ms(LINK_MS(2 * MIB));
        }
        assert_prefetch_ms(at, 2 * MIB, on_host, 0); /* where it still is */
        assert_cuda(cuMemFree_v2(at));
    }
}

static void what_was_discarded_begins_where_it_is_touched(void **state)
{
    CUdeviceptr at = managed(2 * MIB);
    size_t bytes = 2 * MIB;
    assert_cuda(cuMemDiscardBatchAsync(&at, &bytes, 1, 0, stream));
    work_begins();
    fill(at, 2 * MIB / 4);
    assert_ms(FAULT_MS);
    assert_prefetch_ms(at, 2 * MIB, on_host, LINK_MS(2 * MIB));
    assert_cuda(cuMemFree_v2(at));
}

static void an_unknown_kernel_touches_what_its_pointers_lead_to(void **state)
{
    CUdeviceptr at = managed(4 * MIB), inside = at + 2 * MIB, nothing = 4711;
    work_begins();
    launch("unknown", (void *[]){&inside});
    assert_ms(LINK_MS(2 * MIB) + FAULT_MS);
    work_begins();
    launch("unknown", (void *[]){&nothing});
    assert_ms(0);
    size_t bytes = 8;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &at, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    CUfunction function;
    assert_cuda(cuModuleGetFunction(&function, module, "unknown"));
    work_begins();
    assert_cuda(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, extra));
    assert_ms(LINK_MS(2 * MIB) + FAULT_MS);
    assert_prefetch_ms(at, 4 * MIB, on_device, 0);
    assert_cuda(cuMemFree_v2(at));
}

static void a_captured_kernel_touches_when_it_is_launched(void **state)
{
    CUdeviceptr at = managed(2 * MIB);
    CUgraph graph;
    CUgraphExec exec;
    assert_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    fill(at, 2 * MIB / 4);
    assert_cuda(cuStreamEndCapture(stream, &graph));
    assert_prefetch_ms(at, 2 * MIB, on_host, 0); /* nothing has moved */
    assert_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
    work_begins();
    assert_cuda(cuGraphLaunch(exec, stream));
    assert_ms(LINK_MS(2 * MIB) + FAULT_MS);
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuMemFree_v2(at));
}

static int start(void **state)
{
    simulated_choose((char *const[]){"FAKECUDA_CONTEXT_BYTES=0", "FAKECUDA_LINK_GBPS=1",
                                     "FAKECUDA_PAGE_FAULT_NS=1000000", NULL});
    return managed_prepare();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        managed_unit_test(a_kernel_moves_what_it_touches_and_once),
        managed_unit_test(a_word_moves_64_kib),
        managed_unit_test(a_copy_touches_with_the_side_that_it_names),
        managed_unit_test(a_copy_by_address_alone_uses_pages_where_they_are),
        managed_unit_test(a_box_touches_all_from_its_first_row_to_its_last),
        managed_unit_test(what_is_read_mostly_is_copied_until_it_is_written),
        managed_unit_test(what_is_mapped_by_advice_is_used_from_afar),
        managed_unit_test(what_was_discarded_begins_where_it_is_touched),
        managed_unit_test(an_unknown_kernel_touches_what_its_pointers_lead_to),
        managed_unit_test(a_captured_kernel_touches_when_it_is_launched),
    };
    return cmocka_run_group_tests(tests, start, managed_remove);
}
