/* Tests of the launch calls of before CUDA 4, of the driver's linker, and of descriptors of tensors. */
#include "simulated.h"

#include <string.h>

#include "cuda/driver_more.h"

#define FILL_PTX                                                                                             \
    ".version 7.0\n.target sm_70\n.address_size 64\n"                                                        \
    ".visible .entry gs_fill_u32(.param .u64 p, .param .u32 v, .param .u64 n){ret;}\n"
#define SPIN_PTX                                                                                             \
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry gs_spin_us(.param .u64 us){ret;}\n"

static CUcontext context;
static CUmodule module;

static CUfunction function(const char *name)
{
    CUfunction found;
    assert_cuda(cuModuleGetFunction(&found, module, name));
    return found;
}

static void parameters_are_set_one_by_one(void **state)
{
    CUfunction fill = function("gs_fill_u32");
    CUdeviceptr address;
    CUstream stream;
    uint64_t count = 4;
    uint32_t seen[4];
    assert_cuda(cuMemAlloc_v2(&address, sizeof(seen)));
    assert_cuda(cuStreamCreate(&stream, 0));
    assert_cuda(cuFuncSetBlockShape(fill, 32, 1, 1));
    assert_cuda(cuFuncSetSharedSize(fill, 0));
    assert_cuda(cuParamSetv(fill, 0, &address, sizeof(address)));
    assert_cuda(cuParamSeti(fill, 8, 42));
    assert_cuda(cuParamSetv(fill, 16, &count, sizeof(count)));
    assert_cuda(cuParamSetSize(fill, 24));
    assert_cuda(cuLaunchGrid(fill, 1, 1));
    assert_cuda(cuMemcpyDtoH_v2(seen, address, sizeof(seen)));
    assert_int_equal(seen[3], 42);
    assert_cuda(cuParamSeti(fill, 8, 43));
    assert_cuda(cuLaunchGridAsync(fill, 1, 1, stream));
    assert_cuda(cuStreamSynchronize(stream));
    assert_cuda(cuMemcpyDtoH_v2(seen, address, sizeof(seen)));
    assert_int_equal(seen[0], 43);
    assert_cuda(cuParamSeti(fill, 8, 44));
    assert_cuda(cuLaunch(fill));
    assert_cuda(cuMemcpyDtoH_v2(seen, address, sizeof(seen)));
    assert_int_equal(seen[1], 44);
    assert_cuda(cuStreamDestroy_v2(stream));
    assert_cuda(cuMemFree_v2(address));
}

static void what_cannot_be_a_shape_or_a_parameter_is_refused(void **state)
{
    CUfunction fill = function("gs_fill_u32");
    uint64_t value = 0;
    assert_int_equal(cuFuncSetBlockShape(fill, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuFuncSetBlockShape(fill, 2048, 1, 1));
    assert_int_equal(cuLaunchGrid(fill, 1, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLaunchGrid(fill, 0, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuParamSetSize(fill, 5000), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuParamSetv(fill, 4092, &value, 8), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuParamSetv(fill, -1, &value, 8), CUDA_ERROR_INVALID_VALUE);
}

static void texts_are_linked_into_an_image_that_loads(void **state)
{
    CUlinkState linker;
    CUmodule linked;
    CUfunction found;
    void *image;
    size_t bytes = 0;
    enum { PTX = 1, OBJECT = 3 };
    char first[] = FILL_PTX, second[] = SPIN_PTX;
    assert_cuda(cuLinkCreate_v2(0, NULL, NULL, &linker));
    assert_int_equal(cuLinkComplete(linker, &image, &bytes), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(cuLinkAddData_v2(linker, PTX, "nonsense", 9, NULL, 0, NULL, NULL),
                     CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(cuLinkAddData_v2(linker, OBJECT, first, sizeof(first), NULL, 0, NULL, NULL),
                     CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuLinkAddFile_v2(linker, PTX, "/dev/null", 0, NULL, NULL), CUDA_ERROR_INVALID_IMAGE);
    assert_cuda(cuLinkAddData_v2(linker, PTX, first, sizeof(first), "first", 0, NULL, NULL));
    assert_cuda(cuLinkAddData_v2(linker, PTX, second, strlen(second), "second", 0, NULL, NULL));
    assert_cuda(cuLinkComplete(linker, &image, &bytes));
    assert_true(bytes > strlen(first));
    assert_cuda(cuModuleLoadData(&linked, image));
    assert_cuda(cuLinkDestroy(linker));
    assert_int_equal(cuLinkDestroy(linker), CUDA_ERROR_INVALID_HANDLE);
    assert_cuda(cuModuleGetFunction(&found, linked, "gs_fill_u32"));
    assert_cuda(cuModuleGetFunction(&found, linked, "gs_spin_us"));
    assert_cuda(cuModuleUnload(linked));
}

static CUresult tile(CUtensorMap *map, const cuuint64_t *stride, cuuint32_t box)
{
    static _Alignas(16) char memory[64];
    const cuuint64_t extents[] = {64, 64};
    const cuuint32_t boxes[] = {box, 8}, steps[] = {1, 1};
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, memory, extents, stride, boxes,
                                  steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static void tensors_are_described_as_the_reference_allows(void **state)
{
    static _Alignas(16) char elsewhere[64];
    const cuuint64_t good = 256, odd = 250;
    CUtensorMap map, other;
    assert_cuda(tile(&map, &good, 32));
    assert_int_equal(tile(&other, &good, 33), CUDA_ERROR_INVALID_VALUE); /* not whole 16 bytes */
    assert_int_equal(tile(&other, &good, 64), CUDA_ERROR_INVALID_VALUE); /* more than the swizzle spans */
    assert_int_equal(tile(&other, &odd, 32), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(tile((CUtensorMap *)(void *)((char *)&other + 8), &good, 32), CUDA_ERROR_INVALID_VALUE);
    other = map;
    assert_cuda(cuTensorMapReplaceAddress(&other, elsewhere));
    assert_memory_not_equal(&map, &other, sizeof(map));
    assert_int_equal(cuTensorMapReplaceAddress(&other, elsewhere + 4), CUDA_ERROR_INVALID_VALUE);
}

static void profilers_may_be_started(void **state)
{
    assert_cuda(cuProfilerStart());
    assert_cuda(cuProfilerStop());
}

static int initialise(void **state)
{
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
           cuModuleLoadData(&module, FILL_PTX);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=256MiB", "FAKECUDA_CONTEXT_BYTES=1MiB", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_set_one_by_one),
        cmocka_unit_test(what_cannot_be_a_shape_or_a_parameter_is_refused),
        cmocka_unit_test(texts_are_linked_into_an_image_that_loads),
        cmocka_unit_test(tensors_are_described_as_the_reference_allows),
        cmocka_unit_test(profilers_may_be_started),
    };
    int failed = cmocka_run_group_tests(tests, initialise, NULL);
    simulated_remove();
    return failed;
}
