/* The rarer ways of taking memory: charged to the byte, refused at the quota, given back; on a driver of our
 * own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cuda/array_size.h"
#include "fake_more.h"
#include "fixture.h"
#include "intercept/submit/gate.h"

/* Things of the fake driver that are no memory go too. */
static int destroy_everything(void **state)
{
    return destroy_context(state) == 0 && fake_things == 0 ? 0 : -1;
}

#define PAGE UINT64_C(65536)

/* --- Arrays ---------------------------------------------------------------------------------------- */

static void an_array_has_the_bytes_of_its_tiles(void **state)
{
    CUDA_ARRAY3D_DESCRIPTOR how = {.Width = 100000, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    assert_int_equal(cuda_array_bytes(&how, 1), 25 * PAGE); /* 1,600,000 bytes in lines of 512 */
    how = (CUDA_ARRAY3D_DESCRIPTOR){1000, 1000, 0, CU_AD_FORMAT_FLOAT, 4, 0};
    assert_int_equal(cuda_array_bytes(&how, 1), 16000 * 1024);
    assert_int_equal(cuda_array_bytes(&how, 2), (16000 * 1024 + 8000 * 512) / PAGE * PAGE + PAGE);
    how = (CUDA_ARRAY3D_DESCRIPTOR){1, 1, 16384, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    assert_int_equal(cuda_array_bytes(&how, 1), 64 * 8 * 16384);
    how = (CUDA_ARRAY3D_DESCRIPTOR){64, 8, 3, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    assert_int_equal(cuda_array_bytes(&how, 99), PAGE); /* no more levels than there are */
    how.Width = 64 * 1024;
    assert_int_equal(cuda_array_bytes(&how, 1), 8 * PAGE * 4); /* a volume: four slices deep */
    how.Flags = 1;
    assert_int_equal(cuda_array_bytes(&how, 1), 8 * PAGE * 3); /* layers */
    how = (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = 1920, .Height = 1080, .Format = CU_AD_FORMAT_NV12, .NumChannels = 3};
    assert_in_range(cuda_array_bytes(&how, 1), 1920 * 1152 + 1920 * 640, 1920 * 1920 + 2 * PAGE);
    how.Format = CU_AD_FORMAT_BC1_UNORM;
    assert_int_equal(cuda_array_bytes(&how, 1), (480 * 8 * 384 + PAGE - 1) / PAGE * PAGE);
    how.Format = (CUarray_format)0x55;
    assert_int_equal(cuda_array_bytes(&how, 1), 0);
    how = (CUDA_ARRAY3D_DESCRIPTOR){.Width = SIZE_MAX, .Height = 2, .Format = 1, .NumChannels = 1};
    assert_true(cuda_array_bytes(&how, 1) == UINT64_MAX);
}

static void arrays_of_all_forms_are_charged_until_destroyed(void **state)
{
    CUDA_ARRAY_DESCRIPTOR_v1 flat_v1 = {1024, 1024, CU_AD_FORMAT_FLOAT, 4};
    CUDA_ARRAY_DESCRIPTOR flat = {1024, 1024, CU_AD_FORMAT_FLOAT, 4};
    CUDA_ARRAY3D_DESCRIPTOR_v1 deep_v1 = {1024, 64, 16, CU_AD_FORMAT_FLOAT, 4, 0};
    CUDA_ARRAY3D_DESCRIPTOR deep = {1024, 64, 16, CU_AD_FORMAT_FLOAT, 4, 0}, row = {16, 0, 0, 1, 1, 0};
    CUarray arrays[4], more;
    CUmipmappedArray levels;
    assert_int_equal(cuArrayCreate(&arrays[0], &flat_v1), CUDA_SUCCESS);
    assert_int_equal(cuArrayCreate_v2(&arrays[1], &flat), CUDA_SUCCESS);
    assert_int_equal(cuArray3DCreate(&arrays[2], &deep_v1), CUDA_SUCCESS);
    assert_int_equal(used(), 48 * MIB);
    assert_int_equal(cuArray3DCreate_v2(&arrays[3], &deep), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuArray3DCreate_v2(&more, &row), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMipmappedArrayCreate(&levels, &row, 1), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuArrayDestroy(arrays[2]), CUDA_SUCCESS);
    assert_int_equal(cuMipmappedArrayCreate(&levels, &row, 5), CUDA_SUCCESS);
    assert_int_equal(used(), 48 * MIB + 65536);
    fake_next_result = CUDA_ERROR_LAUNCH_FAILED;
    assert_int_equal(cuMipmappedArrayDestroy(levels), CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(used(), 48 * MIB + 65536);
    assert_int_equal(cuMipmappedArrayDestroy(levels), CUDA_SUCCESS);
    fake_next_result = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(cuArrayCreate_v2(&more, &(CUDA_ARRAY_DESCRIPTOR){1, 1, 1, 1}), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(used(), 48 * MIB);
    assert_int_equal(cuArrayDestroy(arrays[0]), CUDA_SUCCESS);
    assert_int_equal(cuArrayDestroy(arrays[1]), CUDA_SUCCESS);
    assert_int_equal(cuArrayDestroy(arrays[3]), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void a_sparse_array_holds_what_is_mapped_into_it(void **state)
{
    static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUDA_ARRAY3D_DESCRIPTOR sparse = {1 << 16, 1 << 16, 0, CU_AD_FORMAT_FLOAT, 4, 0x40};
    CUmemGenericAllocationHandle handles[2];
    CUarrayMapInfo infos[2] = {0};
    CUarray array;
    assert_int_equal(cuArray3DCreate_v2(&array, &sparse), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(cuMemCreate(&handles[i], 2 * MIB, &on_device, 0), CUDA_SUCCESS);
        infos[i].resource.array = array;
        infos[i].subresource.sparseLevel.offsetX = i * 64;
        infos[i].memOperationType = CU_MEM_OPERATION_TYPE_MAP;
        infos[i].memHandle.memHandle = handles[i];
    }
    assert_int_equal(cuMemMapArrayAsync(infos, 2, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(handles[0]), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(handles[1]), CUDA_SUCCESS);
    assert_int_equal(used(), 4 * MIB);
    infos[0].memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
    infos[0].memHandle.memHandle = 0;
    assert_int_equal(cuMemMapArrayAsync(infos, 1, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), 2 * MIB);
    assert_int_equal(cuArrayDestroy(array), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

/* --- Old forms ------------------------------------------------------------------------------------- */

static void the_old_forms_take_no_memory_past_the_quota(void **state)
{
    CUdeviceptr_v1 address;
    unsigned free_bytes, total_bytes, pitch;
    assert_int_equal(cuMemAlloc(&address, 1), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuMemAllocPitch(&address, &pitch, 1, 4, 4), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(fake_held(0), 0);
    assert_int_equal(used(), 0);
    assert_int_equal(cuMemGetInfo(&free_bytes, &total_bytes), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuDeviceTotalMem(&total_bytes, 0), CUDA_SUCCESS);
    assert_int_equal(total_bytes, LIMIT);
}

/* --- External memory ------------------------------------------------------------------------------- */

static void external_memory_is_charged_to_the_importer(void **state)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC what = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                                             .size = LIMIT + 1};
    CUexternalMemory memory;
    assert_int_equal(cuImportExternalMemory(&memory, &what), CUDA_ERROR_OUT_OF_MEMORY);
    what.size = LIMIT;
    assert_int_equal(cuImportExternalMemory(&memory, &what), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuDestroyExternalMemory(memory), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
    assert_int_equal(cuDestroyExternalMemory(memory), CUDA_ERROR_INVALID_HANDLE);
}

/* --- Limits of contexts ---------------------------------------------------------------------------- */

static void a_raised_limit_is_charged_by_what_it_adds(void **state)
{
    CUdeviceptr address;
    assert_int_equal(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, LIMIT + 8 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 24 * MIB), CUDA_SUCCESS);
    assert_int_equal(used(), 16 * MIB);
    fake_next_result = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 32 * MIB), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(used(), 16 * MIB);
    /* 4 processors of 1024 threads, 1 KiB more each. */
    assert_int_equal(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048), CUDA_SUCCESS);
    assert_int_equal(used(), 20 * MIB);
    assert_int_equal(cuMemAlloc_v2(&address, LIMIT - 20 * MIB), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2049), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, MIB), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT - 16 * MIB);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(used(), 4 * MIB); /* and goes with the context */
    assert_int_equal(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * MIB), CUDA_SUCCESS);
}

/* --- Contexts -------------------------------------------------------------------------------------- */

static void a_context_ends_with_its_last_detach(void **state)
{
    CUcontext own = NULL, same;
    CUdeviceptr address;
    assert_int_equal(cuVDPAUCtxCreate_v2(&own, 0, 0, 0, NULL), CUDA_SUCCESS);
    assert_int_equal(cuCtxAttach(&same, 0), CUDA_SUCCESS);
    assert_ptr_equal(same, own);
    assert_int_equal(cuMemAlloc_v2(&address, MIB), CUDA_SUCCESS);
    assert_int_equal(cuCtxDetach(own), CUDA_SUCCESS);
    assert_int_equal(used(), MIB);
    assert_int_equal(cuCtxDetach(own), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
    real(cuCtxPushCurrent_v2)(context);
}

static void memory_of_a_green_context_goes_with_the_primary_one(void **state)
{
    CUgreenCtx green, second;
    CUdeviceptr address;
    CUcontext primary;
    assert_int_equal(cuGreenCtxCreate(&green, NULL, 0, 0), CUDA_SUCCESS);
    real(cuCtxPushCurrent_v2)((CUcontext)green);
    assert_int_equal(cuMemAlloc_v2(&address, MIB), CUDA_SUCCESS);
    assert_int_equal(used(), MIB);
    assert_int_equal(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    assert_int_equal(cuGreenCtxCreate(&second, NULL, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuGreenCtxDestroy(green), CUDA_SUCCESS);
    assert_int_equal(used(), MIB);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    assert_int_equal(used(), MIB);
    assert_int_equal(cuGreenCtxDestroy(second), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
    real(cuCtxPushCurrent_v2)(context);
}

static void no_agent(void)
{
}

/* What the gate knows of work on the context's default stream, which is not known to be done. */
static struct in_flight_entry *enter_work(struct gate *gate, CUcontext of)
{
    struct in_flight_entry *entry = &gate->entries[gate->entry_count++];
    entry->tid = 1;
    entry->context = of;
    entry->stream = CU_STREAM_LEGACY;
    entry->submitted++;
    return entry;
}

static bool is_forgotten(const struct in_flight_entry *entry)
{
    return !entry->context && !entry->stream && entry->covered == entry->submitted;
}

static void the_gate_forgets_the_work_of_contexts_that_go_with_a_green_one(void **state)
{
    CUgreenCtx green, second;
    struct gate *gate = gate_in(private_get());
    assert_true(gate_make(gate, no_agent));
    gate_open(gate, GATE_FREE);
    assert_int_equal(cuGreenCtxCreate(&green, NULL, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuGreenCtxCreate(&second, NULL, 0, 0), CUDA_SUCCESS);
    CUcontext primary;
    assert_int_equal(real(cuDevicePrimaryCtxRetain)(&primary, 0), CUDA_SUCCESS);
    real(cuDevicePrimaryCtxRelease_v2)(0);
    const struct in_flight_entry *of_green = enter_work(gate, (CUcontext)green),
                                 *of_second = enter_work(gate, (CUcontext)second),
                                 *of_primary = enter_work(gate, primary);
    assert_int_equal(cuGreenCtxDestroy(green), CUDA_SUCCESS);
    assert_true(is_forgotten(of_green));
    assert_false(is_forgotten(of_second) || is_forgotten(of_primary));
    assert_int_equal(cuGreenCtxDestroy(second), CUDA_SUCCESS);
    assert_true(is_forgotten(of_second) && is_forgotten(of_primary));
    /* One that the program retains goes with its last release, whatever was made and destroyed meanwhile. */
    assert_int_equal(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    of_primary = enter_work(gate, primary);
    assert_int_equal(cuGreenCtxCreate(&green, NULL, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuGreenCtxDestroy(green), CUDA_SUCCESS);
    assert_false(is_forgotten(of_primary));
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    assert_true(is_forgotten(of_primary));
    gate_end(gate);
    real(cuCtxPushCurrent_v2)(context);
}

/* --- Pools of the program's own -------------------------------------------------------------------- */

static const CUmemPoolProps pool_on_device = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static void a_pool_of_ones_own_is_charged_by_what_it_reserves(void **state)
{
    CUmemoryPool pool;
    CUdeviceptr address;
    assert_int_equal(cuMemPoolCreate(&pool, &pool_on_device), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
    assert_int_equal(cuMemAllocFromPoolAsync(&address, LIMIT + 1, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemAllocFromPoolAsync(&address, MIB, pool, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), 2 * MIB);
    fake_made_used = 0; /* freed */
    assert_int_equal(used(), 2 * MIB);
    /* What it has and does not use makes room for others. */
    assert_int_equal(cuMemAlloc_v2(&address, LIMIT), CUDA_SUCCESS);
    assert_int_equal(fake_made_reserved, 0);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&address, MIB, pool, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), 2 * MIB);
    fake_made_used = 0;
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void a_destroyed_pool_is_charged_until_its_last_allocation_goes(void **state)
{
    CUmemoryPool pool;
    CUdeviceptr address, other;
    assert_int_equal(cuMemPoolCreate(&pool, &pool_on_device), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&address, MIB, pool, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
    assert_int_equal(used(), 2 * MIB);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocFromPoolAsync(&other, MIB, pool, NULL), CUDA_ERROR_INVALID_VALUE);
    fake_made_used = 0; /* freed */
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void a_pool_of_ones_own_is_charged_also_in_no_context_and_the_next_one(void **state)
{
    CUmemoryPool pool;
    CUdeviceptr address;
    assert_int_equal(cuMemPoolCreate(&pool, &pool_on_device), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&address, MIB, pool, NULL), CUDA_SUCCESS);
    assert_int_equal(cuCtxDestroy_v2(context), CUDA_SUCCESS);
    assert_int_equal(used(), 2 * MIB);
    context = fake_context(0);
    assert_int_equal(linear(LIMIT - 2 * MIB + 1), 0);
    assert_int_equal(cuMemAllocFromPoolAsync(&address, 3 * MIB, pool, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), 4 * MIB);
    fake_made_used = 0;
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void a_pool_of_host_memory_is_not_charged(void **state)
{
    CUmemPoolProps on_host = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
    CUmemoryPool pool;
    CUdeviceptr address;
    assert_int_equal(cuMemPoolCreate(&pool, &on_host), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&address, LIMIT * 2, pool, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

static void allocations_at_the_quota_are_never_refused_spuriously(void **state)
{
    CUdeviceptr address;
    for (unsigned i = 0; i < 100000; i++) {
        if (cuMemAllocAsync(&address, LIMIT, NULL) != CUDA_SUCCESS)
            fail_msg("allocation %u was refused", i);
        assert_int_equal(cuMemFreeAsync(address, NULL), CUDA_SUCCESS);
    }
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuMemAlloc_v2(&address, LIMIT), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_context, destroy_everything)

int main(void)
{
    setenv("GPUSLICE_MEMORY_LIMIT", "64MiB", 1);
    fake_driver_install();
    fake_more_install();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_array_has_the_bytes_of_its_tiles),
        TEST(arrays_of_all_forms_are_charged_until_destroyed),
        TEST(a_sparse_array_holds_what_is_mapped_into_it),
        TEST(the_old_forms_take_no_memory_past_the_quota),
        TEST(external_memory_is_charged_to_the_importer),
        TEST(a_raised_limit_is_charged_by_what_it_adds),
        TEST(a_context_ends_with_its_last_detach),
        TEST(memory_of_a_green_context_goes_with_the_primary_one),
        TEST(the_gate_forgets_the_work_of_contexts_that_go_with_a_green_one),
        TEST(a_pool_of_ones_own_is_charged_by_what_it_reserves),
        TEST(a_destroyed_pool_is_charged_until_its_last_allocation_goes),
        TEST(a_pool_of_ones_own_is_charged_also_in_no_context_and_the_next_one),
        TEST(a_pool_of_host_memory_is_not_charged),
        TEST(allocations_at_the_quota_are_never_refused_spuriously),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
