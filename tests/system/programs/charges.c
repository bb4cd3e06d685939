/* charges.c - takes memory of GPUs by one way, as much as it gets, and keeps it:
 *
 *   charges WAY BYTES TIMES ...    up to TIMES pieces of BYTES, by one way after the other
 *
 * It answers each way by one line, "RESULT PIECES", the first result that was not success and how many pieces it got, and
 * goes on when a line comes. The ways: see ways[] below. A way's name may end in @D: with the context of device 0, on
 * device D. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/driver_more.h"
#include "cuda/prototypes.h"

static CUdevice device;

static CUresult by_default_pool(size_t bytes)
{
    CUmemoryPool pool;
    CUdeviceptr address;
    CUresult result = cuDeviceGetDefaultMemPool(&pool, device);
    return result ? result : cuMemAllocFromPoolAsync(&address, bytes, pool, NULL);
}

static CUresult by_managed_pool(size_t bytes)
{
    CUmemLocation place = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    CUmemoryPool pool;
    CUdeviceptr address;
    CUresult result = cuMemGetDefaultMemPool(&pool, &place, CU_MEM_ALLOCATION_TYPE_MANAGED);
    return result ? result : cuMemAllocFromPoolAsync(&address, bytes, pool, NULL);
}

static CUresult by_made_pool(size_t bytes)
{
    CUmemPoolProps how = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemoryPool pool;
    CUdeviceptr address;
    CUresult result = cuMemPoolCreate(&pool, &how);
    return result ? result : cuMemAllocFromPoolAsync(&address, bytes, pool, NULL);
}

static CUresult by_prefetch(size_t bytes)
{
    CUdeviceptr address;
    CUresult result = cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL);
    return result ? result : cuMemPrefetchAsync(address, bytes, device, NULL);
}

static CUresult by_prefetch_batch(size_t bytes)
{
    CUdeviceptr address;
    CUstream stream;
    CUmemLocation place = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    size_t first = 0;
    CUresult result = cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL);
    if (!result)
        result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    return result ? result : cuMemPrefetchBatchAsync(&address, &bytes, 1, &place, &first, 1, 0, stream);
}

static CUresult by_advice(size_t bytes)
{
    CUdeviceptr address;
    CUresult result = cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL);
    if (!result)
        result = cuMemAdvise(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device);
    return result ? result : cuMemsetD8_v2(address, 1, bytes);
}

static CUresult by_physical(size_t bytes)
{
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemGenericAllocationHandle handle;
    return cuMemCreate(&handle, bytes, &how, 0);
}

/* Physical memory with a descriptor, which is all that is left of it when the caller has let go. */
static CUresult make_shared(size_t bytes, CUmemGenericAllocationHandle *handle, int *fd)
{
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUresult result = cuMemCreate(handle, bytes, &how, 0);
    if (result)
        return result;
    result = cuMemExportToShareableHandle(fd, *handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    return result;
}

static CUresult by_descriptor(size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    int fd;
    CUresult result = make_shared(bytes, &handle, &fd);
    return result ? result : cuMemRelease(handle);
}

/* Such memory, and another handle of it by the descriptor. */
static CUresult make_twice(size_t bytes, CUmemGenericAllocationHandle *handle,
                           CUmemGenericAllocationHandle *again, int *fd)
{
    CUresult result = make_shared(bytes, handle, fd);
    return result ? result
                  : cuMemImportFromShareableHandle(again, (void *)(intptr_t)*fd,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

/* Both handles are let go of. */
static CUresult by_import(size_t bytes)
{
    CUmemGenericAllocationHandle handle, again;
    int fd;
    CUresult result = make_twice(bytes, &handle, &again, &fd);
    if (!result)
        result = cuMemRelease(handle);
    return result ? result : cuMemRelease(again);
}

/* The same, but the second one is kept. */
static CUresult by_passing_on(size_t bytes)
{
    CUmemGenericAllocationHandle handle, again;
    int fd;
    CUresult result = make_twice(bytes, &handle, &again, &fd);
    if (result)
        return result;
    close(fd);
    return cuMemRelease(handle);
}

/* All of it is kept as memory of another API, of which one byte is named. */
static CUresult by_external(size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    CUexternalMemory memory;
    int fd;
    CUresult result = make_shared(bytes, &handle, &fd);
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC what = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd, .size = 1};
    if (!result)
        result = cuImportExternalMemory(&memory, &what);
    return result ? result : cuMemRelease(handle);
}

/* A volume of one row and one column, of which most is what the card adds. */
static CUresult by_volume(size_t bytes)
{
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR how = {1, 1, bytes, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    return cuArray3DCreate_v2(&array, &how);
}

/* Memory of a pool, which only the pointer that was imported from it keeps. */
static CUresult by_pool_pointer(size_t bytes)
{
    CUmemPoolProps how = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemPoolPtrExportData data;
    CUmemoryPool pool, again;
    CUdeviceptr address, imported;
    int fd;
    CUresult result = cuMemPoolCreate(&pool, &how);
    if (!result)
        result = cuMemAllocFromPoolAsync(&address, bytes, pool, NULL);
    if (!result)
        result = cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (!result)
        result = cuMemPoolImportFromShareableHandle(&again, (void *)(intptr_t)fd,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (!result)
        result = cuMemPoolExportPointer(&data, address);
    if (!result)
        result = cuMemPoolImportPointer(&imported, again, &data);
    if (!result)
        result = cuMemFreeAsync(address, NULL);
    if (!result)
        result = cuCtxSynchronize();
    return result ? result : cuMemPoolDestroy(pool);
}

/* Code with a variable of so many bytes, and a kernel whose threads have so much local memory each. */
static const char *code(size_t variable_bytes, size_t local_bytes)
{
    static char text[512];
    snprintf(text, sizeof(text),
             ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .align 4 .b8 held[%zu];\n"
             ".visible .entry fat()\n{\n .local .align 8 .b8 local[%zu];\n ret;\n}\n",
             variable_bytes, local_bytes);
    return text;
}

static CUresult by_module(size_t bytes)
{
    CUmodule module;
    return cuModuleLoadData(&module, code(bytes, 8));
}

static CUresult load_kernel(size_t bytes, CUkernel *kernel)
{
    CUlibrary library;
    CUresult result = cuLibraryLoadData(&library, code(bytes, 8), NULL, NULL, 0, NULL, NULL, 0);
    return result ? result : cuLibraryGetKernel(kernel, library, "fat");
}

/* A library takes nothing before its first use: by a function, a variable, or a launch of its kernel. */
static CUresult by_library(size_t bytes)
{
    CUkernel kernel;
    CUfunction function;
    CUresult result = load_kernel(bytes, &kernel);
    return result ? result : cuKernelGetFunction(&function, kernel);
}

static CUresult by_library_variable(size_t bytes)
{
    CUlibrary library;
    CUdeviceptr address;
    size_t found;
    CUresult result = cuLibraryLoadData(&library, code(bytes, 8), NULL, NULL, 0, NULL, NULL, 0);
    return result ? result : cuLibraryGetGlobal(&address, &found, library, "held");
}

static CUresult by_library_launch(size_t bytes)
{
    CUkernel kernel;
    CUresult result = load_kernel(bytes, &kernel);
    return result ? result : cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static CUresult load_function(size_t local_bytes, CUfunction *function)
{
    CUmodule module;
    CUresult result = cuModuleLoadData(&module, code(8, local_bytes));
    return result ? result : cuModuleGetFunction(function, module, "fat");
}

/* One launch of a kernel with so much local memory for each thread. */
static CUresult by_local(size_t bytes)
{
    CUfunction function;
    CUresult result = load_function(bytes, &function);
    return result ? result : cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

/* A launch of a graph with a kernel whose threads have so much local memory, or that is changed to such a one. */
static CUresult launch_graph_of(size_t bytes, size_t later_bytes)
{
    CUDA_KERNEL_NODE_PARAMS how = {
        .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUresult result = load_function(bytes, &how.func);
    if (!result)
        result = cuGraphCreate(&graph, 0);
    if (!result)
        result = cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &how);
    if (!result)
        result = cuGraphInstantiateWithFlags(&exec, graph, 0);
    if (!result && later_bytes)
        result = load_function(later_bytes, &how.func);
    if (!result && later_bytes)
        result = cuGraphExecKernelNodeSetParams_v2(exec, node, &how);
    return result ? result : cuGraphLaunch(exec, NULL);
}

static CUresult by_graph_local(size_t bytes)
{
    return launch_graph_of(bytes, 0);
}

static CUresult by_changed_graph(size_t bytes)
{
    return launch_graph_of(8, bytes);
}

static CUresult by_linear(size_t bytes)
{
    CUdeviceptr address;
    return cuMemAlloc_v2(&address, bytes);
}

static const struct {
    const char *name;
    CUresult (*take)(size_t bytes);
} ways[] = {
    {"linear", by_linear},
    {"default-pool", by_default_pool},
    {"managed-pool", by_managed_pool},
    {"made-pool", by_made_pool},
    {"prefetch", by_prefetch},
    {"prefetch-batch", by_prefetch_batch},
    {"advice", by_advice},
    {"physical", by_physical},
    {"descriptor", by_descriptor},
    {"import", by_import},
    {"external", by_external},
    {"passed-on", by_passing_on},
    {"volume", by_volume},
    {"module", by_module},
    {"library", by_library},
    {"library-variable", by_library_variable},
    {"library-launch", by_library_launch},
    {"local", by_local},
    {"graph-local", by_graph_local},
    {"changed-graph", by_changed_graph},
    {"pool-pointer", by_pool_pointer},
};

static bool take(const char *way, size_t bytes, unsigned times)
{
    const char *at = strchr(way, '@');
    size_t length = at ? (size_t)(at - way) : strlen(way);
    device = at ? atoi(at + 1) : 0;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (strlen(ways[i].name) != length || strncmp(ways[i].name, way, length) != 0)
            continue;
        CUresult result = CUDA_SUCCESS;
        unsigned done = 0;
        while (done < times && (result = ways[i].take(bytes)) == CUDA_SUCCESS)
            done++;
        printf("%d %u\n", (int)result, done);
        fflush(stdout);
        return true;
    }
    fprintf(stderr, "charges: no way %s\n", way);
    return false;
}

int main(int argc, char *argv[])
{
    CUcontext context;
    char line[8];
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0))
        return 1;
    for (int i = 1; i + 2 < argc; i += 3)
        if (!take(argv[i], strtoull(argv[i + 1], NULL, 10), (unsigned)atoi(argv[i + 2])) ||
            !fgets(line, sizeof(line), stdin))
            return 1;
    return 0;
}
