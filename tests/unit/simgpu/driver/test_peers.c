/* Tests of GPUs that reach each other's memory. */
#include "simulated.h"

static CUcontext contexts[2];

static void cards_can_reach_each_other(void **state)
{
    int can = 7;
    assert_cuda(cuDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 1);
    assert_cuda(cuDeviceCanAccessPeer(&can, 1, 1));
    assert_int_equal(can, 0);
    assert_cuda(cuDeviceGetP2PAttribute(&can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    assert_int_equal(can, 1);
    assert_cuda(cuDeviceGetP2PAttribute(&can, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 0, 1));
    assert_int_equal(can, 0);
    assert_int_equal(cuDeviceGetP2PAttribute(&can, 9999, 1, 1), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(cuDeviceGetP2PAttribute(&can, 9999, 0, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuDeviceGetP2PAttribute(&can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 1),
                     CUDA_ERROR_INVALID_DEVICE);
}

static void access_is_enabled_once_and_for_one_direction(void **state)
{
    assert_cuda(cuCtxSetCurrent(contexts[0]));
    assert_int_equal(cuCtxDisablePeerAccess(contexts[1]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    assert_int_equal(cuCtxEnablePeerAccess(contexts[1], 1), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuCtxEnablePeerAccess(contexts[1], 0));
    assert_int_equal(cuCtxEnablePeerAccess(contexts[1], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    assert_int_equal(cuCtxEnablePeerAccess(contexts[0], 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    assert_cuda(cuCtxSetCurrent(contexts[1]));
    assert_int_equal(cuCtxDisablePeerAccess(contexts[0]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    assert_cuda(cuCtxSetCurrent(contexts[0]));
    assert_cuda(cuCtxDisablePeerAccess(contexts[1]));
    assert_int_equal(cuCtxEnablePeerAccess(NULL, 0), CUDA_ERROR_INVALID_CONTEXT);
}

static void a_peer_is_given_access_to_mapped_memory(void **state)
{
    const size_t bytes = 2 * MIB;
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access[2] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                 {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    unsigned long long flags;
    assert_cuda(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    assert_cuda(cuMemCreate(&handle, bytes, &how, 0));
    assert_cuda(cuMemMap(address, bytes, 0, handle, 0));
    assert_cuda(cuMemSetAccess(address, bytes, access, 2));
    assert_cuda(cuMemGetAccess(&flags, &access[1].location, address));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_cuda(cuMemsetD8_v2(address, 1, bytes));
    assert_cuda(cuMemUnmap(address, bytes));
    assert_cuda(cuMemRelease(handle));
    assert_cuda(cuMemAddressFree(address, bytes));
}

static int initialise(void **state)
{
    return cuInit(0) || cuDevicePrimaryCtxRetain(&contexts[0], 0) ||
           cuDevicePrimaryCtxRetain(&contexts[1], 1) || cuCtxSetCurrent(contexts[0]);
}

int main(void)
{
    simulated_choose(
        (char *[]){"FAKECUDA_TOTAL_MEM=256MiB", "FAKECUDA_CONTEXT_BYTES=1MiB", "FAKECUDA_GPUS=2", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cards_can_reach_each_other),
        cmocka_unit_test(access_is_enabled_once_and_for_one_direction),
        cmocka_unit_test(a_peer_is_given_access_to_mapped_memory),
    };
    int failed = cmocka_run_group_tests(tests, initialise, NULL);
    simulated_remove();
    return failed;
}
