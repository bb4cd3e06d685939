/* paths.c - takes memory by one of the rarer ways, and says what the driver's result was and how much less
 * was free:
 *
 * - array B, oldarray B, sparse B, deferred B, mipmap B, pool B, limit B, graph B,
 *   multicast B, bound_v2 B (of CUDA 13.1), tiles B: one of B bytes, then its end: RESULT TAKEN LEFT
 * - othergraph B: the same of a graph that takes them on device 1, and more on device 0
 * - async B N, small B N: N times: how often it succeeded
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/driver_more.h"
#include "cuda/prototypes.h"

#define SPARSE 0x40           /* CUDA_ARRAY3D_SPARSE */
#define DEFERRED_MAPPING 0x80 /* CUDA_ARRAY3D_DEFERRED_MAPPING */

static size_t free_now(void)
{
    size_t free_bytes = 0, total_bytes;
    cuMemGetInfo_v2(&free_bytes, &total_bytes);
    return free_bytes;
}

static CUarray array;
static CUmipmappedArray mipmap;
static CUmemoryPool pool;
static CUdeviceptr address;
static CUgraphExec exec;
static CUmemGenericAllocationHandle object;

/* Memory that nothing but its binding to a multicast object holds. */
static CUresult make_bound(size_t bytes, bool by_v2)
{
    CUmemGenericAllocationHandle memory;
    CUmulticastObjectProp team = {.numDevices = 1, .size = bytes};
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUresult result = cuMemCreate(&memory, bytes, &how, 0);
    if (result)
        return result;
    if ((result = cuMulticastCreate(&object, &team)) == CUDA_SUCCESS &&
        (result = cuMulticastAddDevice(object, 0)) == CUDA_SUCCESS)
        result = by_v2 ? cuMulticastBindMem_v2(object, 0, 0, memory, 0, bytes, 0)
                       : cuMulticastBindMem(object, 0, memory, 0, bytes, 0);
    cuMemRelease(memory);
    return result;
}

/* Memory that nothing but the sparse array which it is mapped into holds. */
static CUresult make_tiles(size_t bytes)
{
    CUmemGenericAllocationHandle memory;
    CUDA_ARRAY3D_DESCRIPTOR sparse = {
        .Width = 64, .Height = bytes / 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4, .Flags = SPARSE};
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                               .allocFlags.usage = 1 /* CU_MEM_CREATE_USAGE_TILE_POOL */};
    CUresult result = cuMemCreate(&memory, bytes, &how, 0);
    if (result)
        return result;
    CUarrayMapInfo part = {.resourceType = CU_RESOURCE_TYPE_ARRAY,
                           .subresource.sparseLevel = {.extentWidth = 64,
                                                       .extentHeight = (unsigned)sparse.Height,
                                                       .extentDepth = 1},
                           .memOperationType = CU_MEM_OPERATION_TYPE_MAP,
                           .memHandle.memHandle = memory,
                           .deviceBitMask = 1};
    result = cuArray3DCreate_v2(&array, &sparse);
    part.resource.array = array;
    if (!result)
        result = cuMemMapArrayAsync(&part, 1, NULL);
    cuMemRelease(memory);
    return result;
}

static CUresult add_memory(CUgraph graph, CUdevice device, size_t bytes)
{
    CUgraphNode alloc, release;
    CUDA_MEM_ALLOC_NODE_PARAMS how = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                    .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}},
                                      .bytesize = bytes};
    CUresult result = cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &how);
    return result ? result : cuGraphAddMemFreeNode(&release, graph, &alloc, 1, how.dptr);
}

static CUresult make_graph(size_t bytes, bool on_both)
{
    CUgraph graph;
    CUresult result = cuGraphCreate(&graph, 0);
    if (!result)
        result = add_memory(graph, on_both, bytes);
    if (!result && on_both)
        result = add_memory(graph, 0, 2 * bytes);
    if (!result)
        result = cuGraphInstantiateWithFlags(&exec, graph, 0);
    if (!result)
        result = cuGraphLaunch(exec, NULL);
    return result;
}

static CUresult take(const char *what, size_t bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR how = {
        .Width = bytes / 1024, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUDA_ARRAY_DESCRIPTOR_v1 old = {.Width = (unsigned)how.Width,
                                    .Height = (unsigned)how.Height,
                                    .Format = how.Format,
                                    .NumChannels = how.NumChannels};
    if (strcmp(what, "oldarray") == 0)
        return cuArrayCreate(&array, &old);
    if (strcmp(what, "sparse") == 0)
        how.Flags = SPARSE;
    if (strcmp(what, "deferred") == 0)
        how.Flags = DEFERRED_MAPPING;
    if (strcmp(what, "array") == 0 || how.Flags)
        return cuArray3DCreate_v2(&array, &how);
    if (strcmp(what, "mipmap") == 0)
        return cuMipmappedArrayCreate(&mipmap, &how, 1);
    if (strcmp(what, "limit") == 0)
        return cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, (8u << 20) + bytes);
    if (strcmp(what, "graph") == 0 || strcmp(what, "othergraph") == 0)
        return make_graph(bytes, *what == 'o');
    if (strcmp(what, "multicast") == 0 || strcmp(what, "bound_v2") == 0)
        return make_bound(bytes, *what == 'b');
    if (strcmp(what, "tiles") == 0)
        return make_tiles(bytes);
    CUresult result = cuMemPoolCreate(&pool, &properties);
    return result ? result : cuMemAllocFromPoolAsync(&address, bytes, pool, NULL);
}

static void end(const char *what)
{
    if (strcmp(what, "array") == 0 || strcmp(what, "oldarray") == 0 || strcmp(what, "sparse") == 0 ||
        strcmp(what, "deferred") == 0 || strcmp(what, "tiles") == 0)
        cuArrayDestroy(array);
    else if (strcmp(what, "mipmap") == 0)
        cuMipmappedArrayDestroy(mipmap);
    else if (strcmp(what, "multicast") == 0 || strcmp(what, "bound_v2") == 0)
        cuMemRelease(object);
    else if (strcmp(what, "limit") == 0)
        cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8u << 20);
    else if (strcmp(what, "graph") == 0 || strcmp(what, "othergraph") == 0) {
        cuCtxSynchronize();
        cuGraphExecDestroy(exec);
        cuDeviceGraphMemTrim(*what == 'o');
    } else {
        cuMemFreeAsync(address, NULL);
        cuCtxSynchronize();
        cuMemPoolDestroy(pool);
    }
}

static int repeat(const char *what, size_t bytes, unsigned times)
{
    unsigned done = 0;
    for (unsigned i = 0; i < times; i++) {
        if (strcmp(what, "small") == 0)
            done += cuMemAlloc_v2(&address, bytes) == CUDA_SUCCESS;
        else if (cuMemAllocAsync(&address, bytes, NULL) == CUDA_SUCCESS)
            done += cuMemFreeAsync(address, NULL) == CUDA_SUCCESS;
    }
    printf("%u %zu\n", done, free_now());
    return 0;
}

int main(int argc, char *argv[])
{
    CUcontext context;
    if (argc < 3 || cuInit(0))
        return 1;
    CUdevice device = strcmp(argv[1], "othergraph") == 0;
    if (cuCtxCreate_v2(&context, 0, device))
        return 1;
    size_t bytes = strtoull(argv[2], NULL, 10), before = free_now();
    if (argc > 3)
        return repeat(argv[1], bytes, (unsigned)atoi(argv[3]));
    CUresult result = take(argv[1], bytes);
    size_t taken = before - free_now();
    if (result == CUDA_SUCCESS)
        end(argv[1]);
    printf("%d %zu %zu\n", (int)result, taken, before - free_now());
    return 0;
}
