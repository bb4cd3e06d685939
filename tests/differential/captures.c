/* captures.c - rows: graphs captured from streams, from beginning to end in one go, or left open: what other
 * rows do meanwhile is captured, or is refused and ends the capture's use, as the driver says. At most one is
 * open at a time, so that not everything is. */
#include <string.h>

#include "differ.h"

static uint64_t captured; /* the stream of the capture that is open */
static bool is_open;

static CUresult status_of(CUstreamCaptureStatus *status)
{
    return cuStreamIsCapturing((CUstream)(uintptr_t)captured, status);
}

void put_capture(struct actor *actor)
{
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)77;
    if (!is_open)
        return;
    CUresult result = status_of(&status);
    put(actor, ", capture %d %d", result, (int)status);
    if (result == CUDA_ERROR_INVALID_HANDLE) /* its stream is gone, and another's handle may be the same */
        is_open = false;
}

/* Whether a node of the graph makes the memory there. */
static bool is_own_memory(const CUgraphNode *nodes, size_t count, uint64_t address)
{
    CUDA_MEM_ALLOC_NODE_PARAMS memory;
    for (size_t i = 0; i < count; i++)
        if (cuGraphMemAllocNodeGetParams(nodes[i], &memory) == CUDA_SUCCESS && address >= memory.dptr &&
            address - memory.dptr < memory.bytesize)
            return true;
    return false;
}

static void name_nodes(struct named *named, CUgraph graph)
{
    CUgraphNode nodes[64];
    size_t count = sizeof(nodes) / sizeof(*nodes), all = 0;
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUgraph child;
    if (cuGraphGetNodes(graph, NULL, &all) != CUDA_SUCCESS || all > count ||
        cuGraphGetNodes(graph, nodes, &count) != CUDA_SUCCESS) {
        named->has_gone = true;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t addresses[2] = {0, 0};
        if (cuGraphMemcpyNodeGetParams(nodes[i], &copy) == CUDA_SUCCESS) {
            addresses[0] = copy.srcMemoryType == CU_MEMORYTYPE_HOST ? 0 : copy.srcDevice;
            addresses[1] = copy.dstMemoryType == CU_MEMORYTYPE_HOST ? 0 : copy.dstDevice;
        } else if (cuGraphMemsetNodeGetParams(nodes[i], &fill) == CUDA_SUCCESS) {
            addresses[0] = fill.dst;
        } else if (cuGraphChildGraphNodeGetGraph(nodes[i], &child) == CUDA_SUCCESS) {
            name_nodes(named, child);
        }
        for (unsigned j = 0; j < 2; j++)
            if (addresses[j] && !is_own_memory(nodes, count, addresses[j]))
                name_address(named, addresses[j]);
    }
}

static void made_graph(struct actor *actor, CUgraph graph)
{
    size_t count = 0;
    struct thing *made = add_thing(actor, GRAPH, (uint64_t)(uintptr_t)graph, 0);
    put(actor, " made %u", made->number);
    CUresult result = cuGraphGetNodes(graph, NULL, &count);
    put(actor, " of %d %zu nodes", result, count);
    name_nodes(&made->named, graph);
}

/* By the form of the row. The first knows one mode alone. */
static CUresult begin(struct actor *actor, CUstream stream, CUgraph *graph)
{
    const char *symbol = actor->row->symbol;
    if (strstr(symbol, "ToGraph")) {
        cuGraphCreate(graph, 0);
        return CALL(actor, cuStreamBeginCaptureToGraph)(stream, *graph, NULL, NULL, 0,
                                                        CU_STREAM_CAPTURE_MODE_RELAXED);
    }
    if (strstr(symbol, "_v2"))
        return CALL(actor, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    return CALL(actor, cuStreamBeginCapture)(stream);
}

/* A capture from beginning to end, of what takes memory when its graph is launched. */
static void capture_whole(struct actor *actor)
{
    CUdeviceptr address = 0, other = 0;
    CUgraph graph = NULL;
    size_t bytes = 1 + chance(actor, 5 << 20);
    struct thing *made = random_living(actor, STREAM);
    CUstream stream = made ? (CUstream)(uintptr_t)made->value : CU_STREAM_PER_THREAD;
    bool is_enough = count_living(GRAPH) > 16;
    bool gives = !one_in(actor, 4), asks = one_in(actor, 4);
    if (is_enough) {
        put(actor, "(enough of them)");
        return;
    }
    actor->own_limit = true;
    put(actor, "whole %d, of %zu bytes", made ? (int)made->number : -1, bytes);
    CUresult result = begin(actor, stream, &graph);
    put_result(actor, result);
    if (result != CUDA_SUCCESS) {
        if (graph)
            cuGraphDestroy(graph);
        return;
    }
    put(actor, ": %d", cuMemAllocAsync(&address, bytes, stream));
    put(actor, " %d", cuMemsetD8Async(address, 1, bytes, stream));
    if (asks) { /* not captured, and disturbing in some modes */
        put(actor, " %d", cuMemAlloc_v2(&other, 4096));
        put(actor, " %d", cuMemFree_v2(other));
    }
    if (gives)
        put(actor, " %d", cuMemFreeAsync(address, stream));
    result = cuStreamEndCapture(stream, &graph);
    put(actor, " %d", result);
    if (result == CUDA_SUCCESS)
        made_graph(actor, graph);
}

static void leave_open(struct actor *actor)
{
    static const CUstreamCaptureMode modes[] = {
        CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CU_STREAM_CAPTURE_MODE_GLOBAL, (CUstreamCaptureMode)7};
    CUstream stream = some_stream(actor);
    CUstreamCaptureMode mode = modes[chance(actor, 5)];
    put(actor, "mode %d", (int)mode);
    CUresult result = CALL(actor, cuStreamBeginCapture_v2)(stream, mode);
    put_result(actor, result);
    if (result == CUDA_SUCCESS) {
        bool is_per_thread = strstr(actor->row->symbol, "_ptsz");
        captured = stream ? (uint64_t)(uintptr_t)stream : is_per_thread ? 2 : 1;
        is_open = true;
    }
}

/* Beside an open one it might be the same stream's. */
static void capture_in_one(struct actor *actor)
{
    if (is_open)
        put(actor, "(one at a time)");
    else
        capture_whole(actor);
}

static void capture(struct actor *actor)
{
    if (!is_open && one_in(actor, 2))
        leave_open(actor);
    else
        capture_in_one(actor);
}

/* By the thread that began it or, where the driver refuses that, another one. */
static void end(struct actor *actor)
{
    CUgraph graph = (CUgraph)UNTOUCHED, *out = one_in(actor, 20) ? NULL : &graph;
    bool is_ours = is_open && !one_in(actor, 6);
    CUstream stream = is_ours ? (CUstream)(uintptr_t)captured : some_stream(actor);
    put(actor, "%s%s", is_ours ? "the captured " : "", out ? "&" : "NULL");
    CUresult result = CALL(actor, cuStreamEndCapture)(stream, out);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        made_graph(actor, graph);
    else if (out && graph != (CUgraph)UNTOUCHED)
        put(actor, " %s", graph ? "written" : "none");
    CUstreamCaptureStatus status;
    if (is_open && (status_of(&status) != CUDA_SUCCESS || status == CU_STREAM_CAPTURE_STATUS_NONE))
        is_open = false;
}

static void exchange_mode(struct actor *actor)
{
    CUstreamCaptureMode mode = (CUstreamCaptureMode)chance(actor, 4);
    put(actor, "%d", (int)mode);
    put_result(actor, CALL(actor, cuThreadExchangeStreamCaptureMode)(&mode));
    put(actor, " %d", (int)mode);
}

static void ask(struct actor *actor)
{
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)77;
    CUresult result = CALL(actor, cuStreamIsCapturing)(some_stream(actor), &status);
    put_result(actor, result);
    put(actor, " %d", (int)status);
}

#define ROW(symbol, weight, call)                                                                            \
    {                                                                                                        \
#symbol, (void *)(uintptr_t)symbol, weight, call                                                     \
    }
const struct row capture_rows[] = {
    ROW(cuStreamBeginCapture, 1, capture_in_one),
    ROW(cuStreamBeginCapture_ptsz, 1, capture_in_one),
    ROW(cuStreamBeginCaptureToGraph, 1, capture_in_one),
    ROW(cuStreamBeginCaptureToGraph_ptsz, 1, capture_in_one),
    ROW(cuStreamBeginCapture_v2, 3, capture),
    ROW(cuStreamBeginCapture_v2_ptsz, 2, capture),
    ROW(cuStreamEndCapture, 6, end),
    ROW(cuStreamEndCapture_ptsz, 4, end),
    ROW(cuThreadExchangeStreamCaptureMode, 1, exchange_mode),
    ROW(cuStreamIsCapturing, 1, ask),
    ROW(cuStreamIsCapturing_ptsz, 1, ask),
    {NULL, NULL, 0, NULL},
};
