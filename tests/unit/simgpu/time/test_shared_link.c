/* Copies on a link that is not duplex: both ways share it. Times are the simulation's. */
#include "simulated.h"

#define BYTES (1 * MIB)

static void copies_of_both_ways_wait_for_each_other(void **state)
{
    CUdeviceptr device[2];
    void *host[2];
    CUstream streams[2];
    CUevent begin, ends[2];
    float milliseconds[2];
    assert_cuda(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    for (int i = 0; i < 2; i++) {
        assert_cuda(cuMemAlloc_v2(&device[i], BYTES));
        assert_cuda(cuMemHostAlloc(&host[i], BYTES, 0));
        assert_cuda(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        assert_cuda(cuEventCreate(&ends[i], CU_EVENT_DEFAULT));
    }
    assert_cuda(cuMemcpyHtoDAsync_v2(device[0], host[0], BYTES, streams[0]));
    assert_cuda(cuEventRecord(begin, streams[0]));
    assert_cuda(cuStreamWaitEvent(streams[1], begin, 0));
    assert_cuda(cuMemcpyHtoDAsync_v2(device[0], host[0], BYTES, streams[0]));
    assert_cuda(cuEventRecord(ends[0], streams[0]));
    assert_cuda(cuMemcpyDtoHAsync_v2(host[1], device[1], BYTES, streams[1]));
    assert_cuda(cuEventRecord(ends[1], streams[1]));
    assert_cuda(cuCtxSynchronize());
    for (int i = 0; i < 2; i++)
        assert_cuda(cuEventElapsedTime(&milliseconds[i], begin, ends[i]));
    assert_true(milliseconds[1] - milliseconds[0] > 0.99f * (float)BYTES / 1e5f);
}

static int initialise(void **state)
{
    CUcontext context;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
}

int main(void)
{
    simulated_choose(
        (char *[]){"FAKECUDA_CONTEXT_BYTES=0", "FAKECUDA_LINK_GBPS=0.1", "FAKECUDA_LINK_DUPLEX=0", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_both_ways_wait_for_each_other),
    };
    int failed = cmocka_run_group_tests(tests, initialise, NULL);
    simulated_remove();
    return failed;
}
