/* Tests of what a simulated card says of itself: FAKECUDA_DEVICE=t4, two of them. */
#include "simulated.h"

#include <string.h>

#include "cuda/nvml.h"
#include "simgpu/nvml/nvml.h"

static int attribute(CUdevice_attribute which, CUdevice device)
{
    int value = -12345;
    assert_cuda(cuDeviceGetAttribute(&value, which, device));
    return value;
}

static void a_card_is_the_one_that_was_chosen(void **state)
{
    char name[64];
    size_t bytes;
    assert_cuda(cuDeviceGetName(name, sizeof(name), 0));
    assert_string_equal(name, "Tesla T4");
    assert_cuda(cuDeviceTotalMem_v2(&bytes, 0));
    assert_int_equal(bytes, 15843721216u);
    assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0), 7);
    assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0), 5);
    assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0), 40);
    assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID, 0), 0x1eb810de);
}

static void every_attribute_has_an_answer(void **state)
{
    int value;
    for (int which = 1; which <= CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED; which++)
        assert_cuda(cuDeviceGetAttribute(&value, (CUdevice_attribute)which, 1));
    assert_int_equal(cuDeviceGetAttribute(&value, (CUdevice_attribute)148, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_not_equal(attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0),
                         attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 1));
}

static void nvml_counts_what_the_driver_keeps(void **state)
{
    nvmlDevice_t device;
    nvmlMemory_t memory;
    nvmlMemory_v2_t memory_v2 = {.version = NVML_MEMORY_V2};
    assert_int_equal(nvmlInit_v2(), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(1, &device), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetMemoryInfo(device, &memory), NVML_SUCCESS);
    assert_int_equal(memory.total, 15360 * MIB);
    assert_int_equal(memory.used, 15360 * MIB - 15843721216u);
    assert_int_equal(memory.free, 15843721216u);
    assert_int_equal(nvmlDeviceGetMigMode(device, &(unsigned){0}, &(unsigned){0}), NVML_ERROR_NOT_SUPPORTED);
    assert_int_equal(nvmlDeviceGetMemoryInfo_v2(device, &memory_v2), NVML_SUCCESS);
    assert_int_equal(memory_v2.reserved, memory.used);
    assert_int_equal(memory_v2.used, 0);
    assert_int_equal(memory_v2.reserved + memory_v2.used + memory_v2.free, memory_v2.total);
    setenv("FAKECUDA_DRIVER_VERSION", "470.57.02", 1);
    assert_int_equal(nvmlDeviceGetMemoryInfo_v2(device, &memory_v2), NVML_ERROR_FUNCTION_NOT_FOUND);
    unsetenv("FAKECUDA_DRIVER_VERSION");
    assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
}

static void occupancy_is_that_of_the_card(void **state)
{
    CUcontext context;
    CUmodule module;
    CUfunction function;
    int blocks, threads;
    size_t bytes;
    assert_cuda(cuCtxCreate_v2(&context, 0, 0));
    assert_cuda(cuModuleLoadData(&module, SIMULATED_PTX));
    assert_cuda(cuModuleGetFunction(&function, module, "unknown"));
    assert_cuda(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 32, 0));
    assert_int_equal(blocks, 16); /* blocks of a multiprocessor */
    assert_cuda(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 1024, 0));
    assert_int_equal(blocks, 1);
    assert_cuda(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 128, 32768));
    assert_int_equal(blocks, 2);
    assert_cuda(cuOccupancyMaxPotentialBlockSize(&blocks, &threads, function, NULL, 0, 256));
    assert_int_equal(threads, 256);
    assert_int_equal(blocks, 4 * 40);
    assert_cuda(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, 4, 128));
    assert_int_equal(bytes, 16384);
    CUlaunchConfig config = {
        .gridDimX = 8, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1};
    assert_int_equal(cuOccupancyMaxActiveClusters(&blocks, function, &config), CUDA_ERROR_NOT_SUPPORTED);
    assert_cuda(cuCtxDestroy_v2(context));
}

static void a_refused_image_says_why_in_the_log(void **state)
{
    CUcontext context;
    CUmodule module;
    char log[256] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof(log)};
    assert_cuda(cuCtxCreate_v2(&context, 0, 0));
    assert_int_equal(
        cuModuleLoadDataEx(&module, ".version 7.0\n.target sm_90\n.address_size 64\n", 2, options, values),
        CUDA_ERROR_INVALID_PTX);
    assert_true(strlen(log) > 10);
    assert_int_equal((uintptr_t)values[1], strlen(log));
    char small[8];
    values[0] = small;
    values[1] = (void *)(uintptr_t)sizeof(small);
    assert_int_equal(cuModuleLoadDataEx(&module, "nonsense", 2, options, values), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(strlen(small), 7);
    assert_cuda(cuCtxDestroy_v2(context));
}

static uint64_t used(void)
{
    size_t free_now, total;
    assert_cuda(cuMemGetInfo_v2(&free_now, &total));
    return total - free_now;
}

static void a_contexts_limits_take_memory(void **state)
{
    CUcontext other, context;
    assert_cuda(cuCtxCreate_v2(&other, 0, 0));
    uint64_t before = used();
    assert_cuda(cuCtxCreate_v2(&context, 0, 0));
    uint64_t begun = used();
    assert_cuda(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 24 * MIB));
    assert_int_equal(used() - begun, 16 * MIB);
    assert_cuda(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
    assert_int_equal(used() - begun, 16 * MIB + 1024 * 40 * 1024);
    assert_int_equal(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 64 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    assert_cuda(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, MIB));
    assert_int_equal(used() - begun, 1024 * 40 * 1024);
    assert_cuda(cuCtxDestroy_v2(context));
    assert_int_equal(used(), before);
    assert_cuda(cuCtxDestroy_v2(other));
}

static void every_result_has_words(void **state)
{
    const char *name, *text;
    for (int result = 0; result < 1000; result++) {
        if (cuGetErrorName((CUresult)result, &name) != CUDA_SUCCESS)
            continue;
        assert_cuda(cuGetErrorString((CUresult)result, &text));
        assert_string_not_equal(text, name);
    }
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_DEVICE=t4", "FAKECUDA_GPUS=2", NULL});
    unsetenv("FAKECUDA_TOTAL_MEM");
    if (cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_card_is_the_one_that_was_chosen),
        cmocka_unit_test(every_attribute_has_an_answer),
        cmocka_unit_test(nvml_counts_what_the_driver_keeps),
        cmocka_unit_test(occupancy_is_that_of_the_card),
        cmocka_unit_test(a_refused_image_says_why_in_the_log),
        cmocka_unit_test(a_contexts_limits_take_memory),
        cmocka_unit_test(every_result_has_words),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    simulated_remove();
    return failed;
}
