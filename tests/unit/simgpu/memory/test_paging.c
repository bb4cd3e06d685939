/* Tests of a GPU that pages: there may be more managed memory than it has. It has 16 MiB, its link 1 GB/s, and a fault takes
 * no time; times are the simulated ones, of work that is submitted while the stream is still busy. */
#include "../children.h"
#include "managed_work.h"

static size_t card; /* bytes that the module left: a little less than 16 MiB */

static size_t unused_bytes(void)
{
    size_t unused, total;
    assert_cuda(cuMemGetInfo_v2(&unused, &total));
    return unused;
}

/* How long the GPU takes to have set bytes of managed memory: only what has to move takes time. */
static double touch_ms(CUdeviceptr at, size_t bytes)
{
    work_begins();
    assert_cuda(cuMemsetD8Async(at, 1, bytes, stream));
    return work_ms();
}

/* Setting them takes the device's own time too: a little more than the link's. */
#define assert_touch_ms(at, bytes, expected)                                                                 \
    do {                                                                                                     \
        double ms_ = touch_ms(at, bytes), expected_ = (expected);                                            \
        if (ms_ < expected_ || ms_ > expected_ + 1)                                                          \
            fail_msg("%.3f ms, expected %.3f", ms_, expected_);                                              \
    } while (0)

static void more_can_be_made_than_the_gpu_has_and_takes_room_when_it_is_touched(void **state)
{
    CUdeviceptr at = managed(32 * MIB);
    assert_int_equal(unused_bytes(), card);
    assert_touch_ms(at, 4 * MIB, LINK_MS(4 * MIB));
    assert_int_equal(unused_bytes(), card - 4 * MIB);
    assert_touch_ms(at, 4 * MIB, 0);
    assert_cuda(cuMemPrefetchAsync_v2(at, 2 * MIB, (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}, 0, stream));
    assert_int_equal(unused_bytes(), card - 2 * MIB);
    assert_cuda(cuMemFree_v2(at));
    assert_int_equal(unused_bytes(), card);
}

static void what_does_not_fit_together_is_moved_each_time(void **state)
{
    CUdeviceptr one = managed(12 * MIB), other = managed(12 * MIB);
    assert_touch_ms(one, 12 * MIB, LINK_MS(12 * MIB));
    assert_touch_ms(other, 12 * MIB, LINK_MS(12 * MIB) + LINK_MS(8 * MIB)); /* of the one, 8 leave */
    for (int round = 0; round < 3; round++) {
        assert_touch_ms(one, 12 * MIB, LINK_MS(12 * MIB) + LINK_MS(12 * MIB));
        assert_touch_ms(other, 12 * MIB, LINK_MS(12 * MIB) + LINK_MS(12 * MIB));
        assert_touch_ms(other, 12 * MIB, 0);
    }
    assert_int_equal(unused_bytes(), 0);
    assert_cuda(cuMemFree_v2(one));
    assert_cuda(cuMemFree_v2(other));
    assert_int_equal(unused_bytes(), card);
}

static void other_memory_comes_first(void **state)
{
    CUdeviceptr at = managed(12 * MIB), plain;
    assert_touch_ms(at, 12 * MIB, LINK_MS(12 * MIB));
    assert_cuda(cuMemAlloc_v2(&plain, 10 * MIB));
    assert_int_equal(unused_bytes(), 0);
    assert_touch_ms(at, 12 * MIB, LINK_MS(12 * MIB) + LINK_MS(12 * MIB)); /* its head makes its tail leave */
    assert_int_equal(cuMemAlloc_v2(&plain, 10 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    assert_cuda(cuMemFree_v2(at));
    assert_int_equal(unused_bytes(), card - 10 * MIB);
    assert_cuda(cuMemFree_v2(plain));
}

/* Another process, which touches 12 MiB of its own at each step. It begins before this one has anything of the GPU. */
static struct child neighbour;

static void touch_at_each_step(int line)
{
    CUdeviceptr at = 0;
    for (;;) {
        next(line);
        done(line, at ? cuMemsetD8_v2(at, 1, 12 * MIB) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS
                      : use_gpu() && cuMemAllocManaged(&at, 12 * MIB, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    }
}

static void processes_throw_out_each_others(void **state)
{
    CUdeviceptr at = managed(12 * MIB);
    assert_touch_ms(at, 12 * MIB, LINK_MS(12 * MIB));
    step(neighbour);
    assert_touch_ms(at, 12 * MIB, 0);
    step(neighbour);
    assert_touch_ms(at, 12 * MIB, LINK_MS(12 * MIB) + LINK_MS(12 * MIB));
    assert_touch_ms(at, 12 * MIB, 0);
    assert_int_equal(unused_bytes(), 0);
    killed(neighbour);
    assert_int_equal(unused_bytes(), card - 12 * MIB); /* with the neighbour its memory went */
    assert_cuda(cuMemFree_v2(at));
}

static int prepare(void **state)
{
    simulated_choose((char *const[]){"FAKECUDA_CONTEXT_BYTES=0", "FAKECUDA_LINK_GBPS=1",
                                     "FAKECUDA_PAGE_FAULT_NS=0", "FAKECUDA_TOTAL_MEM=16777216",
                                     "FAKECUDA_PAGING=1", NULL});
    neighbour = start(touch_at_each_step);
    managed_prepare();
    card = unused_bytes();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_can_be_made_than_the_gpu_has_and_takes_room_when_it_is_touched),
        cmocka_unit_test(what_does_not_fit_together_is_moved_each_time),
        cmocka_unit_test(other_memory_comes_first),
        cmocka_unit_test(processes_throw_out_each_others),
    };
    return cmocka_run_group_tests(tests, prepare, managed_remove);
}
