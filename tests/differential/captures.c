/* captures.c - rows: graphs captured from streams, each from beginning to end in one go: nothing else is
 * called meanwhile. */
#include <string.h>

#include "differ.h"

static void made_graph(struct actor *actor, CUgraph graph)
{
    size_t count = 0;
    put(actor, " made %u", add_thing(actor, GRAPH, (uint64_t)(uintptr_t)graph, 0)->number);
    CUresult result = cuGraphGetNodes(graph, NULL, &count);
    put(actor, " of %d %zu nodes", result, count);
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
    ROW(cuStreamBeginCapture, 1, capture_whole),
    ROW(cuStreamBeginCapture_ptsz, 1, capture_whole),
    ROW(cuStreamBeginCaptureToGraph, 1, capture_whole),
    ROW(cuStreamBeginCaptureToGraph_ptsz, 1, capture_whole),
    ROW(cuStreamBeginCapture_v2, 3, capture_whole),
    ROW(cuStreamBeginCapture_v2_ptsz, 2, capture_whole),
    ROW(cuStreamIsCapturing, 1, ask),
    ROW(cuStreamIsCapturing_ptsz, 1, ask),
    {NULL, NULL, 0, NULL},
};
