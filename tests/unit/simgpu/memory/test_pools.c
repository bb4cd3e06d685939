/* Tests of memory pools that a program makes, and of which it chooses. */
#include "simulated.h"

#define TOTAL (64 * MIB)
#define STEP (2 * MIB)

static CUcontext context;

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which)
{
    cuuint64_t value;
    assert_cuda(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

static const CUmemPoolProps on_device = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static void a_made_pool_counts_apart_from_the_default_one(void **state)
{
    CUmemoryPool pool, standard;
    CUdeviceptr pointer, other;
    assert_cuda(cuDeviceGetDefaultMemPool(&standard, 0));
    assert_cuda(cuMemPoolCreate(&pool, &on_device));
    assert_ptr_not_equal(pool, standard);
    assert_int_equal(simulated_free_bytes(), TOTAL);
    assert_cuda(cuMemAllocFromPoolAsync(&pointer, 3 * MIB, pool, NULL));
    assert_int_equal(simulated_free_bytes(), TOTAL - 2 * STEP);
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 2 * STEP);
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 3 * MIB);
    assert_int_equal(attribute(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    CUmemoryPool owner;
    assert_cuda(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer));
    assert_ptr_equal(owner, pool);
    assert_cuda(cuMemAllocFromPoolAsync_ptsz(&other, MIB, pool, NULL));
    assert_int_equal(simulated_free_bytes(), TOTAL - 2 * STEP);
    assert_cuda(cuMemFreeAsync(pointer, NULL));
    assert_cuda(cuMemFreeAsync_ptsz(other, NULL));
    assert_int_equal(simulated_free_bytes(), TOTAL - 2 * STEP);
    assert_cuda(cuCtxSynchronize());
    assert_int_equal(simulated_free_bytes(), TOTAL);
    assert_cuda(cuMemPoolDestroy(pool));
}

static void a_destroyed_pool_keeps_only_what_is_allocated(void **state)
{
    CUmemoryPool pool, current, standard;
    CUdeviceptr first, second, third;
    cuuint64_t threshold = UINT64_MAX;
    assert_cuda(cuDeviceGetDefaultMemPool(&standard, 0));
    assert_cuda(cuMemPoolCreate(&pool, &on_device));
    assert_cuda(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    assert_cuda(cuDeviceSetMemPool(0, pool));
    assert_cuda(cuDeviceGetMemPool(&current, 0));
    assert_ptr_equal(current, pool);
    assert_cuda(cuMemAllocAsync(&first, 2 * STEP, NULL));
    assert_cuda(cuMemAllocAsync(&second, 1000, NULL));
    assert_cuda(cuMemAllocAsync(&third, STEP, NULL));
    assert_cuda(cuMemFreeAsync(third, NULL));
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 4 * STEP);
    assert_cuda(cuMemPoolDestroy(pool));
    assert_int_equal(simulated_free_bytes(), TOTAL - 3 * STEP);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocFromPoolAsync(&third, 1, pool, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuDeviceGetMemPool(&current, 0));
    assert_ptr_equal(current, standard);
    assert_cuda(cuMemsetD8_v2(first, 1, 2 * STEP)); /* it lives on */
    assert_cuda(cuMemFreeAsync(first, NULL));
    assert_int_equal(simulated_free_bytes(), TOTAL - STEP); /* at once: nothing keeps it */
    assert_cuda(cuMemFree_v2(second));
    assert_int_equal(simulated_free_bytes(), TOTAL);
    assert_int_equal(cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
}

static void a_pool_grows_to_its_greatest_size(void **state)
{
    CUmemPoolProps properties = on_device;
    properties.maxSize = 2 * STEP;
    CUmemoryPool pool;
    CUdeviceptr first, second;
    assert_cuda(cuMemPoolCreate(&pool, &properties));
    assert_cuda(cuMemAllocFromPoolAsync(&first, 2 * STEP - 512, pool, NULL));
    assert_int_equal(cuMemAllocFromPoolAsync(&second, 513, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_cuda(cuMemAllocFromPoolAsync(&second, 512, pool, NULL));
    assert_int_equal(simulated_free_bytes(), TOTAL - 2 * STEP);
    assert_cuda(cuMemFreeAsync(first, NULL));
    assert_cuda(cuMemFreeAsync(second, NULL));
    assert_cuda(cuMemPoolTrimTo(pool, 0));
    assert_int_equal(simulated_free_bytes(), TOTAL);
    assert_cuda(cuMemPoolDestroy(pool));
}

static void host_pools_take_nothing_of_the_device(void **state)
{
    CUmemPoolProps properties = on_device;
    CUmemLocationType types[] = {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA};
    for (unsigned i = 0; i < 2; i++) {
        CUmemoryPool pool;
        CUdeviceptr pointer;
        unsigned type;
        properties.location.type = types[i];
        assert_cuda(cuMemPoolCreate(&pool, &properties));
        assert_cuda(cuMemAllocFromPoolAsync(&pointer, 2 * TOTAL, pool, NULL));
        assert_int_equal(simulated_free_bytes(), TOTAL);
        assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 2 * TOTAL);
        assert_cuda(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
        assert_int_equal(type, CU_MEMORYTYPE_HOST);
        *(volatile char *)(uintptr_t)pointer = 7; /* the host may */
        CUmemAccess_flags flags;
        assert_cuda(cuMemPoolGetAccess(&flags, pool, &properties.location));
        assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        assert_cuda(cuMemPoolGetAccess(&flags, pool, (CUmemLocation *)&on_device.location));
        assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
        assert_cuda(cuMemPoolSetAccess(
            pool, &(CUmemAccessDesc){on_device.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}, 1));
        assert_cuda(cuMemPoolGetAccess(&flags, pool, (CUmemLocation *)&on_device.location));
        assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        assert_cuda(cuMemFreeAsync(pointer, NULL));
        assert_cuda(cuMemPoolDestroy(pool));
    }
}

static void managed_pools_count_as_managed_memory(void **state)
{
    CUmemPoolProps properties = on_device;
    properties.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
    CUmemoryPool pool;
    CUdeviceptr pointer;
    int managed = 0;
    assert_cuda(cuMemPoolCreate(&pool, &properties));
    assert_cuda(cuMemAllocFromPoolAsync(&pointer, 100, pool, NULL));
    assert_int_equal(simulated_free_bytes(), TOTAL - STEP);
    assert_cuda(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer));
    assert_int_equal(managed, 1);
    assert_cuda(cuMemFreeAsync(pointer, NULL));
    assert_cuda(cuMemPoolDestroy(pool));
    assert_int_equal(simulated_free_bytes(), TOTAL);
}

static void each_place_has_its_default_and_its_current_pool(void **state)
{
    CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST}, none = {.type = CU_MEM_LOCATION_TYPE_NONE};
    CUmemLocation device = on_device.location;
    CUmemoryPool first, second, made;
    assert_cuda(cuMemGetDefaultMemPool(&first, &device, CU_MEM_ALLOCATION_TYPE_PINNED));
    assert_cuda(cuDeviceGetDefaultMemPool(&second, 0));
    assert_ptr_equal(first, second);
    assert_cuda(cuMemGetDefaultMemPool(&second, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
    assert_ptr_not_equal(first, second);
    assert_cuda(cuMemGetMemPool(&first, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
    assert_ptr_equal(first, second);
    assert_cuda(cuMemGetDefaultMemPool(&first, &none, CU_MEM_ALLOCATION_TYPE_MANAGED));
    assert_int_equal(cuMemGetDefaultMemPool(&first, &none, CU_MEM_ALLOCATION_TYPE_PINNED),
                     CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemPoolCreate(&made, &on_device));
    assert_int_equal(cuMemSetMemPool(&host, CU_MEM_ALLOCATION_TYPE_PINNED, made), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemSetMemPool(&device, CU_MEM_ALLOCATION_TYPE_PINNED, made));
    assert_cuda(cuDeviceGetMemPool(&first, 0));
    assert_ptr_equal(first, made);
    assert_cuda(cuMemPoolDestroy(made));
}

static void wrong_pools_are_refused(void **state)
{
    CUmemoryPool pool;
    CUmemPoolProps properties = on_device;
    int not_a_pool[64] = {0};
    properties.location.id = 1;
    assert_int_equal(cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_DEVICE);
    properties = on_device;
    properties.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
    assert_int_equal(cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_VALUE);
    properties = on_device;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_WIN32;
    assert_int_equal(cuMemPoolCreate(&pool, &properties), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuMemPoolTrimTo((CUmemoryPool)(void *)not_a_pool, 0), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemPoolCreate(&pool, &on_device));
    CUmemAccessDesc nothing = {on_device.location, CU_MEM_ACCESS_FLAGS_PROT_NONE};
    assert_int_equal(cuMemPoolSetAccess(pool, &nothing, 1), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemPoolDestroy(pool));
}

/* Of a program's pools and of the default one: what is allocated, and what is reserved for later. */
static void memory_of_pools_outlives_the_last_context(void **state)
{
    CUmemoryPool pool, standard;
    CUdeviceptr first, second, freed;
    unsigned seen = 0;
    cuuint64_t threshold = UINT64_MAX;
    assert_cuda(cuDeviceGetDefaultMemPool(&standard, 0));
    assert_cuda(cuMemPoolCreate(&pool, &on_device));
    assert_cuda(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    assert_cuda(cuMemAllocFromPoolAsync(&first, 2 * STEP, pool, NULL));
    assert_cuda(cuMemAllocFromPoolAsync(&freed, STEP, pool, NULL));
    assert_cuda(cuMemAllocAsync(&second, STEP, NULL));
    assert_cuda(cuMemsetD32_v2(first, 41, 1));
    assert_cuda(cuMemsetD32_v2(second, 42, 1));
    assert_cuda(cuMemFreeAsync(freed, NULL));
    for (unsigned round = 0; round < 2; round++) {
        assert_cuda(round ? cuDevicePrimaryCtxReset_v2(0) : cuDevicePrimaryCtxRelease_v2(0));
        assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 3 * STEP);
        assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 2 * STEP);
        assert_int_equal(attribute(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), STEP);
        assert_cuda(cuDevicePrimaryCtxRetain(&context, 0));
        assert_cuda(cuCtxSetCurrent(context));
        assert_int_equal(simulated_free_bytes(), TOTAL - 4 * STEP);
        assert_cuda(cuMemcpyDtoH_v2(&seen, first, 4));
        assert_int_equal(seen, 41);
        assert_cuda(cuMemcpyDtoH_v2(&seen, second, 4));
        assert_int_equal(seen, 42);
    }
    assert_cuda(cuDevicePrimaryCtxRelease_v2(0)); /* of the one that a reset has ended */
    assert_cuda(cuMemPoolDestroy(pool));
    assert_int_equal(simulated_free_bytes(), TOTAL - 3 * STEP);
    assert_cuda(cuMemFreeAsync(first, NULL));
    assert_cuda(cuMemFree_v2(second));
    assert_cuda(cuCtxSynchronize());
    assert_int_equal(simulated_free_bytes(), TOTAL);
}

static int initialise(void **state)
{
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=64MiB", "FAKECUDA_CONTEXT_BYTES=0", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_made_pool_counts_apart_from_the_default_one),
        cmocka_unit_test(a_destroyed_pool_keeps_only_what_is_allocated),
        cmocka_unit_test(a_pool_grows_to_its_greatest_size),
        cmocka_unit_test(host_pools_take_nothing_of_the_device),
        cmocka_unit_test(managed_pools_count_as_managed_memory),
        cmocka_unit_test(each_place_has_its_default_and_its_current_pool),
        cmocka_unit_test(wrong_pools_are_refused),
        cmocka_unit_test(memory_of_pools_outlives_the_last_context),
    };
    int failed = cmocka_run_group_tests(tests, initialise, NULL);
    simulated_remove();
    return failed;
}
