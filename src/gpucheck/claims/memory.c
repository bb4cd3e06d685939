/* memory.c - claims about memory: linear, host, pools, virtual memory management, addresses. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "gpucheck/claims/claim.h"

static uint64_t free_bytes(void)
{
    size_t free_now, total;
    need("cuMemGetInfo_v2", cuMemGetInfo_v2(&free_now, &total));
    return free_now;
}

static void linear(void)
{
    CUdeviceptr pointer, other, base;
    size_t bytes, pitch, total;
    need_context();
    claim_result("cuMemAlloc of NULL", CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(NULL, 1));
    claim_result("cuMemAlloc of 0 bytes", CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&pointer, 0));
    claim_result("cuMemAlloc of more than there is", CUDA_ERROR_OUT_OF_MEMORY,
                 cuMemAlloc_v2(&pointer, (size_t)1 << 46));
    claim_result("cuMemFree of address 0", CUDA_SUCCESS, cuMemFree_v2(0));
    claim_result("cuMemFree of no allocation", CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(4096));
    need("cuMemAlloc_v2", cuMemAlloc_v2(&pointer, 1));
    need("cuMemAlloc_v2", cuMemAlloc_v2(&other, 1));
    claim_number("allocations are aligned to 512 bytes", 0, (pointer | other) % 512);
    claim_result("cuMemFree inside an allocation", CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(pointer + 1));
    need("cuMemGetAddressRange_v2", cuMemGetAddressRange_v2(&base, &bytes, pointer));
    claim_number("cuMemGetAddressRange tells the bytes asked for", 1, bytes);
    need("cuMemFree_v2", cuMemFree_v2(pointer));
    claim_result("cuMemFree a second time", CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(pointer));
    need("cuMemFree_v2", cuMemFree_v2(other));

    uint64_t before = free_bytes();
    need("cuMemAlloc_v2", cuMemAlloc_v2(&pointer, 64 * MIB));
    claim_number("64 MiB allocated are 64 MiB less free", 64 * MIB, before - free_bytes());
    need("cuMemGetAddressRange_v2", cuMemGetAddressRange_v2(&base, &bytes, pointer + 12345));
    claim_true("cuMemGetAddressRange finds the beginning from inside", "the beginning", base == pointer);
    claim_result("cuMemGetAddressRange with NULLs", CUDA_SUCCESS,
                 cuMemGetAddressRange_v2(NULL, NULL, pointer));
    claim_result("cuMemGetAddressRange of no allocation", CUDA_ERROR_NOT_FOUND,
                 cuMemGetAddressRange_v2(&base, &bytes, 4096));
    need("cuMemFree_v2", cuMemFree_v2(pointer));
    claim_number("64 MiB freed are free", before, free_bytes());
    need("cuMemGetInfo_v2", cuMemGetInfo_v2(&bytes, &total));
    size_t whole;
    need("cuDeviceTotalMem_v2", cuDeviceTotalMem_v2(&whole, 0));
    claim_number("cuMemGetInfo and cuDeviceTotalMem tell one total", whole, total);
    claim_result("cuMemGetInfo without a place for the total", CUDA_SUCCESS, cuMemGetInfo_v2(&bytes, NULL));
    claim_result("cuMemGetInfo without a place for what is free", CUDA_SUCCESS,
                 cuMemGetInfo_v2(NULL, &total));

    claim_result("cuMemAllocPitch of elements of 3 bytes", CUDA_ERROR_INVALID_VALUE,
                 cuMemAllocPitch_v2(&pointer, &pitch, 100, 100, 3));
    claim_result("cuMemAllocPitch of no height", CUDA_ERROR_INVALID_VALUE,
                 cuMemAllocPitch_v2(&pointer, &pitch, 100, 0, 4));
    need("cuMemAllocPitch_v2", cuMemAllocPitch_v2(&pointer, &pitch, 513, 10, 4));
    claim_number("the pitch of rows of 513 bytes", 1024, pitch);
    need("cuMemFree_v2", cuMemFree_v2(pointer));
    claim_result("cuMemsetD32 of an odd address", CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(4097, 0, 1));
}

static void managed(void)
{
    CUdeviceptr pointer;
    unsigned value;
    need_context();
    claim_result("cuMemAllocManaged of no attachment", CUDA_ERROR_INVALID_VALUE,
                 cuMemAllocManaged(&pointer, 1, 0));
    claim_result("cuMemAllocManaged attached to one stream", CUDA_ERROR_INVALID_VALUE,
                 cuMemAllocManaged(&pointer, 1, CU_MEM_ATTACH_SINGLE));
    claim_result("cuMemAllocManaged of 0 bytes", CUDA_ERROR_INVALID_VALUE,
                 cuMemAllocManaged(&pointer, 0, CU_MEM_ATTACH_GLOBAL));
    need("cuMemAllocManaged", cuMemAllocManaged(&pointer, 4096, CU_MEM_ATTACH_GLOBAL));
    need("cuMemsetD32_v2", cuMemsetD32_v2(pointer, 7, 1024));
    need("cuCtxSynchronize", cuCtxSynchronize());
    claim_number("the host reads managed memory after synchronising", 7, *(unsigned *)(uintptr_t)pointer);
    need("cuPointerGetAttribute", cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer));
    claim_number("managed memory says so", 1, value);
}

static void host(void)
{
    void *memory;
    CUdeviceptr pointer;
    unsigned value;
    need_context();
    claim_result("cuMemHostAlloc of NULL", CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(NULL, 1, 0));
    claim_result("cuMemHostAlloc of 0 bytes", CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&memory, 0, 0));
    claim_result("cuMemHostAlloc with an unknown flag", CUDA_ERROR_INVALID_VALUE,
                 cuMemHostAlloc(&memory, 1, 64));
    need("cuMemHostAlloc", cuMemHostAlloc(&memory, 8192, 0));
    need("cuMemHostGetDevicePointer_v2", cuMemHostGetDevicePointer_v2(&pointer, memory, 0));
    claim_true("host memory has one address for host and device", "the same", pointer == (uintptr_t)memory);
    need("cuPointerGetAttribute",
         cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)memory));
    claim_number("the memory type of host memory", CU_MEMORYTYPE_HOST, value);
    claim_result("cuMemFreeHost inside an allocation", CUDA_ERROR_INVALID_VALUE,
                 cuMemFreeHost((char *)memory + 64));
    need("cuMemFreeHost", cuMemFreeHost(memory));
    claim_result("cuMemFreeHost a second time", CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(memory));

    if (posix_memalign(&memory, 4096, 8192) != 0)
        return;
    memset(memory, 0, 8192);
    claim_result("cuMemHostRegister of NULL", CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(NULL, 1, 0));
    claim_result("cuMemHostUnregister of memory not registered", CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
                 cuMemHostUnregister(memory));
    need("cuMemHostRegister_v2", cuMemHostRegister_v2(memory, 8192, 0));
    claim_result("cuMemHostRegister a second time", CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                 cuMemHostRegister_v2(memory, 8192, 0));
    claim_result("cuMemHostUnregister", CUDA_SUCCESS, cuMemHostUnregister(memory));
}

static void pointers(void)
{
    CUcontext context = need_context(), observed = NULL;
    CUdeviceptr pointer, address = 0;
    unsigned type = 99;
    int ordinal = 99;
    unsigned long long id, other_id;
    need("cuMemAlloc_v2", cuMemAlloc_v2(&pointer, 4096));
    need("cuPointerGetAttribute", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
    claim_number("the memory type of device memory", CU_MEMORYTYPE_DEVICE, type);
    need("cuPointerGetAttribute", cuPointerGetAttribute(&observed, CU_POINTER_ATTRIBUTE_CONTEXT, pointer));
    claim_true("device memory tells its context", "the same", observed == context);
    claim_result("the host pointer of device memory", CUDA_ERROR_INVALID_VALUE,
                 cuPointerGetAttribute(&address, CU_POINTER_ATTRIBUTE_HOST_POINTER, pointer));
    need("cuPointerGetAttribute",
         cuPointerGetAttribute(&address, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, pointer + 100));
    claim_true("the range of an address inside begins at the beginning", "the beginning", address == pointer);
    need("cuPointerGetAttribute", cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer));
    need("cuMemFree_v2", cuMemFree_v2(pointer));
    need("cuMemAlloc_v2", cuMemAlloc_v2(&pointer, 4096));
    need("cuPointerGetAttribute", cuPointerGetAttribute(&other_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer));
    claim_true("buffer ids are not used twice", "another", other_id != id);
    claim_result(
        "cuPointerGetAttribute of no allocation", CUDA_ERROR_INVALID_VALUE,
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&type));
    claim_result("cuPointerGetAttribute into NULL", CUDA_ERROR_INVALID_VALUE,
                 cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
    CUdeviceptr device_pointer = 0, host_pointer = 0, begin = 77;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                    CU_POINTER_ATTRIBUTE_CONTEXT,      CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                    CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    void *data[] = {&type, &ordinal, &observed, &device_pointer, &host_pointer, &begin};
    CUdeviceptr nowhere = (CUdeviceptr)(uintptr_t)&type;
    claim_result("cuPointerGetAttributes of no allocation", CUDA_SUCCESS,
                 cuPointerGetAttributes(6, wanted, data, nowhere));
    claim_number("the memory type of no allocation, asked with others", 0, type);
    claim_true("the ordinal of no allocation, asked with others", "-1", ordinal == -1);
    claim_true("both pointers of no allocation, asked with others", "the address asked about",
               device_pointer == nowhere && host_pointer == nowhere);
    claim_true("the range of no allocation, asked with others", "left alone", begin == 77);
    claim_true("the context of no allocation, asked with others", "NULL", observed == NULL);
}

static uint64_t pool_number(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t value = 0;
    need("cuMemPoolGetAttribute", cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static void pools(void)
{
    CUmemoryPool pool, current;
    CUdeviceptr pointer;
    CUstream stream;
    CUcontext context = need_context();
    need("cuStreamCreate", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    need("cuDeviceGetDefaultMemPool", cuDeviceGetDefaultMemPool(&pool, 0));
    need("cuDeviceGetMemPool", cuDeviceGetMemPool(&current, 0));
    claim_true("the current pool is the default pool at first", "the same", pool == current);
    claim_number("a pool's release threshold at first", 0,
                 pool_number(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
    claim_result("cuMemAllocAsync of 0 bytes", CUDA_ERROR_INVALID_VALUE,
                 cuMemAllocAsync(&pointer, 0, stream));
    claim_result("cuMemAllocAsync of NULL", CUDA_ERROR_INVALID_VALUE, cuMemAllocAsync(NULL, 1, stream));
    claim_result("cuMemAllocAsync of more than there is", CUDA_ERROR_OUT_OF_MEMORY,
                 cuMemAllocAsync(&pointer, (size_t)1 << 46, stream));
    need("cuMemAllocAsync", cuMemAllocAsync(&pointer, 1, stream));
    claim_number("a pool counts an allocation of 1 byte as 512 used", 512,
                 pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    claim_number("a pool reserves whole blocks of 2 MiB", 0,
                 pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) % (2 * MIB));
    claim_true("a pool reserves no less than is used", "reserved >= used",
               pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >=
                   pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    need("cuMemFreeAsync", cuMemFreeAsync(pointer, stream));
    need("cuStreamSynchronize", cuStreamSynchronize(stream));
    claim_number("nothing is used after the last free", 0,
                 pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    claim_number("synchronising releases what is above a threshold of 0", 0,
                 pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    claim_true("the highest use is remembered", "512 or more",
               pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 512);
    cuuint64_t number = 1;
    claim_result("the highest use can be set to 0 alone", CUDA_ERROR_INVALID_VALUE,
                 cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &number));
    number = 64 * MIB;
    need("cuMemPoolSetAttribute", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &number));
    need("cuMemAllocAsync", cuMemAllocAsync(&pointer, 8 * MIB, stream));
    need("cuMemFreeAsync", cuMemFreeAsync(pointer, stream));
    need("cuStreamSynchronize", cuStreamSynchronize(stream));
    claim_true("a pool keeps what is below the threshold", "8 MiB or more",
               pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 8 * MIB);
    need("cuMemPoolTrimTo", cuMemPoolTrimTo(pool, 0));
    claim_number("cuMemPoolTrimTo releases what is not used", 0,
                 pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    need("cuMemAllocAsync", cuMemAllocAsync(&pointer, 1, stream));
    claim_result("cuMemFree of memory from a pool", CUDA_SUCCESS, cuMemFree_v2(pointer));
    claim_result("cuMemFreeAsync of no allocation", CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(4096, stream));
    need("cuMemAlloc_v2", cuMemAlloc_v2(&pointer, 1));
    claim_result("cuMemFreeAsync of memory from cuMemAlloc", CUDA_SUCCESS, cuMemFreeAsync(pointer, stream));
    need("cuMemAllocAsync", cuMemAllocAsync(&pointer, MIB, stream));
    need("cuStreamSynchronize", cuStreamSynchronize(stream));
    need("cuCtxDestroy_v2", cuCtxDestroy_v2(context));
    claim_number("memory of a pool outlives the last context", MIB,
                 pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    need_context();
    claim_result("memory of a pool is freed in a later context", CUDA_SUCCESS, cuMemFree_v2(pointer));
}

static void virtual_memory(void)
{
    CUmemGenericAllocationHandle handle, other;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc access = {.location = properties.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address;
    size_t granularity;
    unsigned value = 0;
    need_context();
    need("cuMemGetAllocationGranularity",
         cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    claim_number("the least granularity of device memory", 2 * MIB, granularity);
    claim_result("cuMemCreate of a size not granular", CUDA_ERROR_INVALID_VALUE,
                 cuMemCreate(&handle, granularity + 1, &properties, 0));
    claim_result("cuMemCreate of 0 bytes", CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 0, &properties, 0));
    claim_result("cuMemCreate of more than there is", CUDA_ERROR_OUT_OF_MEMORY,
                 cuMemCreate(&handle, (size_t)1 << 46, &properties, 0));
    uint64_t before = free_bytes();
    need("cuMemAddressReserve", cuMemAddressReserve(&address, 2 * granularity, 0, 0, 0));
    claim_number("reserving addresses takes no memory", before, free_bytes());
    claim_number("reserved addresses are granular", 0, address % granularity);
    need("cuMemCreate", cuMemCreate(&handle, granularity, &properties, 0));
    claim_number("cuMemCreate takes its bytes", granularity, before - free_bytes());
    need("cuMemMap", cuMemMap(address, granularity, 0, handle, 0));
    claim_result("cuMemMap over a mapping", CUDA_ERROR_INVALID_VALUE,
                 cuMemMap(address, granularity, 0, handle, 0));
    claim_result("cuMemMap of one handle at two addresses", CUDA_SUCCESS,
                 cuMemMap(address + granularity, granularity, 0, handle, 0));
    claim_result("cuMemMap outside a reservation", CUDA_ERROR_INVALID_VALUE,
                 cuMemMap(address + 4 * granularity, granularity, 0, handle, 0));
    need("cuMemSetAccess", cuMemSetAccess(address, 2 * granularity, &access, 1));
    need("cuMemsetD32_v2", cuMemsetD32_v2(address, 42, 1));
    need("cuMemcpyDtoH_v2", cuMemcpyDtoH_v2(&value, address + granularity, sizeof(value)));
    claim_number("what is written at one address is read at the other", 42, value);
    need("cuMemRetainAllocationHandle", cuMemRetainAllocationHandle(&other, (void *)(uintptr_t)address));
    claim_true("cuMemRetainAllocationHandle gives the handle", "the same", other == handle);
    need("cuMemRelease", cuMemRelease(other));
    need("cuMemRelease", cuMemRelease(handle));
    claim_number("memory that is mapped stays when its handle is released", granularity,
                 before - free_bytes());
    claim_result("cuMemAddressFree of what is mapped", CUDA_ERROR_INVALID_VALUE,
                 cuMemAddressFree(address, 2 * granularity));
    need("cuMemUnmap", cuMemUnmap(address, granularity));
    claim_number("one of two mappings keeps the memory", granularity, before - free_bytes());
    need("cuMemUnmap", cuMemUnmap(address + granularity, granularity));
    claim_number("the last unmapping gives the memory back", before, free_bytes());
    claim_result("cuMemUnmap of nothing", CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, granularity));
    claim_result("cuMemAddressFree of a part", CUDA_ERROR_INVALID_VALUE,
                 cuMemAddressFree(address, granularity));
    claim_result("cuMemAddressFree", CUDA_SUCCESS, cuMemAddressFree(address, 2 * granularity));
}

static unsigned is_for_rdma(CUdeviceptr address)
{
    unsigned value = 0;
    need("cuPointerGetAttribute",
         cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, address));
    return value;
}

static unsigned is_created_for_rdma(bool is_asked_for)
{
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                            .allocFlags.gpuDirectRDMACapable = is_asked_for};
    CUdeviceptr address;
    need("cuMemAddressReserve", cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0));
    need("cuMemCreate", cuMemCreate(&handle, 2 * MIB, &properties, 0));
    need("cuMemMap", cuMemMap(address, 2 * MIB, 0, handle, 0));
    return is_for_rdma(address);
}

/* Which memory other devices may access. */
static void rdma(void)
{
    int linear_is, created_may_be;
    CUdeviceptr address;
    need_context();
    need("cuDeviceGetAttribute",
         cuDeviceGetAttribute(&linear_is, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 0));
    need("cuDeviceGetAttribute",
         cuDeviceGetAttribute(&created_may_be, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                              0));
    need("cuMemAlloc_v2", cuMemAlloc_v2(&address, MIB));
    claim_number("memory of cuMemAlloc is for RDMA where the device is", (uint64_t)linear_is,
                 is_for_rdma(address));
    if (created_may_be)
        claim_number("memory of cuMemCreate is for RDMA where it is asked for so", 1,
                     is_created_for_rdma(true));
    claim_number("memory of cuMemCreate is not for RDMA else", 0, is_created_for_rdma(false));
}

static uint64_t is_synchronous(CUdeviceptr address)
{
    unsigned value = 0;
    need("cuPointerGetAttribute", cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    return value;
}

/* Whether a memset behind many kernels returns before them. */
static bool memset_returns_early(CUdeviceptr address)
{
    CUfunction store = need_store_kernel();
    uint32_t value = 1;
    uint64_t count = 1;
    for (unsigned i = 0; i < 1000; i++)
        need("cuLaunchKernel",
             cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&address, &value, &count}, NULL));
    need("cuMemsetD8_v2", cuMemsetD8_v2(address, 0, 4));
    bool was_early = cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY;
    need("cuCtxSynchronize", cuCtxSynchronize());
    return was_early;
}

/* Memory whose synchronous copies and memsets are done when they return. */
static void synchronous(void)
{
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUdeviceptr linear, managed, mapped;
    const unsigned on = 1;
    need_context();
    need("cuMemAlloc_v2", cuMemAlloc_v2(&linear, MIB));
    need("cuMemAllocManaged", cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
    claim_number("SYNC_MEMOPS is not set at first", 0, is_synchronous(linear));
    claim_result("SYNC_MEMOPS of memory of cuMemAlloc", CUDA_SUCCESS,
                 cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, linear + 100));
    claim_number("SYNC_MEMOPS of memory of cuMemAlloc reads as set", 1, is_synchronous(linear));
    claim_true("a memset of memory set to SYNC_MEMOPS is done when it returns", "nothing is left",
               !memset_returns_early(linear));
    claim_result("SYNC_MEMOPS of managed memory", CUDA_SUCCESS,
                 cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, managed));
    claim_number("SYNC_MEMOPS of managed memory reads as set", 1, is_synchronous(managed));
    need("cuMemAddressReserve", cuMemAddressReserve(&mapped, 2 * MIB, 0, 0, 0));
    need("cuMemCreate", cuMemCreate(&handle, 2 * MIB, &properties, 0));
    need("cuMemMap", cuMemMap(mapped, 2 * MIB, 0, handle, 0));
    claim_result("SYNC_MEMOPS of memory of cuMemCreate", CUDA_ERROR_NOT_SUPPORTED,
                 cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, mapped));
}

const struct group groups_of_memory[] = {
    {"linear", linear}, {"managed", managed},    {"host", host}, {"pointers", pointers},
    {"pools", pools},   {"vmm", virtual_memory}, {"rdma", rdma}, {"synchronous", synchronous},
    {NULL, NULL},
};
