/* Tests of texture and surface references: what they are bound to, how they are read, and how long they live.
 */
#include "simulated.h"

#include <string.h>

enum { OVERRIDE = 1, UNORM = CU_AD_FORMAT_UNSIGNED_INT8, SURFACE = 2 };

static CUcontext context;
static CUmodule module;
static CUtexref texture;

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .global .texref picture;\n.visible .global .surfref canvas;\n"
                          ".visible .global .u32 word;\n";

static CUarray make_array(unsigned flags)
{
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {
        .Width = 16, .Height = 4, .Format = UNORM, .NumChannels = 4, .Flags = flags};
    assert_cuda(cuArray3DCreate_v2(&array, &descriptor));
    return array;
}

static void assert_format(CUarray_format format, int channels)
{
    CUarray_format told;
    int told_channels;
    assert_cuda(cuTexRefGetFormat(&told, &told_channels, texture));
    assert_int_equal(told, format);
    assert_int_equal(told_channels, channels);
    assert_cuda(cuTexRefGetFormat(NULL, NULL, texture)); /* both may be left out */
}

static void linear_memory_is_bound_from_an_aligned_address_on(void **state)
{
    CUdeviceptr memory, told;
    size_t offset = 7;
    assert_cuda(cuMemAlloc_v2(&memory, 4096));
    assert_int_equal(cuTexRefGetAddress_v2(&told, texture), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuTexRefSetFormat(texture, CU_AD_FORMAT_FLOAT, 2));
    assert_cuda(cuTexRefSetAddress_v2(NULL, texture, memory, 4096));
    assert_cuda(cuTexRefGetAddress_v2(&told, texture));
    assert_true(told == memory);
    assert_int_equal(cuTexRefSetAddress_v2(NULL, texture, memory + 520, 64), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuTexRefSetAddress_v2(&offset, texture, memory + 520, 64));
    assert_int_equal(offset, 8);
    assert_cuda(cuTexRefGetAddress_v2(&told, texture));
    assert_true(told == memory + 512);
    assert_int_equal(cuTexRefSetAddress_v2(&offset, texture, memory, 4097), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuTexRefSetAddress_v2(&offset, texture, memory, 0), CUDA_ERROR_INVALID_VALUE);
    assert_format(CU_AD_FORMAT_FLOAT, 2);
    assert_cuda(cuTexRefSetAddress_v2(&offset, texture, 0, 0));
    assert_int_equal(cuTexRefGetAddress_v2(&told, texture), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemFree_v2(memory));
}

static void pitched_memory_brings_its_format_and_keeps_to_alignments(void **state)
{
    CUdeviceptr memory, told;
    CUDA_ARRAY_DESCRIPTOR shape = {.Width = 100, .Height = 8, .Format = UNORM, .NumChannels = 1};
    assert_cuda(cuMemAlloc_v2(&memory, 1024));
    assert_cuda(cuTexRefSetAddress2D_v3(texture, &shape, memory, 128));
    assert_format(UNORM, 1);
    assert_cuda(cuTexRefGetAddress_v2(&told, texture));
    assert_true(told == memory);
    assert_int_equal(cuTexRefSetFormat(texture, UNORM, 2), CUDA_ERROR_INVALID_VALUE); /* cannot follow */
    assert_int_equal(cuTexRefSetAddress2D_v3(texture, &shape, memory + 32, 128), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuTexRefSetAddress2D_v3(texture, &shape, memory, 120), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuTexRefSetAddress2D_v3(texture, &shape, memory, 96), CUDA_ERROR_INVALID_VALUE);
    shape.Height = 65;
    assert_int_equal(cuTexRefSetAddress2D_v2(texture, &shape, memory, 128), CUDA_ERROR_INVALID_VALUE);
    shape.Height = 65001; /* beyond MAXIMUM_TEXTURE2D_LINEAR_HEIGHT */
    assert_int_equal(cuTexRefSetAddress2D_v2(texture, &shape, memory, 128), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemFree_v2(memory));
}

static void a_binding_supersedes_the_one_before(void **state)
{
    CUarray array = make_array(0), told;
    CUmipmappedArray mipmap, told_mipmap;
    CUdeviceptr address;
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {
        .Width = 8, .Height = 8, .Format = CU_AD_FORMAT_HALF, .NumChannels = 2};
    assert_cuda(cuMipmappedArrayCreate(&mipmap, &descriptor, 3));
    assert_int_equal(cuTexRefSetArray(texture, array, 0), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuTexRefSetArray(texture, array, OVERRIDE));
    assert_format(UNORM, 4);
    assert_cuda(cuTexRefGetArray(&told, texture));
    assert_ptr_equal(told, array);
    assert_int_equal(cuTexRefGetMipmappedArray(&told_mipmap, texture), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuTexRefGetAddress_v2(&address, texture), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuTexRefSetMipmappedArray(texture, mipmap, OVERRIDE));
    assert_format(CU_AD_FORMAT_HALF, 2);
    assert_cuda(cuTexRefGetMipmappedArray(&told_mipmap, texture));
    assert_ptr_equal(told_mipmap, mipmap);
    assert_int_equal(cuTexRefGetArray(&told, texture), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuArrayDestroy(array));
    assert_int_equal(cuTexRefSetArray(texture, array, OVERRIDE), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMipmappedArrayDestroy(mipmap));
}

static void what_is_set_is_told(void **state)
{
    CUaddress_mode mode;
    CUfilter_mode filter;
    float color[4] = {0.25f, 0.5f, 0.75f, 1}, told[4], bias, least, most;
    int anisotropy;
    unsigned flags;
    assert_cuda(cuTexRefGetAddressMode(&mode, texture, 0));
    assert_int_equal(mode, CU_TR_ADDRESS_MODE_CLAMP);
    assert_int_equal(cuTexRefSetBorderColor(texture, color), CUDA_ERROR_INVALID_VALUE); /* not its mode */
    assert_cuda(cuTexRefSetAddressMode(texture, 0, CU_TR_ADDRESS_MODE_BORDER));
    assert_cuda(cuTexRefSetAddressMode(texture, 1, CU_TR_ADDRESS_MODE_MIRROR));
    assert_int_equal(cuTexRefSetAddressMode(texture, 3, CU_TR_ADDRESS_MODE_WRAP), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuTexRefSetAddressMode(texture, 0, (CUaddress_mode)4), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuTexRefGetAddressMode(&mode, texture, 1));
    assert_int_equal(mode, CU_TR_ADDRESS_MODE_MIRROR);
    assert_int_equal(cuTexRefGetAddressMode(&mode, texture, 2), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuTexRefSetBorderColor(texture, color));
    assert_cuda(cuTexRefGetBorderColor(told, texture));
    assert_memory_equal(told, color, sizeof(color));
    assert_cuda(cuTexRefSetFilterMode(texture, CU_TR_FILTER_MODE_LINEAR));
    assert_cuda(cuTexRefGetFilterMode(&filter, texture));
    assert_int_equal(filter, CU_TR_FILTER_MODE_LINEAR);
    assert_cuda(cuTexRefGetMipmapFilterMode(&filter, texture));
    assert_int_equal(filter, CU_TR_FILTER_MODE_POINT);
    assert_cuda(cuTexRefSetMipmapLevelBias(texture, 1.5f));
    assert_cuda(cuTexRefGetMipmapLevelBias(&bias, texture));
    assert_true(bias == 1.5f);
    assert_cuda(cuTexRefSetMipmapLevelClamp(texture, 1, 3));
    assert_cuda(cuTexRefGetMipmapLevelClamp(&least, &most, texture));
    assert_true(least == 1 && most == 3);
    assert_cuda(cuTexRefSetMaxAnisotropy(texture, 8));
    assert_cuda(cuTexRefGetMaxAnisotropy(&anisotropy, texture));
    assert_int_equal(anisotropy, 8);
    assert_cuda(cuTexRefSetFlags(texture, 3));
    assert_cuda(cuTexRefGetFlags(&flags, texture));
    assert_int_equal(flags, 3);
    assert_int_equal(cuTexRefSetFlags(texture, 8), CUDA_ERROR_INVALID_VALUE);
}

static void modes_have_no_effect_on_linear_memory(void **state)
{
    CUdeviceptr memory;
    CUaddress_mode mode;
    CUfilter_mode filter;
    assert_cuda(cuMemAlloc_v2(&memory, 512));
    assert_cuda(cuTexRefSetAddress_v2(NULL, texture, memory, 512));
    assert_cuda(cuTexRefSetAddressMode(texture, 0, CU_TR_ADDRESS_MODE_WRAP));
    assert_cuda(cuTexRefGetAddressMode(&mode, texture, 0));
    assert_int_equal(mode, CU_TR_ADDRESS_MODE_CLAMP);
    assert_cuda(cuTexRefSetFilterMode(texture, CU_TR_FILTER_MODE_LINEAR));
    assert_cuda(cuTexRefGetFilterMode(&filter, texture));
    assert_int_equal(filter, CU_TR_FILTER_MODE_POINT);
    assert_cuda(cuMemFree_v2(memory));
}

static void a_modules_references_are_found_by_name_and_go_with_it(void **state)
{
    CUtexref found, again;
    CUsurfref surface;
    CUarray plain = make_array(0), array = make_array(SURFACE), told;
    CUdeviceptr pointer;
    size_t bytes;
    assert_int_equal(cuModuleGetTexRef(&found, module, "canvas"), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(cuModuleGetTexRef(&found, module, "word"), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(cuModuleGetSurfRef(&surface, module, "picture"), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(cuModuleGetGlobal_v2(&pointer, &bytes, module, "picture"), CUDA_ERROR_NOT_FOUND);
    assert_cuda(cuModuleGetGlobal_v2(&pointer, &bytes, module, "word"));
    assert_cuda(cuModuleGetTexRef(&found, module, "picture"));
    assert_cuda(cuModuleGetTexRef(&again, module, "picture"));
    assert_ptr_equal(found, again);
    assert_int_equal(cuTexRefDestroy(found), CUDA_ERROR_INVALID_VALUE); /* the module's to destroy */
    assert_cuda(cuTexRefSetArray(found, plain, OVERRIDE));
    assert_cuda(cuModuleGetSurfRef(&surface, module, "canvas"));
    assert_int_equal(cuSurfRefGetArray(&told, surface), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuSurfRefSetArray(surface, plain, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuSurfRefSetArray(surface, array, 1), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuSurfRefSetArray(surface, array, 0));
    assert_cuda(cuSurfRefGetArray(&told, surface));
    assert_ptr_equal(told, array);
    assert_cuda(cuModuleUnload(module));
    assert_int_equal(cuTexRefGetArray(&told, found), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuSurfRefGetArray(&told, surface), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuModuleLoadData(&module, ptx));
    assert_cuda(cuModuleGetTexRef(&again, module, "picture"));
    assert_int_equal(cuTexRefGetArray(&told, again), CUDA_ERROR_INVALID_VALUE); /* bound to nothing yet */
    assert_cuda(cuArrayDestroy(plain));
    assert_cuda(cuArrayDestroy(array));
}

static void a_destroyed_reference_and_one_without_a_context_are_refused(void **state)
{
    CUtexref reference;
    CUcontext popped;
    unsigned flags;
    assert_int_equal(cuTexRefCreate(NULL), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuTexRefCreate(&reference));
    assert_cuda(cuCtxPopCurrent_v2(&popped));
    assert_int_equal(cuTexRefGetFlags(&flags, reference), CUDA_ERROR_INVALID_CONTEXT);
    assert_cuda(cuCtxPushCurrent_v2(popped));
    assert_cuda(cuTexRefDestroy(reference));
    assert_int_equal(cuTexRefDestroy(reference), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuTexRefGetFlags(&flags, reference), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuTexRefGetFlags(&flags, NULL), CUDA_ERROR_INVALID_VALUE);
}

static int begin(void **state)
{
    assert_cuda(cuTexRefCreate(&texture));
    return 0;
}

static int end(void **state)
{
    assert_cuda(cuTexRefDestroy(texture));
    return 0;
}

static int start(void **state)
{
    simulated_choose((char *const[]){"FAKECUDA_TOTAL_MEM=64MiB", "FAKECUDA_CONTEXT_BYTES=0", NULL});
    assert_cuda(cuInit(0));
    assert_cuda(cuCtxCreate_v2(&context, 0, 0));
    assert_cuda(cuModuleLoadData(&module, ptx));
    return 0;
}

static int stop(void **state)
{
    assert_cuda(cuModuleUnload(module));
    assert_cuda(cuCtxDestroy_v2(context));
    simulated_remove();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(linear_memory_is_bound_from_an_aligned_address_on, begin, end),
        cmocka_unit_test_setup_teardown(pitched_memory_brings_its_format_and_keeps_to_alignments, begin, end),
        cmocka_unit_test_setup_teardown(a_binding_supersedes_the_one_before, begin, end),
        cmocka_unit_test_setup_teardown(what_is_set_is_told, begin, end),
        cmocka_unit_test_setup_teardown(modes_have_no_effect_on_linear_memory, begin, end),
        cmocka_unit_test(a_modules_references_are_found_by_name_and_go_with_it),
        cmocka_unit_test(a_destroyed_reference_and_one_without_a_context_are_refused),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
