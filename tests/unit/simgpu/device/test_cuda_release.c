/* Tests of FAKECUDA_CUDA_VERSION: what a driver of another CUDA version says of itself, knows and takes. */
#include "simulated.h"

#include <dlfcn.h>
#include <string.h>

#include "cuda/nvml.h"
#include "simgpu/nvml/nvml.h"

static int set_release(void **state)
{
    return setenv("FAKECUDA_CUDA_VERSION", *state ? *state : "13.0", 1);
}

static int unset_release(void **state)
{
    return unsetenv("FAKECUDA_CUDA_VERSION");
}

static int driver_number(void)
{
    int number = 0;
    assert_cuda(cuDriverGetVersion(&number));
    return number;
}

static void the_driver_and_nvml_tell_the_version(void **state)
{
    static const struct {
        const char *version;
        int number;
        const char *driver, *nvml;
    } rows[] = {
        {"12.0", 12000, "525.0-simulated", "12.525.0-simulated"},
        {"12.8", 12080, "570.0-simulated", "12.570.0-simulated"},
        {"13.0", 13000, "580.0-simulated", "13.580.0-simulated"},
        {"13.4", 13040, "615.0-simulated", "13.615.0-simulated"},
    };
    char text[80];
    int number;
    assert_int_equal(nvmlInit_v2(), NVML_SUCCESS);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        setenv("FAKECUDA_CUDA_VERSION", rows[i].version, 1);
        assert_int_equal(driver_number(), rows[i].number);
        assert_int_equal(nvmlSystemGetCudaDriverVersion_v2(&number), NVML_SUCCESS);
        assert_int_equal(number, rows[i].number);
        assert_int_equal(nvmlSystemGetDriverVersion(text, sizeof(text)), NVML_SUCCESS);
        assert_string_equal(text, rows[i].driver);
        assert_int_equal(nvmlSystemGetNVMLVersion(text, sizeof(text)), NVML_SUCCESS);
        assert_string_equal(text, rows[i].nvml);
    }
    setenv("FAKECUDA_DRIVER_VERSION", "535.54.03", 1);
    assert_int_equal(nvmlSystemGetDriverVersion(text, sizeof(text)), NVML_SUCCESS);
    assert_string_equal(text, "535.54.03");
    unsetenv("FAKECUDA_DRIVER_VERSION");
    assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
}

static CUdriverProcAddressQueryResult ask(const char *name, int version, void **address)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    assert_cuda(cuGetProcAddress_v2(name, address, version, 0, &status));
    return status;
}

static void a_driver_does_not_know_names_of_later_versions(void **state)
{
    void *address, *newer;
    assert_int_equal(ask("cuMemGetDefaultMemPool", 13000, &address), CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    assert_null(address);
    assert_int_equal(ask("cuCheckpointProcessLock", 13000, &address), CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    /* A form that the driver has, and the program does not know yet. */
    assert_int_equal(ask("cuMemPoolCreate", 10000, &address), CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    /* The newest form of before, however new the program is. */
    assert_int_equal(ask("cuCtxSynchronize", 13000, &address), CU_GET_PROC_ADDRESS_SUCCESS);
    setenv("FAKECUDA_CUDA_VERSION", "13.0", 1);
    assert_int_equal(ask("cuCtxSynchronize", 13000, &newer), CU_GET_PROC_ADDRESS_SUCCESS);
    assert_ptr_not_equal(address, newer);
    assert_int_equal(ask("cuMemGetDefaultMemPool", 13000, &address), CU_GET_PROC_ADDRESS_SUCCESS);
}

/* The version that this process had when it loaded the library. */
static void a_driver_exports_no_names_of_later_versions(void **state)
{
    assert_non_null(dlsym(RTLD_DEFAULT, "cuGraphAddNode_v2"));
    assert_null(dlsym(RTLD_DEFAULT, "cuGraphAddNode_v3"));
    assert_null(dlsym(RTLD_DEFAULT, "cuMulticastBindMem_v2"));
}

static void *newer(const char *name, cuuint64_t flags)
{
    void *address;
    CUdriverProcAddressQueryResult status;
    assert_cuda(cuGetProcAddress_v2(name, &address, 13040, flags, &status));
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
    return address;
}
#define NEWER(symbol, name, flags) ((__typeof__(&symbol))newer(name, flags))

static void count_up(void *count)
{
    ++*(int *)count;
}

static void names_of_later_versions_do_what_their_older_forms_do(void **state)
{
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUgraphNodeParams empty = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    unsigned words[2] = {7, 0};
    int count = 0;
    CUcontext context;
    CUdeviceptr address;
    CUstream stream;
    CUgraph graph;
    CUgraphNode node;
    assert_cuda(cuInit(0));
    assert_cuda(cuCtxCreate_v2(&context, 0, 0));
    assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuMemAlloc_v2(&address, sizeof(words)));
    assert_cuda(cuMemcpyHtoD_v2(address, words, sizeof(words)));
    __typeof__(&cuMemcpyWithAttributesAsync) copy =
        NEWER(cuMemcpyWithAttributesAsync, "cuMemcpyWithAttributesAsync", 0);
    assert_cuda(copy(address + 4, address, 4, &attributes, stream));
    assert_int_equal(copy(address + 4, address, 4, &attributes, CU_STREAM_LEGACY), CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY3D_BATCH_OP box = {
        .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = address}},
        .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = address + 4}},
        .extent = {4, 1, 1},
        .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    assert_cuda(NEWER(cuMemcpy3DWithAttributesAsync, "cuMemcpy3DWithAttributesAsync", 0)(&box, 0, stream));
    assert_cuda(NEWER(cuLaunchHostFunc_v2, "cuLaunchHostFunc", 0)(stream, count_up, &count, 1));
    assert_cuda(cuStreamSynchronize(stream));
    assert_cuda(cuMemcpyDtoH_v2(words, address, sizeof(words)));
    assert_int_equal(words[1], 7);
    assert_int_equal(count, 1);
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(NEWER(cuGraphAddNode_v3, "cuGraphAddNode", 0)(&node, graph, NULL, NULL, 0, &empty));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuStreamDestroy_v2(stream));
    assert_cuda(cuCtxDestroy_v2(context));
}

static void a_context_is_of_the_driver_s_version(void **state)
{
    CUcontext context;
    unsigned version = 0;
    assert_cuda(cuInit(0));
    assert_cuda(cuCtxCreate_v2(&context, 0, 0));
    assert_cuda(cuCtxGetApiVersion(context, &version));
    assert_int_equal(version, 12080);
    assert_cuda(cuCtxDestroy_v2(context));
}

static void a_driver_takes_ptx_of_its_own_version_and_older(void **state)
{
    static const struct {
        const char *version, *ptx;
        CUresult result;
    } rows[] = {
        {"12.8", "8.7", CUDA_SUCCESS}, {"12.8", "8.8", CUDA_ERROR_UNSUPPORTED_PTX_VERSION},
        {"13.0", "9.0", CUDA_SUCCESS}, {"13.0", "9.1", CUDA_ERROR_UNSUPPORTED_PTX_VERSION},
        {"13.4", "9.4", CUDA_SUCCESS}, {"13.4", "9.5", CUDA_ERROR_UNSUPPORTED_PTX_VERSION},
    };
    CUcontext context;
    assert_cuda(cuInit(0));
    assert_cuda(cuCtxCreate_v2(&context, 0, 0));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char image[120];
        CUmodule module;
        setenv("FAKECUDA_CUDA_VERSION", rows[i].version, 1);
        snprintf(image, sizeof(image), ".version %s\n.target sm_70\n.visible .entry k(){ret;}\n",
                 rows[i].ptx);
        assert_int_equal(cuModuleLoadData(&module, image), rows[i].result);
        if (rows[i].result == CUDA_SUCCESS)
            assert_cuda(cuModuleUnload(module));
    }
    assert_cuda(cuCtxDestroy_v2(context));
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=1GiB", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_driver_and_nvml_tell_the_version, unset_release),
        cmocka_unit_test_prestate_setup_teardown(a_driver_does_not_know_names_of_later_versions, set_release,
                                                 unset_release, "12.4"),
        cmocka_unit_test(a_driver_exports_no_names_of_later_versions),
        cmocka_unit_test_prestate_setup_teardown(names_of_later_versions_do_what_their_older_forms_do,
                                                 set_release, unset_release, "13.4"),
        cmocka_unit_test_prestate_setup_teardown(a_context_is_of_the_driver_s_version, set_release,
                                                 unset_release, "12.8"),
        cmocka_unit_test_teardown(a_driver_takes_ptx_of_its_own_version_and_older, unset_release),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    simulated_remove();
    return failed;
}
