/* Tests of the simulated GPU's memory, as a program sees it. The GPU has 64 MiB and 3 bytes; contexts cost
 * nothing. */
#include "simulated.h"

#include <string.h>

#define TOTAL (64 * MIB + 3)
#define STEP (2 * MIB)

static CUcontext context;

static uint64_t free_bytes(void)
{
    size_t free_now, total;
    assert_cuda(cuMemGetInfo_v2(&free_now, &total));
    assert_int_equal(total, TOTAL);
    return free_now;
}

static CUdeviceptr take(size_t bytes)
{
    CUdeviceptr pointer;
    assert_cuda(cuMemAlloc_v2(&pointer, bytes));
    return pointer;
}

static void memory_runs_out_at_the_byte(void **state)
{
    CUdeviceptr none = 7;
    assert_int_equal(cuMemAlloc_v2(&none, TOTAL + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CUdeviceptr all = take(TOTAL);
    assert_int_equal(free_bytes(), 0);
    assert_int_equal(cuMemAlloc_v2(&none, 1), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(none, 7);
    assert_cuda(cuMemFree_v2(all));
    CUdeviceptr most = take(TOTAL - 1), last = take(1);
    assert_int_equal(free_bytes(), 0);
    assert_int_equal(cuMemAlloc_v2(&none, 1), CUDA_ERROR_OUT_OF_MEMORY);
    assert_cuda(cuMemFree_v2(most));
    assert_cuda(cuMemFree_v2(last));
    assert_int_equal(free_bytes(), TOTAL);
}

static void addresses_are_aligned_and_never_overlap(void **state)
{
    enum { COUNT = 600 };
    CUdeviceptr pointers[COUNT];
    size_t sizes[COUNT];
    srand(3);
    for (unsigned i = 0; i < COUNT; i++) {
        sizes[i] = 1 + (size_t)rand() % (i % 10 ? 9000 : 700000);
        pointers[i] = take(sizes[i]);
        assert_int_equal(pointers[i] % 512, 0);
        assert_cuda(cuMemsetD8_v2(pointers[i], (unsigned char)i, sizes[i]));
        if (i % 3 == 2) { /* holes */
            assert_cuda(cuMemFree_v2(pointers[i - 1]));
            pointers[i - 1] = 0;
        }
    }
    for (unsigned i = 0; i < COUNT; i++) {
        if (!pointers[i])
            continue;
        unsigned char ends[2];
        assert_cuda(cuMemcpyDtoH_v2(&ends[0], pointers[i], 1));
        assert_cuda(cuMemcpyDtoH_v2(&ends[1], pointers[i] + sizes[i] - 1, 1));
        assert_int_equal(ends[0], (unsigned char)i);
        assert_int_equal(ends[1], (unsigned char)i);
        assert_cuda(cuMemFree_v2(pointers[i]));
    }
    assert_int_equal(free_bytes(), TOTAL);
}

/* Addresses are plenty, so only bytes count: every second of small pieces freed makes room for one large. */
static void fragmentation_costs_no_memory(void **state)
{
    enum { COUNT = 1024 };
    CUdeviceptr pointers[COUNT];
    for (unsigned i = 0; i < COUNT; i++)
        pointers[i] = take(64 * KIB);
    assert_int_equal(free_bytes(), 3);
    for (unsigned i = 0; i < COUNT; i += 2)
        assert_cuda(cuMemFree_v2(pointers[i]));
    CUdeviceptr large = take(32 * MIB + 3);
    assert_cuda(cuMemFree_v2(large));
    for (unsigned i = 1; i < COUNT; i += 2)
        assert_cuda(cuMemFree_v2(pointers[i]));
}

static void what_is_freed_or_was_never_given_is_not_a_pointer(void **state)
{
    CUdeviceptr pointer = take(1000);
    assert_int_equal(cuMemFree_v2(pointer + 512), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemFree_v2(pointer));
    assert_int_equal(cuMemFree_v2(pointer), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemsetD8_v2(pointer, 0, 1), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemFree_v2(0));
    assert_int_equal(cuMemAlloc_v2(NULL, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAlloc_v2(&pointer, 0), CUDA_ERROR_INVALID_VALUE);
}

static void copies_beyond_an_allocation_are_refused(void **state)
{
    char host[64] = {0};
    CUdeviceptr pointer = take(32);
    assert_cuda(cuMemcpyHtoD_v2(pointer, host, 32));
    assert_int_equal(cuMemcpyHtoD_v2(pointer, host, 33), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyDtoH_v2(host, pointer + 1, 32), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyDtoD_v2(pointer, pointer + 8, 32), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemFree_v2(pointer));
}

static void pitched_memory_costs_its_real_pitch(void **state)
{
    CUdeviceptr pointer;
    size_t pitch;
    assert_cuda(cuMemAllocPitch_v2(&pointer, &pitch, 1000, 10, 4));
    assert_int_equal(pitch, 1024);
    assert_int_equal(free_bytes(), TOTAL - 10240);
    unsigned rows[2][3] = {{1, 2, 3}, {4, 5, 6}}, back[2][3] = {{0}};
    CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = rows,
                        .srcPitch = sizeof(rows[0]),
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = pointer,
                        .dstPitch = pitch,
                        .dstXInBytes = 8,
                        .dstY = 3,
                        .WidthInBytes = sizeof(rows[0]),
                        .Height = 2};
    assert_cuda(cuMemcpy2D_v2(&in));
    unsigned one;
    assert_cuda(cuMemcpyDtoH_v2(&one, pointer + 4 * pitch + 8 + 4, 4));
    assert_int_equal(one, 5);
    CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                         .srcDevice = pointer,
                         .srcPitch = pitch,
                         .srcXInBytes = 8,
                         .srcY = 3,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = back,
                         .dstPitch = sizeof(back[0]),
                         .WidthInBytes = sizeof(rows[0]),
                         .Height = 2};
    assert_cuda(cuMemcpy2D_v2(&out));
    assert_memory_equal(rows, back, sizeof(rows));
    assert_cuda(cuMemFree_v2(pointer));
}

static void memsets_fill_elements_of_every_width(void **state)
{
    CUdeviceptr pointer = take(64);
    unsigned char bytes[64];
    assert_cuda(cuMemsetD8_v2(pointer, 0x11, 64));
    assert_cuda(cuMemsetD16_v2(pointer + 2, 0x2233, 2));
    assert_cuda(cuMemsetD2D32_v2(pointer + 16, 16, 0x44556677, 2, 3));
    assert_int_equal(cuMemsetD32_v2(pointer + 2, 0, 1), CUDA_ERROR_INVALID_VALUE); /* not aligned */
    assert_cuda(cuMemcpyDtoH_v2(bytes, pointer, 64));
    const unsigned char expected[64] = {
        0x11, 0x11, 0x33, 0x22, 0x33, 0x22, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11,
        0x77, 0x66, 0x55, 0x44, 0x77, 0x66, 0x55, 0x44, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11,
        0x77, 0x66, 0x55, 0x44, 0x77, 0x66, 0x55, 0x44, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11,
        0x77, 0x66, 0x55, 0x44, 0x77, 0x66, 0x55, 0x44, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11,
    };
    assert_memory_equal(bytes, expected, 64);
    assert_cuda(cuMemFree_v2(pointer));
}

static void managed_memory_is_the_host_s_too(void **state)
{
    CUdeviceptr pointer;
    assert_int_equal(cuMemAllocManaged(&pointer, 4096, 0), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemAllocManaged(&pointer, 4096, CU_MEM_ATTACH_GLOBAL));
    assert_int_equal(free_bytes(), TOTAL - 4096);
    assert_cuda(cuMemsetD32_v2(pointer, 42, 1024));
    assert_int_equal(((unsigned *)(uintptr_t)pointer)[1023], 42);
    unsigned managed = 0;
    assert_cuda(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer));
    assert_int_equal(managed, 1);
    assert_cuda(cuMemFree_v2(pointer));
}

static void host_memory_is_pinned_and_registered(void **state)
{
    void *pinned;
    assert_cuda(cuMemHostAlloc(&pinned, 10000, 0));
    memset(pinned, 5, 10000);
    assert_int_equal(free_bytes(), TOTAL);
    CUdeviceptr device;
    assert_cuda(cuMemHostGetDevicePointer_v2(&device, pinned, 0));
    unsigned type = 0;
    assert_cuda(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device));
    assert_int_equal(type, CU_MEMORYTYPE_HOST);
    assert_cuda(cuMemFreeHost(pinned));
    assert_int_equal(cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);

    static char own[8192];
    assert_cuda(cuMemHostRegister_v2(own, sizeof(own), 0));
    assert_int_equal(cuMemHostRegister_v2(own + 100, 8, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_cuda(cuMemHostUnregister(own));
    assert_int_equal(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static void an_address_tells_its_allocation(void **state)
{
    CUdeviceptr pointer = take(5 * MIB), base;
    size_t bytes;
    assert_cuda(cuMemGetAddressRange_v2(&base, &bytes, pointer + 3 * MIB));
    assert_int_equal(base, pointer);
    assert_int_equal(bytes, 5 * MIB);
    assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, pointer + 5 * MIB), CUDA_ERROR_NOT_FOUND);
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                        CU_POINTER_ATTRIBUTE_CONTEXT};
    unsigned type = 9;
    int ordinal = 9;
    CUcontext owner = NULL;
    void *values[] = {&type, &ordinal, &owner};
    assert_cuda(cuPointerGetAttributes(3, attributes, values, pointer + 1));
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    assert_int_equal(ordinal, 0);
    assert_ptr_equal(owner, context);
    int local;
    assert_cuda(cuPointerGetAttributes(3, attributes, values, (CUdeviceptr)(uintptr_t)&local));
    assert_int_equal(type, 0);
    assert_int_equal(ordinal, -1);
    assert_null(owner);
    CUdeviceptr device = 0, host = 0, begin = 77, length = 77;
    assert_cuda(cuPointerGetAttributes(
        4,
        (CUpointer_attribute[]){CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE},
        (void *[]){&device, &host, &begin, &length}, (CUdeviceptr)(uintptr_t)&local));
    assert_int_equal(device, (uintptr_t)&local);
    assert_int_equal(host, (uintptr_t)&local);
    assert_int_equal(begin, 77);
    assert_int_equal(length, 77);
    unsigned is_mapped = 9, is_managed = 9;
    uint64_t id = 9;
    assert_cuda(cuPointerGetAttributes(
        3,
        (CUpointer_attribute[]){CU_POINTER_ATTRIBUTE_MAPPED, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                CU_POINTER_ATTRIBUTE_BUFFER_ID},
        (void *[]){&is_mapped, &is_managed, &id}, (CUdeviceptr)(uintptr_t)&local));
    assert_int_equal(is_mapped, 0);
    assert_int_equal(is_managed, 0);
    assert_int_equal(id, 0);
    assert_cuda(cuMemFree_v2(pointer));
}

static uint64_t id_of(CUdeviceptr address)
{
    uint64_t id;
    assert_cuda(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    return id;
}

/* By its ID alone a program knows that there is other memory now at an address. */
static void each_allocation_has_an_id_of_its_own(void **state)
{
    CUdeviceptr first = take(MIB), second = take(MIB);
    uint64_t first_id = id_of(first);
    assert_int_equal(id_of(first + MIB - 1), first_id);
    assert_true(id_of(second) > first_id);
    assert_cuda(cuMemFree_v2(first));
    CUdeviceptr third = take(MIB);
    assert_int_equal(third, first);
    assert_true(id_of(third) > id_of(second));
    assert_cuda(cuMemFree_v2(second));
    assert_cuda(cuMemFree_v2(third));
}

static void a_context_s_memory_goes_with_it(void **state)
{
    CUcontext other;
    CUdeviceptr pointer;
    assert_cuda(cuCtxCreate_v2(&other, 0, 0));
    assert_cuda(cuMemAlloc_v2(&pointer, 3 * MIB));
    assert_cuda(cuMemAlloc_v2(&pointer, 300));
    assert_int_equal(free_bytes(), TOTAL - 3 * MIB - 300);
    assert_cuda(cuCtxDestroy_v2(other));
    assert_int_equal(free_bytes(), TOTAL);
    assert_int_equal(cuMemFree_v2(pointer), CUDA_ERROR_INVALID_VALUE);
}

/* --- Pools ----------------------------------------------------------------------------------------- */

static uint64_t pool_attribute(CUmemPool_attribute attribute)
{
    CUmemoryPool pool;
    cuuint64_t value;
    assert_cuda(cuDeviceGetDefaultMemPool(&pool, 0));
    assert_cuda(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static void a_pool_reserves_in_steps_and_gives_back_when_synchronised(void **state)
{
    CUdeviceptr first, second;
    assert_cuda(cuMemAllocAsync(&first, 1000, NULL));
    assert_int_equal(pool_attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), STEP);
    assert_int_equal(pool_attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1024);
    assert_cuda(cuMemAllocAsync(&second, STEP, NULL));
    assert_int_equal(pool_attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 2 * STEP);
    assert_int_equal(free_bytes(), TOTAL - 2 * STEP);
    assert_cuda(cuMemFreeAsync(second, NULL));
    assert_int_equal(free_bytes(), TOTAL - 2 * STEP);
    assert_cuda(cuStreamSynchronize(NULL));
    assert_int_equal(free_bytes(), TOTAL - STEP);
    assert_cuda(cuMemFreeAsync(first, NULL));
    assert_cuda(cuCtxSynchronize());
    assert_int_equal(free_bytes(), TOTAL);
    assert_int_equal(pool_attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 2 * STEP);
}

static void a_pool_keeps_its_threshold_until_it_is_trimmed(void **state)
{
    CUmemoryPool pool;
    CUdeviceptr pointer;
    cuuint64_t threshold = UINT64_MAX, none = 0;
    assert_cuda(cuDeviceGetDefaultMemPool(&pool, 0));
    assert_cuda(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    assert_cuda(cuMemAllocAsync(&pointer, 5 * MIB, NULL));
    assert_cuda(cuMemFreeAsync(pointer, NULL));
    assert_cuda(cuStreamSynchronize(NULL));
    assert_int_equal(free_bytes(), TOTAL - 3 * STEP);
    assert_cuda(cuMemPoolTrimTo(pool, STEP + 1));
    assert_int_equal(free_bytes(), TOTAL - 2 * STEP);
    assert_cuda(cuMemPoolTrimTo(pool, 0));
    assert_int_equal(free_bytes(), TOTAL);
    assert_cuda(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none));
}

static void a_pool_that_does_not_fit_is_refused_and_changes_nothing(void **state)
{
    CUdeviceptr pointer, fill = take(TOTAL - STEP);
    assert_int_equal(cuMemAllocAsync(&pointer, STEP + 1, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(free_bytes(), STEP);
    assert_cuda(cuMemAllocAsync(&pointer, STEP, NULL));
    assert_int_equal(free_bytes(), 0);
    assert_cuda(cuMemFree_v2(pointer)); /* also so */
    assert_cuda(cuCtxSynchronize());
    assert_int_equal(free_bytes(), STEP);
    assert_cuda(cuMemFree_v2(fill));
}

/* --- Virtual memory management --------------------------------------------------------------------- */

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUmemAccessDesc read_write = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                           .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void two_mappings_of_one_handle_are_the_same_bytes(void **state)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base;
    size_t granularity;
    assert_cuda(cuMemGetAllocationGranularity(&granularity, &on_device, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    assert_int_equal(granularity, STEP);
    assert_int_equal(cuMemCreate(&handle, STEP - 1, &on_device, 0), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemCreate(&handle, STEP, &on_device, 0));
    assert_int_equal(free_bytes(), TOTAL - STEP);
    assert_cuda(cuMemAddressReserve(&base, 2 * STEP, 0, 0, 0));
    assert_cuda(cuMemMap(base, STEP, 0, handle, 0));
    assert_cuda(cuMemMap(base + STEP, STEP, 0, handle, 0));
    assert_int_equal(cuMemMap(base, STEP, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemsetD32_v2(base, 9, 1), CUDA_ERROR_INVALID_VALUE); /* no access yet */
    assert_cuda(cuMemSetAccess(base, 2 * STEP, &read_write, 1));
    assert_cuda(cuMemsetD32_v2(base, 9, STEP / 4));
    unsigned value = 0;
    assert_cuda(cuMemcpyDtoH_v2(&value, base + 2 * STEP - 4, 4));
    assert_int_equal(value, 9);
    unsigned long long access;
    assert_cuda(cuMemGetAccess(&access, &on_device.location, base));
    assert_int_equal(access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_int_equal(cuMemAddressFree(base, 2 * STEP), CUDA_ERROR_INVALID_VALUE); /* mapped */
    assert_cuda(cuMemUnmap(base, 2 * STEP));
    assert_cuda(cuMemRelease(handle));
    assert_cuda(cuMemAddressFree(base, 2 * STEP));
    assert_int_equal(free_bytes(), TOTAL);
}

static void memory_lives_until_the_last_of_handle_retain_and_mapping_goes(void **state)
{
    CUmemGenericAllocationHandle handle, again;
    CUdeviceptr base;
    assert_cuda(cuMemCreate(&handle, 4 * STEP, &on_device, 0));
    assert_cuda(cuMemAddressReserve(&base, 4 * STEP, 8 * STEP, 0, 0));
    assert_int_equal(base % (8 * STEP), 0);
    assert_cuda(cuMemMap(base, 4 * STEP, 0, handle, 0));
    assert_cuda(cuMemRelease(handle));
    assert_int_equal(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(free_bytes(), TOTAL - 4 * STEP);
    assert_cuda(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(base + 12345)));
    assert_int_equal(again, handle);
    assert_int_equal(cuMemUnmap(base, STEP), CUDA_ERROR_INVALID_VALUE); /* not all of the mapping */
    assert_cuda(cuMemUnmap(base, 4 * STEP));
    assert_int_equal(free_bytes(), TOTAL - 4 * STEP);
    assert_cuda(cuMemRelease(again));
    assert_int_equal(free_bytes(), TOTAL);
    assert_cuda(cuMemAddressFree(base, 4 * STEP));
}

/* Whether a copy in the device, a memset and a copy between contexts return behind a kernel with the kernel done: a bit for each. */
static unsigned what_waits(CUdeviceptr to, CUdeviceptr from)
{
    CUmodule module;
    CUfunction spin;
    uint64_t us = 50000;
    unsigned waited = 0;
    assert_cuda(cuModuleLoadData(&module, SIMULATED_PTX));
    assert_cuda(cuModuleGetFunction(&spin, module, "gs_spin_us"));
    for (unsigned i = 0; i < 3; i++) {
        assert_cuda(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&us}, NULL));
        assert_cuda(i == 0   ? cuMemcpyDtoD_v2(to, from, 4)
                    : i == 1 ? cuMemsetD8_v2(to, 0, 4)
                             : cuMemcpy(to, from, 4));
        waited |= (unsigned)(cuStreamQuery(NULL) == CUDA_SUCCESS) << i;
    }
    assert_cuda(cuCtxSynchronize());
    assert_cuda(cuModuleUnload(module));
    return waited;
}

static unsigned is_synchronous(CUdeviceptr address)
{
    unsigned value = 7;
    assert_cuda(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    return value;
}

static void what_is_set_to_synchronous_is_waited_for(void **state)
{
    CUdeviceptr plain, set, managed, mapped;
    CUmemGenericAllocationHandle handle;
    const unsigned on = 1, off = 0;
    assert_cuda(cuMemAlloc_v2(&plain, 100));
    assert_cuda(cuMemAlloc_v2(&set, 100));
    assert_cuda(cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL));
    assert_int_equal(is_synchronous(set), 0);
    assert_cuda(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, set + 50));
    assert_cuda(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, managed));
    assert_int_equal(is_synchronous(set), 1);
    assert_int_equal(is_synchronous(managed), 1);
    assert_int_equal(is_synchronous(plain), 0);
    assert_int_equal(what_waits(plain, plain), 0);
    assert_int_equal(what_waits(set, plain), 7);
    assert_int_equal(what_waits(plain, set), 5);
    assert_cuda(cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, set));
    assert_int_equal(what_waits(set, plain), 0);
    assert_cuda(cuCtxSetFlags(CU_CTX_SYNC_MEMOPS));
    assert_int_equal(what_waits(plain, plain), 7);
    assert_cuda(cuCtxSetFlags(0));
    assert_cuda(cuMemAddressReserve(&mapped, STEP, 0, 0, 0));
    assert_cuda(cuMemCreate(&handle, STEP, &on_device, 0));
    assert_cuda(cuMemMap(mapped, STEP, 0, handle, 0));
    assert_int_equal(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, mapped),
                     CUDA_ERROR_NOT_SUPPORTED);
    assert_cuda(cuMemUnmap(mapped, STEP));
    assert_cuda(cuMemRelease(handle));
    assert_cuda(cuMemAddressFree(mapped, STEP));
    assert_cuda(cuMemFree_v2(managed));
    assert_cuda(cuMemFree_v2(set));
    assert_cuda(cuMemAlloc_v2(&set, 100));
    assert_int_equal(is_synchronous(set), 0); /* with the memory, its mark has gone */
    assert_cuda(cuMemFree_v2(set));
    assert_cuda(cuMemFree_v2(plain));
}

static void handles_are_charged_to_their_location(void **state)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp on_host = on_device;
    on_host.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    assert_cuda(cuMemCreate(&handle, 4 * STEP, &on_host, 0));
    assert_int_equal(free_bytes(), TOTAL);
    assert_cuda(cuMemRelease(handle));
    assert_int_equal(cuMemCreate(&handle, 33 * STEP, &on_device, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_cuda(cuMemCreate(&handle, 32 * STEP, &on_device, 0));
    assert_int_equal(free_bytes(), 3);
    assert_cuda(cuMemRelease(handle));
    CUmemAllocationProp nowhere = on_device;
    nowhere.location.id = 1;
    assert_int_equal(cuMemCreate(&handle, STEP, &nowhere, 0), CUDA_ERROR_INVALID_DEVICE);
}

static int initialise(void **state)
{
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=67108867", "FAKECUDA_CONTEXT_BYTES=0", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_runs_out_at_the_byte),
        cmocka_unit_test(addresses_are_aligned_and_never_overlap),
        cmocka_unit_test(fragmentation_costs_no_memory),
        cmocka_unit_test(what_is_freed_or_was_never_given_is_not_a_pointer),
        cmocka_unit_test(copies_beyond_an_allocation_are_refused),
        cmocka_unit_test(pitched_memory_costs_its_real_pitch),
        cmocka_unit_test(memsets_fill_elements_of_every_width),
        cmocka_unit_test(managed_memory_is_the_host_s_too),
        cmocka_unit_test(host_memory_is_pinned_and_registered),
        cmocka_unit_test(an_address_tells_its_allocation),
        cmocka_unit_test(each_allocation_has_an_id_of_its_own),
        cmocka_unit_test(what_is_set_to_synchronous_is_waited_for),
        cmocka_unit_test(a_context_s_memory_goes_with_it),
        cmocka_unit_test(a_pool_reserves_in_steps_and_gives_back_when_synchronised),
        cmocka_unit_test(a_pool_keeps_its_threshold_until_it_is_trimmed),
        cmocka_unit_test(a_pool_that_does_not_fit_is_refused_and_changes_nothing),
        cmocka_unit_test(two_mappings_of_one_handle_are_the_same_bytes),
        cmocka_unit_test(memory_lives_until_the_last_of_handle_retain_and_mapping_goes),
        cmocka_unit_test(handles_are_charged_to_their_location),
    };
    int failed = cmocka_run_group_tests(tests, initialise, NULL);
    simulated_remove();
    return failed;
}
