/* Tests of the forms of before CUDA 3.2, whose addresses have 32 bits, as a program of their time uses them.
 * The GPU has 4.5 GiB; contexts cost nothing. */
#include "simulated.h"

#include <string.h>

#include "cuda/driver_more.h"

static CUcontext narrow, wide;

static void use(CUcontext context)
{
    assert_cuda(cuCtxSetCurrent(context));
}

static void a_context_tells_the_form_that_made_it(void **state)
{
    unsigned version;
    assert_cuda(cuCtxGetApiVersion(narrow, &version));
    assert_int_equal(version, 3010);
    assert_cuda(cuCtxGetApiVersion(wide, &version));
    assert_true(version >= 3020);
}

static void narrow_forms_refuse_contexts_of_wide_ones(void **state)
{
    CUdeviceptr_v1 pointer = 7;
    CUdeviceptr real;
    unsigned free_now, total;
    use(wide);
    assert_int_equal(cuMemAlloc(&pointer, 4096), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(pointer, 7);
    assert_int_equal(cuMemGetInfo(&free_now, &total), CUDA_ERROR_INVALID_CONTEXT);
    assert_cuda(cuMemAlloc_v2(&real, 4096));
    assert_int_equal(cuMemFree((CUdeviceptr_v1)real), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuMemsetD8((CUdeviceptr_v1)real, 0, 1), CUDA_ERROR_INVALID_CONTEXT);
    assert_cuda(cuMemFree_v2(real));
    use(narrow);
}

static void memory_of_a_narrow_context_lies_where_32_bits_reach(void **state)
{
    CUdeviceptr_v1 pointer, base;
    CUdeviceptr reached;
    unsigned bytes;
    uint64_t before = simulated_free_bytes();
    assert_cuda(cuMemAlloc(&pointer, 3 * MIB + 1));
    assert_int_equal(simulated_free_bytes(), before - 3 * MIB - 1);
    assert_cuda(cuMemGetAddressRange(&base, &bytes, pointer + 5));
    assert_int_equal(base, pointer);
    assert_int_equal(bytes, 3 * MIB + 1);
    assert_cuda(cuMemAlloc_v2(&reached, 4096));
    assert_true(reached <= UINT32_MAX - 4096);
    assert_cuda(cuMemFree((CUdeviceptr_v1)reached));
    assert_int_equal(cuMemFree((CUdeviceptr_v1)reached), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemFree_v2(pointer));
    assert_int_equal(simulated_free_bytes(), before);
}

static void narrow_copies_and_memsets_move_the_bytes(void **state)
{
    CUdeviceptr_v1 first, second;
    unsigned char text[64] = "what goes in comes out", back[64] = "";
    assert_cuda(cuMemAlloc(&first, 64));
    assert_cuda(cuMemAlloc(&second, 64));
    assert_cuda(cuMemcpyHtoD(first, text, sizeof(text)));
    assert_cuda(cuMemcpyDtoD(second, first, sizeof(text)));
    assert_cuda(cuMemsetD8(first, 0, 64));
    assert_cuda(cuMemsetD2D8(second, 32, 'w', 1, 1));
    assert_cuda(cuMemcpyDtoHAsync(back, second, sizeof(back), NULL));
    assert_cuda(cuCtxSynchronize());
    assert_memory_equal(back, text, sizeof(text));
    assert_cuda(cuMemcpyDtoH(back, first, sizeof(back)));
    assert_int_equal(back[0], 0);
    const CUDA_MEMCPY2D_v1 box = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                  .srcHost = text,
                                  .srcPitch = 32,
                                  .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                  .dstDevice = first,
                                  .dstPitch = 16,
                                  .WidthInBytes = 4,
                                  .Height = 2};
    assert_cuda(cuMemcpy2D(&box));
    assert_cuda(cuMemcpyDtoH(back, first, 32));
    assert_memory_equal(back, text, 4);
    assert_memory_equal(back + 16, text + 32, 4);
    assert_int_equal(cuMemcpyHtoD(first + 1, text, 64), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemFree(first));
    assert_cuda(cuMemFree(second));
}

static void narrow_pitched_memory_and_a_module_s_globals_are_reached(void **state)
{
    CUdeviceptr_v1 pointer;
    CUmodule module;
    unsigned pitch, bytes, values[4];
    uint64_t before = simulated_free_bytes();
    assert_cuda(cuMemAllocPitch(&pointer, &pitch, 100, 7, 4));
    assert_int_equal(pitch, 512);
    assert_int_equal(simulated_free_bytes(), before - 7 * 512);
    assert_cuda(cuMemFree(pointer));
    assert_cuda(cuModuleLoadData(&module, SIMULATED_PTX));
    assert_cuda(cuModuleGetGlobal(&pointer, &bytes, module, "counter"));
    assert_int_equal(bytes, 16);
    assert_cuda(cuMemcpyDtoH(values, pointer, sizeof(values)));
    assert_int_equal(values[3], 4);
    assert_cuda(cuModuleUnload(module));
    assert_int_equal(simulated_free_bytes(), before);
}

static void texture_references_are_bound_to_narrow_memory(void **state)
{
    CUtexref texture;
    CUdeviceptr_v1 memory, told;
    unsigned offset = 0;
    const CUDA_ARRAY_DESCRIPTOR_v1 shape = {
        .Width = 32, .Height = 2, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    assert_cuda(cuTexRefCreate(&texture));
    assert_cuda(cuMemAlloc(&memory, 4096));
    assert_cuda(cuTexRefSetAddress(&offset, texture, memory + 516, 64));
    assert_int_equal(offset, (memory + 516) % 512);
    assert_cuda(cuTexRefGetAddress(&told, texture));
    assert_int_equal(told + offset, memory + 516);
    CUdeviceptr_v1 aligned = (memory + 511) / 512 * 512;
    assert_cuda(cuTexRefSetAddress2D(texture, &shape, aligned, 64));
    assert_cuda(cuTexRefGetAddress(&told, texture));
    assert_int_equal(told, aligned);
    use(wide);
    assert_int_equal(cuTexRefGetAddress(&told, texture), CUDA_ERROR_INVALID_CONTEXT);
    use(narrow);
    assert_cuda(cuTexRefDestroy(texture));
    assert_cuda(cuMemFree(memory));
}

static void figures_beyond_32_bits_are_their_most(void **state)
{
    unsigned free_now, total, bytes;
    assert_cuda(cuMemGetInfo(&free_now, &total));
    assert_int_equal(total, UINT32_MAX);
    assert_cuda(cuDeviceTotalMem(&bytes, 0));
    assert_int_equal(bytes, UINT32_MAX);
    CUdeviceptr_v1 pointer;
    assert_cuda(cuMemAlloc(&pointer, 1u << 30));
    assert_cuda(cuMemGetInfo(&free_now, &total));
    assert_int_equal(free_now, 3584 * MIB);
    assert_cuda(cuMemFree(pointer));
}

static void memory_goes_with_its_narrow_context(void **state)
{
    CUcontext another;
    CUdeviceptr_v1 pointer;
    uint64_t before = simulated_free_bytes();
    assert_cuda(cuCtxCreate(&another, 0, 0));
    assert_cuda(cuMemAlloc(&pointer, 5 * MIB));
    assert_cuda(cuCtxDestroy_v2(another));
    use(narrow);
    assert_int_equal(simulated_free_bytes(), before);
    assert_int_equal(cuMemFree(pointer), CUDA_ERROR_INVALID_VALUE);
}

static int initialise(void **state)
{
    return cuInit(0) || cuCtxCreate_v2(&wide, 0, 0) || cuCtxCreate(&narrow, 0, 0);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=4608MiB", "FAKECUDA_CONTEXT_BYTES=0", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_tells_the_form_that_made_it),
        cmocka_unit_test(narrow_forms_refuse_contexts_of_wide_ones),
        cmocka_unit_test(memory_of_a_narrow_context_lies_where_32_bits_reach),
        cmocka_unit_test(narrow_copies_and_memsets_move_the_bytes),
        cmocka_unit_test(narrow_pitched_memory_and_a_module_s_globals_are_reached),
        cmocka_unit_test(texture_references_are_bound_to_narrow_memory),
        cmocka_unit_test(figures_beyond_32_bits_are_their_most),
        cmocka_unit_test(memory_goes_with_its_narrow_context),
    };
    int failed = cmocka_run_group_tests(tests, initialise, NULL);
    simulated_remove();
    return failed;
}
