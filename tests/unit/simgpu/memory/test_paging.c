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

/* How long the GPU takes to have set bytes of managed memory: only what has to move takes time. Setting them takes the device's
 * own time too: a little more than the link's. */
static void assert_touch_ms(CUdeviceptr at, size_t bytes, double expected)
{
    work_begins();
    assert_cuda(cuMemsetD8Async(at, 1, bytes, stream));
    assert_work_ms(expected, expected + 1);
}

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

static void what_is_used_all_the_time_stays_and_the_rest_moves_each_time(void **state)
{
    CUdeviceptr often = managed(8 * MIB), seldom = managed(12 * MIB);
    for (unsigned part = 0; part < 3; part++)
        assert_touch_ms(seldom + part * 4 * MIB, 4 * MIB, LINK_MS(4 * MIB));
    assert_touch_ms(often, 8 * MIB, LINK_MS(8 * MIB) + LINK_MS(4 * MIB)); /* of the other, 4 leave */
    for (unsigned turn = 0; turn < 9; turn++) {
        assert_touch_ms(seldom + turn % 3 * 4 * MIB, 4 * MIB, LINK_MS(4 * MIB) + LINK_MS(4 * MIB));
        assert_touch_ms(often, 8 * MIB, 0);
    }
    assert_cuda(cuMemFree_v2(often));
    assert_cuda(cuMemFree_v2(seldom));
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

/* Another process, which has 12 MiB of its own, touches them, and gives them back, a step each. It begins before this one has
 * anything of the GPU. */
static struct child neighbour;

static void touch_in_steps(int line)
{
    CUdeviceptr at;
    next(line);
    done(line, use_gpu());
    for (;;) {
        next(line);
        done(line, cuMemAllocManaged(&at, 12 * MIB, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
        next(line);
        done(line, cuMemsetD8_v2(at, 1, 12 * MIB) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
        next(line);
        done(line, cuMemFree_v2(at) == CUDA_SUCCESS);
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
    step(neighbour);
    assert_int_equal(unused_bytes(), card - 12 * MIB);
    assert_cuda(cuMemFree_v2(at));
}

static void with_a_process_its_memory_goes(void **state)
{
    step(neighbour);
    step(neighbour);
    assert_int_equal(unused_bytes(), card - 12 * MIB);
    killed(neighbour);
    assert_int_equal(unused_bytes(), card);
}

static int prepare(void **state)
{
    simulated_choose((char *const[]){"FAKECUDA_CONTEXT_BYTES=0", "FAKECUDA_LINK_GBPS=1",
                                     "FAKECUDA_PAGE_FAULT_NS=0", "FAKECUDA_TOTAL_MEM=16777216",
                                     "FAKECUDA_PAGING=1", NULL});
    neighbour = start(touch_in_steps);
    managed_prepare();
    step(neighbour); /* on the GPU */
    card = unused_bytes();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        managed_unit_test(more_can_be_made_than_the_gpu_has_and_takes_room_when_it_is_touched),
        managed_unit_test(what_does_not_fit_together_is_moved_each_time),
        managed_unit_test(what_is_used_all_the_time_stays_and_the_rest_moves_each_time),
        managed_unit_test(other_memory_comes_first),
        managed_unit_test(processes_throw_out_each_others),
        cmocka_unit_test(with_a_process_its_memory_goes),
    };
    return cmocka_run_group_tests(tests, prepare, managed_remove);
}
