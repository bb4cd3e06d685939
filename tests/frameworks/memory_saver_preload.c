/* memory_saver_preload.c - what torch_memory_saver puts before a program's CUDA runtime: cudaMalloc gives memory of cuMemCreate,
 * which saver_pause() takes away, and saver_resume() makes again at the same addresses. With SAVER_BACKUP set, the contents are kept
 * in pinned memory of the host meanwhile. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/prototypes.h"
#include "cuda/runtime_prototypes.h"

#define ALLOCATIONS_MOST 1024
#define EXPORT __attribute__((visibility("default")))

struct allocation {
    CUdeviceptr at;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
    bool is_paused;
    void *backup;
};

static struct allocation allocations[ALLOCATIONS_MOST];
static unsigned count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

EXPORT void saver_pause(void);
EXPORT void saver_resume(void);

static void must(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "memory_saver: %s answered %d\n", call, (int)result);
    exit(1);
}
#define MUST(call) must(call, #call)

static CUmemAllocationProp properties(CUdevice device)
{
    CUmemAllocationProp made = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    int can_rdma = 0;
    MUST(
        cuDeviceGetAttribute(&can_rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device));
    made.allocFlags.gpuDirectRDMACapable = can_rdma != 0;
    return made;
}

static CUdevice current_device(void)
{
    CUdevice device;
    MUST(cuCtxGetDevice(&device));
    return device;
}

static CUresult create(struct allocation *allocation)
{
    const CUmemAllocationProp made = properties(current_device());
    return cuMemCreate(&allocation->handle, allocation->bytes, &made, 0);
}

static void map(const struct allocation *allocation)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, current_device()},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemMap(allocation->at, allocation->bytes, 0, allocation->handle, 0));
    MUST(cuMemSetAccess(allocation->at, allocation->bytes, &access, 1));
}

static cudaError_t allocate(struct allocation *allocation, size_t bytes)
{
    size_t unit;
    const CUmemAllocationProp made = properties(current_device());
    MUST(cuMemGetAllocationGranularity(&unit, &made, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    *allocation = (struct allocation){.bytes = (bytes + unit - 1) / unit * unit};
    CUresult result = create(allocation);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return cudaErrorMemoryAllocation;
    must(result, "cuMemCreate");
    MUST(cuMemAddressReserve(&allocation->at, allocation->bytes, 0, 0, 0));
    map(allocation);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMalloc(void **at, size_t bytes)
{
    pthread_mutex_lock(&lock);
    cudaError_t error =
        count < ALLOCATIONS_MOST ? allocate(&allocations[count], bytes) : cudaErrorMemoryAllocation;
    if (error == cudaSuccess)
        *at = (void *)allocations[count++].at;
    pthread_mutex_unlock(&lock);
    return error;
}

static cudaError_t real_free(void *at)
{
    cudaError_t (*next)(void *) = (cudaError_t(*)(void *))dlsym(RTLD_NEXT, "cudaFree");
    return next(at);
}

static bool forget(CUdeviceptr at, struct allocation *forgotten)
{
    bool is_known = false;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < count && !is_known; i++)
        if (allocations[i].at == at) {
            *forgotten = allocations[i];
            allocations[i] = allocations[--count];
            is_known = true;
        }
    pthread_mutex_unlock(&lock);
    return is_known;
}

EXPORT cudaError_t cudaFree(void *at)
{
    struct allocation allocation;
    if (!forget((CUdeviceptr)at, &allocation))
        return real_free(at);
    cudaDeviceSynchronize();
    if (!allocation.is_paused) {
        MUST(cuMemUnmap(allocation.at, allocation.bytes));
        MUST(cuMemRelease(allocation.handle));
    }
    MUST(cuMemAddressFree(allocation.at, allocation.bytes));
    if (allocation.backup)
        MUST(cuMemFreeHost(allocation.backup));
    return cudaSuccess;
}

static void back_up(struct allocation *allocation)
{
    if (!allocation->backup)
        MUST(cuMemHostAlloc(&allocation->backup, allocation->bytes, 0));
    MUST(cuMemcpyDtoH_v2(allocation->backup, allocation->at, allocation->bytes));
}

void saver_pause(void)
{
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < count; i++) {
        if (getenv("SAVER_BACKUP"))
            back_up(&allocations[i]);
        MUST(cuMemUnmap(allocations[i].at, allocations[i].bytes));
        MUST(cuMemRelease(allocations[i].handle));
        allocations[i].is_paused = true;
    }
    pthread_mutex_unlock(&lock);
}

void saver_resume(void)
{
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < count; i++) {
        must(create(&allocations[i]), "cuMemCreate");
        map(&allocations[i]);
        allocations[i].is_paused = false;
        if (allocations[i].backup)
            MUST(cuMemcpyHtoD_v2(allocations[i].at, allocations[i].backup, allocations[i].bytes));
    }
    pthread_mutex_unlock(&lock);
}
