/* memory.c - what memory can be made and reached here, and what of it stays when another piece takes its place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpucheck/checks.h"
#include "gpucheck/micro/micro.h"

/* --- Creating, mapping, reaching ----------------------------------------------------------------------- */

/* Make memory in this way, map it and let the GPU reach it. Returns the first call that is refused, NULL if none. */
static const char *try_memory(const CUmemAllocationProp *how, CUresult *result)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    const char *refused = NULL;
    if ((*result = cuMemCreate(&handle, MICRO_PIECE_BYTES, how, 0)) != CUDA_SUCCESS)
        return "cuMemCreate";
    must(cuMemAddressReserve(&address, MICRO_PIECE_BYTES, 0, 0, 0));
    if ((*result = cuMemMap(address, MICRO_PIECE_BYTES, 0, handle, 0)) != CUDA_SUCCESS) {
        refused = "cuMemMap";
    } else {
        if ((*result = cuMemSetAccess(address, MICRO_PIECE_BYTES, &access, 1)) != CUDA_SUCCESS)
            refused = "cuMemSetAccess";
        else if ((*result = cuMemsetD8_v2(address, 7, MICRO_PIECE_BYTES)) != CUDA_SUCCESS)
            refused = "cuMemsetD8";
        cuMemUnmap(address, MICRO_PIECE_BYTES);
    }
    cuMemAddressFree(address, MICRO_PIECE_BYTES);
    cuMemRelease(handle);
    return refused;
}

/* Tell whether such memory can be used. `attribute` says what the driver claims. */
static void tell_memory(const char *name, const CUmemAllocationProp *how, CUdevice_attribute attribute)
{
    CUresult result;
    int is_claimed;
    char claim_name[80];
    snprintf(claim_name, sizeof(claim_name), "%s_by_the_attribute", name);
    if (cuDeviceGetAttribute(&is_claimed, attribute, 0) != CUDA_SUCCESS)
        is_claimed = 0; /* an older driver does not know the attribute */
    figure_text(claim_name, "%s", yes_or_no(is_claimed));
    const char *refused = try_memory(how, &result);
    if (!refused)
        figure_text(name, "yes");
    else if (!is_claimed)
        could_not_try(name, "the GPU does not claim it; %s answers %s", refused, result_name(result));
    else
        figure_text(name, "%s answers %s", refused, result_name(result));
}

void check_create_access(const struct check *check)
{
    CUmemAllocationProp plain = micro_plain(), rdma = micro_plain(), file = micro_plain(),
                        fabric = micro_plain();
    (void)check;
    open_context();
    rdma.allocFlags.gpuDirectRDMACapable = 1;
    file.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    fabric.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    tell_memory("plain_can_be_reached", &plain, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    tell_memory("rdma_can_be_reached", &rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    tell_memory("file_can_be_reached", &file,
                CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    tell_memory("fabric_can_be_reached", &fabric, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
}

/* --- A graph whose memory was replaced ----------------------------------------------------------------- */

enum { GRAPH_WORDS = 1024 };

/* Copies in, sets, copies inside and fills by a kernel: four quarters of the memory, by one graph. */
static CUgraphExec make_graph(CUdeviceptr memory, const uint32_t *pinned, CUfunction fill)
{
    const size_t part = GRAPH_WORDS * sizeof(uint32_t);
    uint64_t count = GRAPH_WORDS, address = memory + 3 * part;
    uint32_t value = 4;
    void *parameters[] = {&address, &value, &count};
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    must(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    must(cuMemcpyHtoDAsync_v2(memory, pinned, part, stream));
    must(cuMemsetD32Async(memory + part, 2, GRAPH_WORDS, stream));
    must(cuMemcpyDtoDAsync_v2(memory + 2 * part, memory, part, stream));
    must(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
    must(cuStreamEndCapture(stream, &graph));
    must(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

/* Run the graph, and see whether each quarter has what it has to have. */
static const char *run_graph(CUgraphExec exec, CUdeviceptr memory)
{
    static const char *const names[] = {"copy in", "memset", "copy inside", "kernel"};
    static const uint32_t expected[] = {1, 2, 1, 4};
    static uint32_t seen[4 * GRAPH_WORDS];
    static char text[80];
    must(cuMemsetD8_v2(memory, 0xcc, sizeof(seen)));
    CUresult result = cuGraphLaunch(exec, NULL);
    if (result == CUDA_SUCCESS)
        result = cuMemcpyDtoH_v2(seen, memory, sizeof(seen));
    if (result != CUDA_SUCCESS)
        return result_name(result);
    for (unsigned i = 0; i < 4 * GRAPH_WORDS; i++)
        if (seen[i] != expected[i / GRAPH_WORDS]) {
            snprintf(text, sizeof(text), "its %s has not been done", names[i / GRAPH_WORDS]);
            return text;
        }
    return "right";
}

void check_graph_remapped(const struct check *check)
{
    struct micro_memory memory;
    uint32_t *pinned;
    (void)check;
    open_context();
    micro_map(&memory, MICRO_PIECE_BYTES);
    must(cuMemHostAlloc((void **)&pinned, GRAPH_WORDS * sizeof(uint32_t), 0));
    for (unsigned i = 0; i < GRAPH_WORDS; i++)
        pinned[i] = 1;
    CUgraphExec exec = make_graph(memory.address, pinned, load_kernel("gs_fill_u32"));
    const char *before = run_graph(exec, memory.address);
    figure_text("before", "%s", before);
    if (strcmp(before, "right") != 0)
        not_run("the graph does not run even before its memory is replaced");
    micro_remap(&memory);
    figure_text("with_new_memory", "%s", run_graph(exec, memory.address));
}

/* --- What a pointer tells ------------------------------------------------------------------------------ */

static uint64_t buffer_id(CUdeviceptr address)
{
    unsigned long long id;
    must(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    return id;
}

void check_buffer_id(const struct check *check)
{
    struct micro_memory memory;
    CUdeviceptr first, second;
    (void)check;
    open_context();
    must(cuMemAlloc_v2(&first, MICRO_PIECE_BYTES));
    uint64_t id = buffer_id(first);
    figure_text("is_an_address", "%s", yes_or_no(id == first));
    must(cuMemFree_v2(first));
    must(cuMemAlloc_v2(&second, MICRO_PIECE_BYTES));
    if (second == first)
        figure_text("another_one_after_a_free", "%s", yes_or_no(buffer_id(second) != id));
    else
        could_not_try("another_one_after_a_free", "the driver gave another address");
    micro_map(&memory, MICRO_PIECE_BYTES);
    id = buffer_id(memory.address);
    micro_remap(&memory);
    figure_text("another_one_after_a_remap", "%s", yes_or_no(buffer_id(memory.address) != id));
}

/* What setting SYNC_MEMOPS answers, and whether it then reads as set. */
static void ask_sync(const char *name, CUdeviceptr address)
{
    const int on = 1;
    int seen = 0;
    char read_name[64];
    CUresult result = cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address);
    figure_text(name, "%s", result_name(result));
    snprintf(read_name, sizeof(read_name), "%s_reads_as_set", name);
    if (result != CUDA_SUCCESS)
        could_not_try(read_name, "it could not be set");
    else if ((result = cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address)) !=
             CUDA_SUCCESS)
        figure_text(read_name, "%s", result_name(result));
    else
        figure_text(read_name, "%s", yes_or_no(seen != 0));
}

void check_sync_memops(const struct check *check)
{
    struct micro_memory memory;
    CUdeviceptr address;
    (void)check;
    open_context();
    must(cuMemAlloc_v2(&address, MICRO_PIECE_BYTES));
    ask_sync("of_cuMemAlloc", address);
    micro_map(&memory, MICRO_PIECE_BYTES);
    ask_sync("of_cuMemCreate", memory.address);
}

/* --- A request that no GPU can meet -------------------------------------------------------------------- */

static uint64_t pool_reserved(CUmemoryPool pool)
{
    cuuint64_t bytes;
    must(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes));
    return bytes;
}

/* Let the default pool keep what is free in it. Returns what it keeps. */
static uint64_t keep_in_pool(CUmemoryPool *pool)
{
    cuuint64_t all = UINT64_MAX;
    CUdeviceptr address;
    must(cuDeviceGetDefaultMemPool(pool, 0));
    must(cuMemPoolSetAttribute(*pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    must(cuMemAllocAsync(&address, 64 * MIB, NULL));
    must(cuMemFreeAsync(address, NULL));
    must(cuCtxSynchronize());
    return pool_reserved(*pool);
}

static const char *ask_in_a_capture(CUstreamCaptureMode mode)
{
    CUstream stream;
    CUgraph graph;
    CUdeviceptr address;
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    must(cuStreamBeginCapture_v2(stream, mode));
    CUresult result = cuMemAlloc_v2(&address, SIZE_MAX / 2);
    cuStreamEndCapture(stream, &graph);
    return result_name(result);
}

void check_most_asked(const struct check *check)
{
    CUmemoryPool pool;
    CUdeviceptr address;
    int has_pools;
    (void)check;
    open_context();
    must(cuDeviceGetAttribute(&has_pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
    uint64_t kept = has_pools ? keep_in_pool(&pool) : 0;
    double begin_s = now_s();
    CUresult result = cuMemAlloc_v2(&address, SIZE_MAX / 2);
    figure("takes", (now_s() - begin_s) * 1e6, "us");
    figure_text("answer", "%s", result_name(result));
    if (has_pools)
        figure_text("trims_pools", "%s", yes_or_no(pool_reserved(pool) < kept));
    else
        could_not_try("trims_pools", "the driver has no pools for this GPU");
    figure_text("in_a_relaxed_capture", "%s", ask_in_a_capture(CU_STREAM_CAPTURE_MODE_RELAXED));
    figure_text("in_a_global_capture", "%s", ask_in_a_capture(CU_STREAM_CAPTURE_MODE_GLOBAL));
}
