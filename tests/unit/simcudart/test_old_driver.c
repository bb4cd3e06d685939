/* A test of the runtime in either version (CUDART_MAJOR) on a driver of CUDA 12.8. */
#include "../simgpu/simulated.h"

#include "cuda/runtime_prototypes.h"

static void a_runtime_needs_a_driver_of_its_major_version(void **state)
{
    int version = 0, count = 0;
    assert_int_equal(cudaGetDeviceCount(&count),
                     CUDART_MAJOR > 12 ? cudaErrorInsufficientDriver : cudaSuccess);
    assert_int_equal(cudaDriverGetVersion(&version), cudaSuccess);
    assert_int_equal(version, 12080);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_CUDA_VERSION=12.8", "FAKECUDA_TOTAL_MEM=67108864", NULL});
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_runtime_needs_a_driver_of_its_major_version)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    simulated_remove();
    return failed;
}
