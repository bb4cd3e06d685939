/* shares.c - rows: graphs with memory of their own, and what processes hand to each other. */
#include <unistd.h>

#include "differ.h"

#define MIB (UINT64_C(1) << 20)
#define UPLOAD 2 /* CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD: maps what a launch would */

/* --- Graphs ---------------------------------------------------------------------------------------- */

/* One that takes memory and gives it back, or only takes it, or does nothing. */
static void graph_create(struct actor *actor)
{
    CUgraph graph = NULL;
    CUgraphNode allocate = NULL, release = NULL;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
        .bytesize = one_in(actor, 8) ? some_bytes(actor) : 1 + chance(actor, 5 * MIB),
    };
    bool takes = !one_in(actor, 4), gives = takes && !one_in(actor, 4);
    if (count_living(GRAPH) > 12) {
        put(actor, "(enough of them)");
        return;
    }
    CUresult result = CALL(actor, cuGraphCreate)(&graph, one_in(actor, 10) ? 1 : 0);
    put_result(actor, result);
    if (result != CUDA_SUCCESS)
        return;
    put(actor, " made %u", add_thing(actor, GRAPH, (uint64_t)(uintptr_t)graph, 0)->number);
    if (takes)
        put(actor, " takes %zu: %d", parameters.bytesize,
            result = cuGraphAddMemAllocNode(&allocate, graph, NULL, 0, &parameters));
    if (gives && result == CUDA_SUCCESS)
        put(actor, " gives: %d", cuGraphAddMemFreeNode(&release, graph, &allocate, 1, parameters.dptr));
}

static void graph_destroy(struct actor *actor)
{
    uint64_t graph = pick(actor, GRAPH);
    CUresult result = CALL(actor, cuGraphDestroy)((CUgraph)(uintptr_t)graph);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        end_thing(GRAPH, graph);
}

static void made_exec(struct actor *actor, CUresult result, CUgraphExec exec, CUgraph graph)
{
    put_result(actor, result);
    if (result != CUDA_SUCCESS)
        return;
    struct thing *made = add_thing(actor, EXEC, (uint64_t)(uintptr_t)exec, 0);
    const struct thing *from = find_living(GRAPH, (uint64_t)(uintptr_t)graph);
    made->named = from ? from->named : (struct named){.has_gone = true};
    put(actor, " made %u", made->number);
}

static void graph_instantiate(struct actor *actor)
{
    CUgraphExec exec = NULL;
    CUgraphExec *out = one_in(actor, 12) ? NULL : &exec;
    CUgraphNode node = NULL;
    char log[64] = "";
    CUgraph graph = (CUgraph)(uintptr_t)pick(actor, GRAPH);
    put(actor, "%s", out ? "&" : "NULL");
    CUresult result = CALL(actor, cuGraphInstantiate)(out, graph, &node, log, sizeof(log));
    made_exec(actor, result, exec, graph);
}

static void graph_instantiate_with_flags(struct actor *actor)
{
    static const unsigned long long flags_of[] = {0, 1, 0, 1, 2, 4, 8, 77};
    CUgraphExec exec = NULL;
    CUgraphExec *out = one_in(actor, 12) ? NULL : &exec;
    CUgraph graph = (CUgraph)(uintptr_t)pick(actor, GRAPH);
    unsigned long long flags = flags_of[chance(actor, 8)];
    actor->own_limit = flags & UPLOAD;
    put(actor, "%s %llu", out ? "&" : "NULL", flags);
    CUresult result = CALL(actor, cuGraphInstantiateWithFlags)(out, graph, flags);
    made_exec(actor, result, exec, graph);
}

static void graph_instantiate_with_params(struct actor *actor)
{
    CUgraphExec exec = NULL;
    CUgraph graph = (CUgraph)(uintptr_t)pick(actor, GRAPH);
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {.flags = one_in(actor, 3) ? 1 : 0},
                                  *how = one_in(actor, 12) ? NULL : &parameters;
    put(actor, "%s %llu", how ? "&" : "NULL", (unsigned long long)parameters.flags);
    CUresult result = CALL(actor, cuGraphInstantiateWithParams)(&exec, graph, how);
    made_exec(actor, result, exec, graph);
}

static void exec_destroy(struct actor *actor)
{
    uint64_t exec = pick(actor, EXEC);
    CUresult result = CALL(actor, cuGraphExecDestroy)((CUgraphExec)(uintptr_t)exec);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        end_thing(EXEC, exec);
}

/* How much a launch asks for is not for this program to know (hook_graph.c). */
static void graph_launch(struct actor *actor)
{
    CUgraphExec exec = (CUgraphExec)(uintptr_t)pick(actor, EXEC);
    CUstream stream = (CUstream)(uintptr_t)pick(actor, STREAM);
    const struct thing *made = memory_moves ? find_living(EXEC, (uint64_t)(uintptr_t)exec) : NULL;
    if (made && !is_named_there(&made->named)) {
        put(actor, "(names what was given back)");
        return;
    }
    actor->own_limit = true;
    put_result(actor, CALL(actor, cuGraphLaunch)(exec, stream));
}

static void graph_mem_trim(struct actor *actor)
{
    CUdevice device = some_device(actor);
    put_result(actor, CALL(actor, cuDeviceGraphMemTrim)(device));
}

/* --- Exports and imports --------------------------------------------------------------------------- */

static CUipcMemHandle last_handle; /* of some earlier call, or zeros */

static void ipc_get(struct actor *actor)
{
    CUipcMemHandle handle, *out = one_in(actor, 8) ? NULL : &handle;
    uint64_t address = pick(actor, MEMORY);
    put(actor, "%s", out ? "&" : "NULL");
    CUresult result = CALL(actor, cuIpcGetMemHandle)(out, address);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        last_handle = handle;
}

/* Who made the memory cannot open it; a handle of nothing nobody can. */
static void ipc_open(struct actor *actor)
{
    CUdeviceptr address = UNTOUCHED;
    unsigned flags = one_in(actor, 4) ? 0 : 1;
    put(actor, "%u", flags);
    CUresult result = CALL(actor, cuIpcOpenMemHandle_v2)(&address, last_handle, flags);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        add_thing(actor, OPENED, address, 0);
    else
        put_kept(actor, address);
}

static void ipc_close(struct actor *actor)
{
    uint64_t address = pick(actor, one_in(actor, 2) ? OPENED : MEMORY);
    CUresult result = CALL(actor, cuIpcCloseMemHandle)(address);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        end_thing(OPENED, address);
}

static int last_fd = -1;

static void export_handle(struct actor *actor)
{
    int fd = -1, *out = one_in(actor, 8) ? NULL : &fd;
    CUmemGenericAllocationHandle handle = pick(actor, HANDLE);
    CUmemAllocationHandleType type = one_in(actor, 5) ? 77 : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    unsigned long long flags = one_in(actor, 10) ? 1 : 0;
    put(actor, "%s %d %llu", out ? "&" : "NULL", (int)type, flags);
    CUresult result = CALL(actor, cuMemExportToShareableHandle)(out, handle, type, flags);
    put_result(actor, result);
    if (result != CUDA_SUCCESS)
        return;
    if (last_fd >= 0)
        close(last_fd);
    last_fd = fd;
}

/* A program may import what it exported itself: the same memory once more. */
static void import_handle(struct actor *actor)
{
    CUmemGenericAllocationHandle handle = UNTOUCHED;
    int fd = one_in(actor, 5) ? -1 : last_fd;
    CUmemAllocationHandleType type = one_in(actor, 6) ? 77 : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    put(actor, "%s %d", fd < 0 ? "none" : "exported", (int)type);
    CUresult result = CALL(actor, cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)fd, type);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        put(actor, " made %u", add_thing(actor, HANDLE, handle, 0)->number);
    else
        put_kept(actor, handle);
}

static CUmemPoolPtrExportData last_pointer;

static void export_pointer(struct actor *actor)
{
    CUmemPoolPtrExportData data, *out = one_in(actor, 8) ? NULL : &data;
    CUdeviceptr address = pick(actor, MEMORY);
    put(actor, "%s", out ? "&" : "NULL");
    CUresult result = CALL(actor, cuMemPoolExportPointer)(out, address);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        last_pointer = data;
}

static void import_pointer(struct actor *actor)
{
    CUdeviceptr address = UNTOUCHED;
    CUmemoryPool pool = (CUmemoryPool)(uintptr_t)pick(actor, POOL);
    CUresult result = CALL(actor, cuMemPoolImportPointer)(&address, pool, &last_pointer);
    put_result(actor, result);
    if (result != CUDA_SUCCESS)
        put_kept(actor, address);
}

static void export_pool(struct actor *actor)
{
    int fd = -1;
    CUmemoryPool pool = (CUmemoryPool)(uintptr_t)pick(actor, POOL);
    CUresult result =
        CALL(actor, cuMemPoolExportToShareableHandle)(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        close(fd);
}

static void pool_access(struct actor *actor)
{
    CUmemAccess_flags flags = 77;
    CUmemoryPool pool = (CUmemoryPool)(uintptr_t)pick(actor, POOL);
    CUmemLocation location = {one_in(actor, 6) ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                              some_device(actor)};
    put(actor, "%d,%d", location.type, location.id);
    put_result(actor, CALL(actor, cuMemPoolGetAccess)(&flags, pool, &location));
    put(actor, " %d", (int)flags);
}

static void pool_set_access(struct actor *actor)
{
    CUmemoryPool pool = (CUmemoryPool)(uintptr_t)pick(actor, POOL);
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, some_device(actor)},
                              .flags = one_in(actor, 4) ? 0 : 3};
    size_t count = one_in(actor, 6) ? 0 : 1;
    put(actor, "%d %d %zu", access.location.id, (int)access.flags, count);
    put_result(actor, CALL(actor, cuMemPoolSetAccess)(pool, &access, count));
}

#define ROW(symbol, weight, call)                                                                            \
    {                                                                                                        \
#symbol, (void *)(uintptr_t)symbol, weight, call                                                     \
    }
const struct row share_rows[] = {
    ROW(cuGraphCreate, 3, graph_create),
    ROW(cuGraphDestroy, 1, graph_destroy),
    ROW(cuGraphInstantiate, 1, graph_instantiate),
    ROW(cuGraphInstantiate_v2, 1, graph_instantiate),
    ROW(cuGraphInstantiateWithFlags, 2, graph_instantiate_with_flags),
    ROW(cuGraphInstantiateWithParams, 1, graph_instantiate_with_params),
    ROW(cuGraphInstantiateWithParams_ptsz, 1, graph_instantiate_with_params),
    ROW(cuGraphExecDestroy, 2, exec_destroy),
    ROW(cuGraphLaunch, 5, graph_launch),
    ROW(cuGraphLaunch_ptsz, 2, graph_launch),
    ROW(cuGraphUpload, 1, graph_launch),
    ROW(cuGraphUpload_ptsz, 1, graph_launch),
    ROW(cuDeviceGraphMemTrim, 2, graph_mem_trim),
    ROW(cuIpcGetMemHandle, 2, ipc_get),
    ROW(cuIpcOpenMemHandle, 1, ipc_open),
    ROW(cuIpcOpenMemHandle_v2, 1, ipc_open),
    ROW(cuIpcCloseMemHandle, 1, ipc_close),
    ROW(cuMemExportToShareableHandle, 2, export_handle),
    ROW(cuMemImportFromShareableHandle, 2, import_handle),
    ROW(cuMemPoolExportPointer, 1, export_pointer),
    ROW(cuMemPoolImportPointer, 1, import_pointer),
    ROW(cuMemPoolExportToShareableHandle, 1, export_pool),
    ROW(cuMemPoolGetAccess, 1, pool_access),
    ROW(cuMemPoolSetAccess, 1, pool_set_access),
    {NULL, NULL, 0, NULL},
};
