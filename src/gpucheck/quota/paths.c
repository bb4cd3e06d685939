/* paths.c - each way of taking device memory under a quota: what the session is charged, compared with the card's
 * figure; whether more than the quota is refused; and whether all of it comes back in the end. */
#include <stdlib.h>
#include <string.h>

#include "gpucheck/checks.h"
#include "gpucheck/nvml.h"
#include "gpucheck/part.h"

#define TAKEN_BYTES (64 * MIB)
/* How far the card's figure may be from the charge: the rest of a block, and page tables. */
#define SLACK_BYTES (6 * MIB)

/* --- The ways -------------------------------------------------------------------------------------- */

static struct {
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
    CUarray array;
    CUmipmappedArray mipmap;
    CUmemoryPool pool;
    CUgraph graph;
    CUgraphExec exec;
} taken;

static CUresult take_linear(size_t bytes)
{
    return cuMemAlloc_v2(&taken.address, bytes);
}

static CUresult take_pitched(size_t bytes)
{
    size_t pitch;
    return cuMemAllocPitch_v2(&taken.address, &pitch, 1 << 16, bytes >> 16, 16);
}

static CUresult take_managed(size_t bytes)
{
    return cuMemAllocManaged(&taken.address, bytes, CU_MEM_ATTACH_GLOBAL);
}

static void release_linear(void)
{
    must(cuMemFree_v2(taken.address));
}

static CUresult take_vmm(size_t bytes)
{
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = cuMemCreate(&taken.handle, bytes, &how, 0);
    if (result)
        return result;
    taken.bytes = bytes;
    must(cuMemAddressReserve(&taken.address, bytes, 0, 0, 0));
    must(cuMemMap(taken.address, bytes, 0, taken.handle, 0));
    must(cuMemSetAccess(taken.address, bytes, &access, 1));
    return CUDA_SUCCESS;
}

static void release_vmm(void)
{
    must(cuMemUnmap(taken.address, taken.bytes));
    must(cuMemRelease(taken.handle));
    must(cuMemAddressFree(taken.address, taken.bytes));
}

static CUresult take_async(size_t bytes)
{
    CUresult result = cuMemAllocAsync(&taken.address, bytes, NULL);
    must(cuStreamSynchronize(NULL));
    return result;
}

static void release_async(void)
{
    must(cuDeviceGetDefaultMemPool(&taken.pool, 0));
    must(cuMemFreeAsync(taken.address, NULL));
    must(cuStreamSynchronize(NULL));
    must(cuMemPoolTrimTo(taken.pool, 0));
}

static CUresult take_pool(size_t bytes)
{
    CUmemPoolProps how = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    must(cuMemPoolCreate(&taken.pool, &how));
    CUresult result = cuMemAllocFromPoolAsync(&taken.address, bytes, taken.pool, NULL);
    must(cuStreamSynchronize(NULL));
    if (result)
        must(cuMemPoolDestroy(taken.pool));
    return result;
}

static void release_pool(void)
{
    must(cuMemFreeAsync(taken.address, NULL));
    must(cuStreamSynchronize(NULL));
    must(cuMemPoolDestroy(taken.pool));
}

/* 16 bytes for each element, so that every card supports the width. */
#define ARRAY_WIDTH 16384u

static CUresult take_array(size_t bytes)
{
    CUDA_ARRAY_DESCRIPTOR how = {.Width = ARRAY_WIDTH,
                                 .Height = bytes / 16 / ARRAY_WIDTH,
                                 .Format = CU_AD_FORMAT_FLOAT,
                                 .NumChannels = 4};
    return cuArrayCreate_v2(&taken.array, &how);
}

/* Every card supports at least 2048 on each side. */
static CUresult take_array3d(size_t bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR how = {.Width = 2048,
                                   .Height = 128,
                                   .Depth = bytes / 16 / 2048 / 128,
                                   .Format = CU_AD_FORMAT_FLOAT,
                                   .NumChannels = 4};
    return cuArray3DCreate_v2(&taken.array, &how);
}

static void release_array(void)
{
    must(cuArrayDestroy(taken.array));
}

static CUresult take_mipmap(size_t bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR how = {.Width = ARRAY_WIDTH,
                                   .Height = bytes / 16 / ARRAY_WIDTH,
                                   .Format = CU_AD_FORMAT_FLOAT,
                                   .NumChannels = 4};
    return cuMipmappedArrayCreate(&taken.mipmap, &how, 1);
}

static void release_mipmap(void)
{
    must(cuMipmappedArrayDestroy(taken.mipmap));
}

static CUresult take_graph(size_t bytes)
{
    CUgraphNode alloc, release;
    CUDA_MEM_ALLOC_NODE_PARAMS how = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
                                      .bytesize = bytes};
    must(cuGraphCreate(&taken.graph, 0));
    CUresult result = cuGraphAddMemAllocNode(&alloc, taken.graph, NULL, 0, &how);
    taken.exec = NULL;
    if (!result) {
        must(cuGraphAddMemFreeNode(&release, taken.graph, &alloc, 1, how.dptr));
        result = cuGraphInstantiateWithFlags(&taken.exec, taken.graph, 0);
    }
    if (!result)
        result = cuGraphLaunch(taken.exec, NULL);
    must(cuStreamSynchronize(NULL));
    if (result && taken.exec)
        must(cuGraphExecDestroy(taken.exec));
    if (result)
        must(cuGraphDestroy(taken.graph));
    return result;
}

static void release_graph(void)
{
    must(cuGraphExecDestroy(taken.exec));
    must(cuGraphDestroy(taken.graph));
    must(cuDeviceGraphMemTrim(0));
}

static size_t heap_before;

static CUresult take_heap(size_t bytes)
{
    must(cuCtxGetLimit(&heap_before, CU_LIMIT_MALLOC_HEAP_SIZE));
    return cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap_before + bytes);
}

static void release_heap(void)
{
    must(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap_before));
}

/* `compared`: whether the card's figure must match the charge. It need not where the driver takes memory only when
 * it is touched (managed memory, the device's heap): there the figures are kept, and nothing is claimed. */
static const struct way {
    const char *name;
    CUresult (*take)(size_t bytes);
    void (*release)(void);
    bool compared;
    CUdevice_attribute needs; /* 0: nothing */
} ways[] = {
    {"path-linear", take_linear, release_linear, true, 0},
    {"path-pitched", take_pitched, release_linear, true, 0},
    {"path-managed", take_managed, release_linear, false, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY},
    {"path-vmm", take_vmm, release_vmm, true, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
    {"path-async", take_async, release_async, true, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
    {"path-pool", take_pool, release_pool, true, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
    {"path-array", take_array, release_array, true, 0},
    {"path-array3d", take_array3d, release_array, true, 0},
    {"path-mipmap", take_mipmap, release_mipmap, true, 0},
    {"path-graph", take_graph, release_graph, true, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
    {"path-heap", take_heap, release_heap, false, 0},
};

static const struct way *find_way(const char *name)
{
    for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strcmp(ways[i].name, name) == 0)
            return &ways[i];
    fail_and_end("there is no path '%s'", name);
}

/* --- The part takes memory, asks for too much, and gives back, as it is told ---------------------- */

void part_path(const char *argument)
{
    const struct way *way = find_way(argument);
    open_context();
    int has = 1;
    if (way->needs)
        must(cuDeviceGetAttribute(&has, way->needs, 0));
    part_tell("%d", has);
    for (;;) {
        const char *word = part_listen();
        enum driver_route route =
            strcmp(word, "get-proc-address") == 0 ? DRIVER_BY_GET_PROC_ADDRESS : DRIVER_BY_DLSYM;
        const char *reason = driver_open(route);
        if (reason)
            fail_and_end("%s", reason);
        uint64_t before = free_bytes();
        must_succeed(way->name, way->take(TAKEN_BYTES));
        must(cuCtxSynchronize());
        part_tell("%lld", (long long)(before - free_bytes()));
        part_listen();
        /* Beside what is taken, the whole quota cannot fit. */
        typeof(taken) kept = taken;
        size_t kept_heap = heap_before;
        CUresult result = way->take(CHECK_QUOTA_BYTES);
        if (result == CUDA_SUCCESS)
            way->release();
        taken = kept;
        heap_before = kept_heap;
        part_tell("%d", (int)result);
        part_listen();
        way->release();
        must(cuCtxSynchronize());
        part_tell("0");
    }
}

/* --- The check ------------------------------------------------------------------------------------- */

static uint64_t apart(uint64_t one, uint64_t other)
{
    return one > other ? one - other : other - one;
}

static void one_route(struct part *part, const struct way *way, const char *route, bool first)
{
    uint64_t nvml_before = nvml_used_bytes(part->pid),
             charged_before = session_use(part->session).charged_bytes;
    part_say(part, "%s", route);
    uint64_t seen = (uint64_t)part_hear_number(part);
    uint64_t charged = session_use(part->session).charged_bytes - charged_before;
    uint64_t used = nvml_used_bytes(part->pid) - nvml_before;
    if (first) {
        figure("asked", (double)TAKEN_BYTES, "bytes");
        figure("charged", (double)charged, "bytes");
        figure("nvml", (double)(int64_t)used, "bytes");
        figure("less_free", (double)(int64_t)seen, "bytes");
        figure_text("nvml_figure", "%s", nvml_used_source());
    }
    if (charged < TAKEN_BYTES)
        fail("by %s: %llu bytes taken, %llu charged", route, (unsigned long long)TAKEN_BYTES,
             (unsigned long long)charged);
    if (way->compared && apart(charged, used) > SLACK_BYTES)
        fail("by %s: %llu bytes charged, NVML says %lld more are used", route, (unsigned long long)charged,
             (long long)used);
    if (apart(charged, seen) > SLACK_BYTES)
        fail("by %s: %llu bytes charged, cuMemGetInfo says %lld less are free", route,
             (unsigned long long)charged, (long long)seen);

    part_say(part, "more");
    CUresult result = (CUresult)(int)part_hear_number(part);
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        fail("by %s: more than the quota was answered with %s", route, result_name(result));

    part_say(part, "release");
    part_hear(part);
    uint64_t charged_after = session_use(part->session).charged_bytes;
    if (charged_after != charged_before)
        fail("by %s: %lld bytes stay charged after the release", route,
             (long long)(charged_after - charged_before));
    int64_t left = (int64_t)(nvml_used_bytes(part->pid) - nvml_before);
    if (first)
        figure("nvml_left", (double)left, "bytes");
    if (way->compared && left > (int64_t)SLACK_BYTES)
        fail("by %s: NVML says %lld bytes stay used after the release", route, (long long)left);
}

void check_path(const struct check *check)
{
    struct part part;
    const struct way *way = find_way(check->name);
    /* If the quota did not hold, more managed memory than the card has free could hang the card. */
    if (nvml_free_bytes() < CHECK_FREE_BYTES)
        not_run("it needs %llu bytes of the GPU, and %llu are free", (unsigned long long)CHECK_FREE_BYTES,
                (unsigned long long)nvml_free_bytes());
    part_start(&part, PART_IN_SESSION, "path", check->name);
    if (part_hear_number(&part) == 0)
        not_run("the GPU does not support it");
    one_route(&part, way, "dlsym", true);
    one_route(&part, way, "get-proc-address", false);
    part_end(&part);
}

void check_standalone(const struct check *check)
{
    struct part part;
    part_start(&part, PART_STANDALONE, "path", "path-linear");
    part_hear(&part);
    part_say(&part, "dlsym");
    uint64_t seen = (uint64_t)part_hear_number(&part);
    figure("asked", (double)TAKEN_BYTES, "bytes");
    figure("less_free", (double)(int64_t)seen, "bytes");
    if (apart(TAKEN_BYTES, seen) > SLACK_BYTES)
        fail("%llu bytes taken, cuMemGetInfo says %lld less are free", (unsigned long long)TAKEN_BYTES,
             (long long)seen);
    part_say(&part, "more");
    CUresult result = (CUresult)(int)part_hear_number(&part);
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        fail("more than the limit was answered with %s", result_name(result));
    part_say(&part, "release");
    part_hear(&part);
    part_end(&part);
}
