/* graphs.c - claims about graphs and captures. Sources: the driver API reference of CUDA 13.0 (cuda.h), at the call
 * that a claim names; in the CUDA programming guide's section on stream capture "Cross-stream Dependencies and
 * Events", "Prohibited and Unhandled Operations" and "Invalidation"; and its "Graph Memory Nodes". Claims from
 * elsewhere name their source. */
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "gpucheck/claims/claim.h"

static CUstream need_stream(void)
{
    CUstream stream;
    need("cuStreamCreate", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUevent need_event(void)
{
    CUevent event;
    need("cuEventCreate", cuEventCreate(&event, 0));
    return event;
}

static CUdeviceptr need_memory(size_t bytes)
{
    CUdeviceptr pointer;
    need("cuMemAlloc_v2", cuMemAlloc_v2(&pointer, bytes));
    return pointer;
}

static unsigned need_word(CUdeviceptr at)
{
    unsigned word;
    need("cuMemcpyDtoH_v2", cuMemcpyDtoH_v2(&word, at, sizeof(word)));
    return word;
}

static void need_capture(CUstream stream, CUstreamCaptureMode mode)
{
    need("cuStreamBeginCapture_v2", cuStreamBeginCapture_v2(stream, mode));
}

static CUstreamCaptureStatus need_status(CUstream stream)
{
    CUstreamCaptureStatus status;
    need("cuStreamIsCapturing", cuStreamIsCapturing(stream, &status));
    return status;
}

static CUgraph need_end(CUstream stream)
{
    CUgraph graph;
    need("cuStreamEndCapture", cuStreamEndCapture(stream, &graph));
    return graph;
}

/* End a capture, whatever its state. */
static CUresult end_result(CUstream stream)
{
    CUgraph graph = NULL;
    CUresult result = cuStreamEndCapture(stream, &graph);
    if (graph)
        need("cuGraphDestroy", cuGraphDestroy(graph));
    return result;
}

static size_t need_count(CUgraph graph)
{
    size_t count = 0;
    need("cuGraphGetNodes", cuGraphGetNodes(graph, NULL, &count));
    return count;
}

static CUgraphExec need_exec(CUgraph graph)
{
    CUgraphExec exec;
    need("cuGraphInstantiateWithFlags", cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

/* --- Captures -------------------------------------------------------------------------------------- */

static void capture(void)
{
    CUdeviceptr at;
    CUgraph graph, into;
    CUgraphNode node;
    CUgraphNodeType type;
    cuuint64_t id = 0, second_id = 0;
    CUstreamCaptureStatus status;
    size_t count = 1;
    need_context();
    CUstream stream = need_stream(), other = need_stream();
    at = need_memory(4);
    need("cuMemsetD32_v2", cuMemsetD32_v2(at, 1, 1));
    claim_result("cuStreamBeginCapture of the legacy stream", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                 cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    claim_result("cuStreamBeginCapture in no mode", CUDA_ERROR_INVALID_VALUE,
                 cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)3));
    claim_result("cuStreamEndCapture of a stream that is not captured", CUDA_ERROR_ILLEGAL_STATE,
                 cuStreamEndCapture(stream, &graph));
    claim_number("a stream is not captured at first", CU_STREAM_CAPTURE_STATUS_NONE, need_status(stream));
    claim_result("cuStreamIsCapturing into NULL", CUDA_ERROR_INVALID_VALUE,
                 cuStreamIsCapturing(stream, NULL));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    claim_number("a stream is captured after cuStreamBeginCapture", CU_STREAM_CAPTURE_STATUS_ACTIVE,
                 need_status(stream));
    claim_number("another stream is not", CU_STREAM_CAPTURE_STATUS_NONE, need_status(other));
    claim_result("cuStreamBeginCapture of a stream that is captured", CUDA_ERROR_ILLEGAL_STATE,
                 cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    claim_result("a memset is captured", CUDA_SUCCESS, cuMemsetD32Async(at, 2, 1, stream));
    need("cuStreamGetCaptureInfo_v2", cuStreamGetCaptureInfo_v2(stream, &status, &id, &into, NULL, &count));
    claim_number("a captured call is what the next will depend on", 1, count);
    graph = need_end(stream);
    claim_true("cuStreamGetCaptureInfo tells the graph", "that of the end", graph == into);
    claim_number("nothing captured has been done", 1, need_word(at));
    claim_number("what was captured is nodes", 1, need_count(graph));
    count = 1;
    need("cuGraphGetNodes", cuGraphGetNodes(graph, &node, &count));
    need("cuGraphNodeGetType", cuGraphNodeGetType(node, &type));
    claim_number("a captured memset is a memset node", CU_GRAPH_NODE_TYPE_MEMSET, type);
    need_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    need("cuStreamGetCaptureInfo_v2",
         cuStreamGetCaptureInfo_v2(stream, &status, &second_id, NULL, NULL, NULL));
    claim_true("each capture has an id of its own", "another", id != second_id && second_id != 0);
    into = need_end(stream);
    claim_number("a capture of nothing is a graph without nodes", 0, need_count(into));
    claim_result("a graph without nodes can be instantiated", CUDA_SUCCESS,
                 cuGraphInstantiateWithFlags(&(CUgraphExec){0}, into, 0));
}

/* Operations that are forbidden while a stream is captured invalidate the capture. */
static void invalidation(void)
{
    CUgraph graph = (CUgraph)(uintptr_t)1;
    need_context();
    CUstream stream = need_stream();
    CUdeviceptr at = need_memory(4);
    need_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    claim_result("cuStreamQuery of a captured stream", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                 cuStreamQuery(stream));
    claim_number("cuStreamQuery of a captured stream invalidates the capture",
                 CU_STREAM_CAPTURE_STATUS_INVALIDATED, need_status(stream));
    claim_result("work for an invalidated capture", CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                 cuMemsetD32Async(at, 2, 1, stream));
    claim_result("cuStreamEndCapture of an invalidated capture", CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                 cuStreamEndCapture(stream, &graph));
    claim_true("cuStreamEndCapture of an invalidated capture gives no graph", "NULL", graph == NULL);
    claim_number("cuStreamEndCapture of an invalidated capture ends it", CU_STREAM_CAPTURE_STATUS_NONE,
                 need_status(stream));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    claim_result("cuStreamSynchronize of a captured stream", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                 cuStreamSynchronize(stream));
    claim_result("cuStreamEndCapture after cuStreamSynchronize of a captured stream",
                 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_result(stream));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    claim_result("cuCtxSynchronize while a stream is captured", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                 cuCtxSynchronize());
    claim_result("cuStreamEndCapture after cuCtxSynchronize", CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                 end_result(stream));
}

static void do_nothing(CUstream stream, CUresult status, void *argument)
{
}

static void do_nothing_either(void *argument)
{
}

static void what_is_captured(void)
{
    CUdeviceptr at[2], allocated;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    size_t bytes = 4, first = 0;
    need_context();
    CUstream stream = need_stream();
    at[0] = need_memory(4);
    at[1] = need_memory(4);
    need_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    claim_result("cuLaunchHostFunc is captured", CUDA_SUCCESS,
                 cuLaunchHostFunc(stream, do_nothing_either, NULL));
    claim_result("cuMemAllocAsync is captured", CUDA_SUCCESS, cuMemAllocAsync(&allocated, 4, stream));
    claim_result("cuMemcpyAsync to what it gave is captured", CUDA_SUCCESS,
                 cuMemcpyAsync(allocated, at[0], 4, stream));
    claim_result("cuMemFreeAsync is captured", CUDA_SUCCESS, cuMemFreeAsync(allocated, stream));
    claim_number("allocation, copy, free and host function are a node each", 4, need_count(need_end(stream)));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    claim_result("cuStreamAddCallback cannot be captured", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                 cuStreamAddCallback(stream, do_nothing, NULL, 0));
    claim_result("cuStreamEndCapture after cuStreamAddCallback", CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                 end_result(stream));
    /* github.com/rapidsai/rmm, issue 2518, with CUDA 13 */
    if (!driver_is_since(13000))
        return;
    need_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    claim_result("cuMemcpyBatchAsync cannot be captured", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                 cuMemcpyBatchAsync_v2(&at[1], &at[0], &bytes, 1, &attributes, &first, 1, stream));
    claim_number("a capture goes on after cuMemcpyBatchAsync", CU_STREAM_CAPTURE_STATUS_ACTIVE,
                 need_status(stream));
    claim_result("cuStreamEndCapture after cuMemcpyBatchAsync", CUDA_SUCCESS, end_result(stream));
}

/* Another stream joins a capture by waiting for one of its events, and must be joined again before the end. */
static void forks(void)
{
    CUgraph graph;
    CUgraphNode nodes[3];
    size_t count = 0;
    need_context();
    CUstream stream = need_stream(), side = need_stream(), apart = need_stream();
    CUevent forked = need_event(), joined = need_event(), outside = need_event();
    CUdeviceptr at = need_memory(12);
    need("cuEventRecord", cuEventRecord(outside, apart));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    need("cuMemsetD32Async", cuMemsetD32Async(at, 1, 1, stream));
    need("cuEventRecord", cuEventRecord(forked, stream));
    claim_result("cuStreamWaitEvent for an event of a capture", CUDA_SUCCESS,
                 cuStreamWaitEvent(side, forked, 0));
    claim_number("a stream that waits for an event of a capture is captured", CU_STREAM_CAPTURE_STATUS_ACTIVE,
                 need_status(side));
    need("cuMemsetD32Async", cuMemsetD32Async(at + 4, 1, 1, side));
    need("cuEventRecord", cuEventRecord(joined, side));
    need("cuStreamWaitEvent", cuStreamWaitEvent(stream, joined, 0));
    need("cuMemsetD32Async", cuMemsetD32Async(at + 8, 1, 1, stream));
    graph = need_end(stream);
    claim_number("the end takes all streams out of it", CU_STREAM_CAPTURE_STATUS_NONE, need_status(side));
    claim_number("events within a capture are no nodes", 3, need_count(graph));
    need("cuGraphGetRootNodes", cuGraphGetRootNodes(graph, NULL, &count));
    claim_number("a fork has one root", 1, count);
    count = 3;
    need("cuGraphGetNodes", cuGraphGetNodes(graph, nodes, &count));
    size_t edges = 0;
    need("cuGraphGetEdges", cuGraphGetEdges(graph, NULL, NULL, &edges));
    claim_number("a fork that joins has an edge for each way", 3, edges);

    need_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    need("cuEventRecord", cuEventRecord(forked, stream));
    need("cuStreamWaitEvent", cuStreamWaitEvent(side, forked, 0));
    need("cuMemsetD32Async", cuMemsetD32Async(at, 1, 1, side));
    claim_result("cuStreamEndCapture with work that was not joined", CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                 cuStreamEndCapture(stream, &graph));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    need("cuEventRecord", cuEventRecord(forked, stream));
    need("cuStreamWaitEvent", cuStreamWaitEvent(side, forked, 0));
    claim_result("cuStreamEndCapture of a stream that joined later", CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
                 cuStreamEndCapture(side, &graph));
    claim_result("cuStreamEndCapture after one of a stream that joined later",
                 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_result(stream));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    claim_result("cuStreamWaitEvent in a capture for an event from outside",
                 CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(stream, outside, 0));
    claim_result("cuStreamEndCapture after a wait for an event from outside",
                 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_result(stream));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    need_capture(side, CU_STREAM_CAPTURE_MODE_GLOBAL);
    need("cuEventRecord", cuEventRecord(forked, stream));
    claim_result("cuStreamWaitEvent between two captures", CUDA_ERROR_STREAM_CAPTURE_MERGE,
                 cuStreamWaitEvent(side, forked, 0));
    claim_result("cuStreamEndCapture of the one of two captures that met",
                 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_result(stream));
    claim_result("cuStreamEndCapture of the other", CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_result(side));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    need("cuEventRecord", cuEventRecord(forked, stream));
    claim_result("cuEventQuery of an event of a capture", CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(forked));
    claim_result("cuStreamEndCapture after cuEventQuery of its event", CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                 end_result(stream));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    need("cuEventRecord", cuEventRecord(forked, stream));
    claim_result("cuEventSynchronize of an event of a capture", CUDA_ERROR_CAPTURED_EVENT,
                 cuEventSynchronize(forked));
    claim_result("cuStreamEndCapture after cuEventSynchronize of its event",
                 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_result(stream));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    claim_result("cuEventRecordWithFlags as external in a capture", CUDA_SUCCESS,
                 cuEventRecordWithFlags(forked, stream, CU_EVENT_RECORD_EXTERNAL));
    claim_number("an external record in a capture is a node", 1, need_count(need_end(stream)));
}

/* --- Modes, with another thread -------------------------------------------------------------------- */

struct attempt {
    CUcontext context;
    CUstreamCaptureMode thread_mode;
    /* end this stream's capture; NULL: do something "potentially unsafe": allocate */
    CUstream ends;
    CUresult result;
};

static void *attempt_run(void *argument)
{
    struct attempt *attempt = argument;
    CUdeviceptr pointer;
    CUgraph graph;
    attempt->result = cuCtxSetCurrent(attempt->context);
    if (attempt->result != CUDA_SUCCESS)
        return NULL;
    cuThreadExchangeStreamCaptureMode(&attempt->thread_mode);
    attempt->result = attempt->ends ? cuStreamEndCapture(attempt->ends, &graph) : cuMemAlloc_v2(&pointer, 4);
    return NULL;
}

static CUresult in_another_thread(struct attempt attempt)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, attempt_run, &attempt) != 0 || pthread_join(thread, NULL) != 0)
        return CUDA_ERROR_UNKNOWN;
    return attempt.result;
}

static void modes(void)
{
    CUcontext context = need_context();
    CUdeviceptr pointer;
    CUstream stream = need_stream();
    const struct attempt strict = {.context = context, .thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL};
    const struct attempt local = {.context = context, .thread_mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL};
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    need("cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode(&mode));
    claim_number("a thread's mode is global at first", CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
    need("cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode(&mode));
    claim_number("cuThreadExchangeStreamCaptureMode tells the mode before", CU_STREAM_CAPTURE_MODE_RELAXED,
                 mode);
    mode = (CUstreamCaptureMode)3;
    claim_result("cuThreadExchangeStreamCaptureMode to no mode", CUDA_ERROR_INVALID_VALUE,
                 cuThreadExchangeStreamCaptureMode(&mode));

    need_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    claim_result("cuMemAlloc in a global capture", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                 cuMemAlloc_v2(&pointer, 4));
    claim_result("a global capture after it", CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_result(stream));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    claim_result("cuMemAlloc in another thread than a global capture's",
                 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, in_another_thread(strict));
    claim_result("a global capture after cuMemAlloc in another thread", CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                 end_result(stream));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    claim_result("cuMemAlloc in another thread whose mode is thread-local", CUDA_SUCCESS,
                 in_another_thread(local));
    claim_result("a global capture after cuMemAlloc in a thread-local thread", CUDA_SUCCESS,
                 end_result(stream));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    claim_result("cuMemAlloc in another thread than a thread-local capture's", CUDA_SUCCESS,
                 in_another_thread(strict));
    claim_result("cuMemAlloc in a thread-local capture", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                 cuMemAlloc_v2(&pointer, 4));
    claim_result("a thread-local capture after it", CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                 end_result(stream));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    claim_result("cuMemAlloc in a relaxed capture", CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 4));
    claim_result("a relaxed capture after it", CUDA_SUCCESS, end_result(stream));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    need("cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode(&mode));
    claim_result("cuMemAlloc in a global capture while the thread's mode is relaxed", CUDA_SUCCESS,
                 cuMemAlloc_v2(&pointer, 4));
    need("cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode(&mode));
    claim_result("a global capture goes on after that", CUDA_SUCCESS, end_result(stream));

    struct attempt ends = strict;
    ends.ends = stream;
    need_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    claim_result("cuStreamEndCapture from another thread", CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
                 in_another_thread(ends));
    need("cuStreamEndCapture", end_result(stream));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    claim_result("cuStreamEndCapture of a relaxed capture from another thread", CUDA_SUCCESS,
                 in_another_thread(ends));
}

static void legacy_stream(void)
{
    CUstream blocking;
    CUstreamCaptureStatus status;
    need_context();
    CUdeviceptr at = need_memory(4);
    unsigned word;
    need("cuStreamCreate", cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    need_capture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    claim_result("cuStreamIsCapturing of the legacy stream beside a captured blocking one",
                 CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
    claim_number("asking for the legacy stream's status does not invalidate the capture",
                 CU_STREAM_CAPTURE_STATUS_ACTIVE, need_status(blocking));
    claim_result("work on the legacy stream beside a captured blocking one",
                 CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD32Async(at, 1, 1, NULL));
    claim_result("a blocking stream's capture after work on the legacy stream",
                 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_result(blocking));
    need_capture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    claim_result("a copy without a stream beside a captured blocking one", CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                 cuMemcpyDtoH_v2(&word, at, 4));
    claim_result("a blocking stream's capture after a copy without a stream",
                 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_result(blocking));
    CUstream stream = need_stream();
    need_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    claim_result("work on the legacy stream beside a captured non-blocking one", CUDA_SUCCESS,
                 cuMemsetD32Async(at, 1, 1, NULL));
    claim_result("a non-blocking stream's capture after work on the legacy stream", CUDA_SUCCESS,
                 end_result(stream));
}

/* --- Graphs ---------------------------------------------------------------------------------------- */

static CUDA_MEMSET_NODE_PARAMS set_word(CUdeviceptr at, unsigned value)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = at, .value = value, .elementSize = 4, .width = 1, .height = 1};
}

static CUgraphNode need_memset(CUgraph graph, const CUgraphNode *after, size_t count, CUdeviceptr at,
                               unsigned value, CUcontext context)
{
    CUgraphNode node;
    const CUDA_MEMSET_NODE_PARAMS parameters = set_word(at, value);
    need("cuGraphAddMemsetNode", cuGraphAddMemsetNode(&node, graph, after, count, &parameters, context));
    return node;
}

static void edges(void)
{
    CUgraph graph, other;
    CUgraphNode a, b, c, foreign, found;
    size_t count;
    need_context();
    claim_result("cuGraphCreate with flags", CUDA_ERROR_INVALID_VALUE, cuGraphCreate(&graph, 1));
    claim_result("cuGraphCreate of NULL", CUDA_ERROR_INVALID_VALUE, cuGraphCreate(NULL, 0));
    need("cuGraphCreate", cuGraphCreate(&graph, 0));
    need("cuGraphCreate", cuGraphCreate(&other, 0));
    need("cuGraphAddEmptyNode", cuGraphAddEmptyNode(&a, graph, NULL, 0));
    need("cuGraphAddEmptyNode", cuGraphAddEmptyNode(&b, graph, &a, 1));
    need("cuGraphAddEmptyNode", cuGraphAddEmptyNode(&c, graph, NULL, 0));
    need("cuGraphAddEmptyNode", cuGraphAddEmptyNode(&foreign, other, NULL, 0));
    claim_result("cuGraphAddEmptyNode with one dependency twice", CUDA_ERROR_INVALID_VALUE,
                 cuGraphAddEmptyNode(&found, graph, (CUgraphNode[]){a, a}, 2));
    claim_result("cuGraphAddEmptyNode after a node of another graph", CUDA_ERROR_INVALID_VALUE,
                 cuGraphAddEmptyNode(&found, graph, &foreign, 1));
    claim_result("cuGraphAddDependencies of an edge that is there", CUDA_ERROR_INVALID_VALUE,
                 cuGraphAddDependencies(graph, &a, &b, 1));
    claim_result("cuGraphAddDependencies", CUDA_SUCCESS, cuGraphAddDependencies(graph, &b, &c, 1));
    claim_result("cuGraphRemoveDependencies of an edge that is not there", CUDA_ERROR_INVALID_VALUE,
                 cuGraphRemoveDependencies(graph, &a, &c, 1));
    need("cuGraphGetEdges", cuGraphGetEdges(graph, NULL, NULL, &count));
    claim_number("a chain of three has two edges", 2, count);
    need("cuGraphNodeGetDependentNodes", cuGraphNodeGetDependentNodes(a, NULL, &count));
    claim_number("the first has one dependent node", 1, count);
    need("cuGraphNodeGetDependencies", cuGraphNodeGetDependencies(c, NULL, &count));
    claim_number("the last has one dependency", 1, count);
    claim_result("cuGraphDestroyNode in the middle", CUDA_SUCCESS, cuGraphDestroyNode(b));
    need("cuGraphGetEdges", cuGraphGetEdges(graph, NULL, NULL, &count));
    claim_number("a destroyed node's edges go with it", 0, count);
    need("cuGraphClone", cuGraphClone(&other, graph));
    need("cuGraphNodeFindInClone", cuGraphNodeFindInClone(&found, a, other));
    claim_true("cuGraphNodeFindInClone finds the clone's node", "another one", found != a);
    need("cuGraphAddDependencies",
         cuGraphAddDependencies(graph, (CUgraphNode[]){a, c}, (CUgraphNode[]){c, a}, 2));
    CUgraphExec exec;
    claim_result("cuGraphInstantiate of a graph with a cycle", CUDA_ERROR_INVALID_VALUE,
                 cuGraphInstantiateWithFlags(&exec, graph, 0));
}

static void launches(void)
{
    CUgraph graph, captured;
    CUgraphExec exec, second;
    CUstreamCaptureStatus status;
    size_t count;
    CUcontext context = need_context();
    CUstream stream = need_stream();
    CUdeviceptr at = need_memory(8);
    need("cuMemsetD32_v2", cuMemsetD32_v2(at, 0, 2));
    need("cuGraphCreate", cuGraphCreate(&graph, 0));
    CUgraphNode first = need_memset(graph, NULL, 0, at, 1, context);
    need_memset(graph, &first, 1, at + 4, 2, context);
    claim_result("cuGraphInstantiate with unknown flags", CUDA_ERROR_INVALID_VALUE,
                 cuGraphInstantiateWithFlags(&exec, graph, 1u << 20));
    claim_result("cuGraphInstantiate of NULL", CUDA_ERROR_INVALID_VALUE,
                 cuGraphInstantiateWithFlags(NULL, graph, 0));
    exec = need_exec(graph);
    claim_result("a second instance of a graph", CUDA_SUCCESS,
                 cuGraphInstantiateWithFlags(&second, graph, 0));
    need("cuStreamSynchronize", cuStreamSynchronize(stream));
    claim_number("cuGraphInstantiate runs nothing", 0, need_word(at));
    claim_result("cuGraphUpload", CUDA_SUCCESS, cuGraphUpload(exec, stream));
    need("cuStreamSynchronize", cuStreamSynchronize(stream));
    claim_number("cuGraphUpload runs nothing", 0, need_word(at));
    claim_result("cuGraphLaunch", CUDA_SUCCESS, cuGraphLaunch(exec, stream));
    need("cuStreamSynchronize", cuStreamSynchronize(stream));
    claim_number("cuGraphLaunch runs the first node", 1, need_word(at));
    claim_number("cuGraphLaunch runs the second node", 2, need_word(at + 4));
    const CUDA_MEMSET_NODE_PARAMS other = set_word(at, 9);
    need("cuGraphMemsetNodeSetParams", cuGraphMemsetNodeSetParams(first, &other));
    need("cuGraphLaunch", cuGraphLaunch(exec, stream));
    need("cuStreamSynchronize", cuStreamSynchronize(stream));
    claim_number("changing a graph does not change its instances", 1, need_word(at));
    need("cuGraphExecMemsetNodeSetParams", cuGraphExecMemsetNodeSetParams(exec, first, &other, context));
    need("cuGraphLaunch", cuGraphLaunch(exec, stream));
    need("cuStreamSynchronize", cuStreamSynchronize(stream));
    claim_number("cuGraphExecMemsetNodeSetParams changes an instance", 9, need_word(at));
    need("cuGraphLaunch", cuGraphLaunch(second, stream));
    need("cuStreamSynchronize", cuStreamSynchronize(stream));
    claim_number("cuGraphExecMemsetNodeSetParams leaves other instances alone", 1, need_word(at));
    need("cuGraphNodeSetEnabled", cuGraphNodeSetEnabled(exec, first, 0));
    need("cuMemsetD32_v2", cuMemsetD32_v2(at, 0, 1));
    need("cuGraphLaunch", cuGraphLaunch(exec, stream));
    need("cuStreamSynchronize", cuStreamSynchronize(stream));
    claim_number("a disabled node does nothing", 0, need_word(at));
    need_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    claim_result("cuGraphLaunch into a captured stream", CUDA_SUCCESS, cuGraphLaunch(second, stream));
    need("cuStreamIsCapturing", cuStreamIsCapturing(stream, &status));
    claim_number("a stream is still captured after cuGraphLaunch", CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
    captured = need_end(stream);
    CUgraphNode child;
    CUgraphNodeType type;
    count = 1;
    need("cuGraphGetNodes", cuGraphGetNodes(captured, &child, &count));
    need("cuGraphNodeGetType", cuGraphNodeGetType(child, &type));
    claim_number("a captured cuGraphLaunch is a child graph", CU_GRAPH_NODE_TYPE_GRAPH, type);
    claim_result("cuGraphDestroy of a graph that has instances", CUDA_SUCCESS, cuGraphDestroy(graph));
    claim_result("cuGraphLaunch of an instance of a destroyed graph", CUDA_SUCCESS,
                 cuGraphLaunch(second, stream));
    claim_result("cuGraphExecDestroy", CUDA_SUCCESS, cuGraphExecDestroy(second));
    need("cuStreamSynchronize", cuStreamSynchronize(stream));
}

static void updates(void)
{
    CUgraph graph, larger, other_type, shapes;
    CUgraphNode node;
    CUgraphExecUpdateResultInfo info;
    CUcontext context = need_context();
    CUstream stream = need_stream();
    CUdeviceptr at = need_memory(8);
    need("cuGraphCreate", cuGraphCreate(&graph, 0));
    need_memset(graph, NULL, 0, at, 1, context);
    CUgraphExec exec = need_exec(graph);
    need("cuGraphCreate", cuGraphCreate(&shapes, 0));
    need_memset(shapes, NULL, 0, at, 5, context);
    claim_result("cuGraphExecUpdate with other values", CUDA_SUCCESS,
                 cuGraphExecUpdate_v2(exec, shapes, &info));
    claim_number("cuGraphExecUpdate with other values says success", CU_GRAPH_EXEC_UPDATE_SUCCESS,
                 info.result);
    need("cuGraphLaunch", cuGraphLaunch(exec, stream));
    need("cuStreamSynchronize", cuStreamSynchronize(stream));
    claim_number("the launch after it has the new value", 5, need_word(at));
    need("cuGraphCreate", cuGraphCreate(&larger, 0));
    need_memset(larger, NULL, 0, at, 6, context);
    need_memset(larger, NULL, 0, at + 4, 6, context);
    claim_result("cuGraphExecUpdate with more nodes", CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                 cuGraphExecUpdate_v2(exec, larger, &info));
    claim_number("cuGraphExecUpdate with more nodes says that the topology changed",
                 CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, info.result);
    claim_true("cuGraphExecUpdate with more nodes names no node", "NULL", info.errorNode == NULL);
    need("cuGraphCreate", cuGraphCreate(&other_type, 0));
    need("cuGraphAddEmptyNode", cuGraphAddEmptyNode(&node, other_type, NULL, 0));
    claim_result("cuGraphExecUpdate with a node of another type", CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                 cuGraphExecUpdate_v2(exec, other_type, &info));
    claim_number("cuGraphExecUpdate with another type says so", CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED,
                 info.result);
    claim_true("cuGraphExecUpdate with another type names the node", "the new graph's",
               info.errorNode == node);
    need("cuGraphLaunch", cuGraphLaunch(exec, stream));
    need("cuStreamSynchronize", cuStreamSynchronize(stream));
    claim_number("an update that failed changes nothing", 5, need_word(at));
}

static void memory_nodes(void)
{
    CUgraph graph, clone;
    CUgraphNode allocation, release, extra;
    CUgraphExec exec, second;
    uint64_t used = 1;
    CUcontext context = need_context();
    CUstream stream = need_stream();
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                           .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
                                             .bytesize = MIB};
    need("cuGraphCreate", cuGraphCreate(&graph, 0));
    need("cuGraphAddMemAllocNode", cuGraphAddMemAllocNode(&allocation, graph, NULL, 0, &parameters));
    claim_true("an allocation node has its address at once", "not 0", parameters.dptr != 0);
    CUgraphNode set = need_memset(graph, &allocation, 1, parameters.dptr, 3, context);
    claim_result("cuGraphDestroyNode in a graph that allocates", CUDA_ERROR_NOT_SUPPORTED,
                 cuGraphDestroyNode(set));
    claim_result("cuGraphRemoveDependencies in a graph that allocates", CUDA_ERROR_NOT_SUPPORTED,
                 cuGraphRemoveDependencies(graph, &allocation, &set, 1));
    claim_result("cuGraphClone of a graph that allocates", CUDA_ERROR_NOT_SUPPORTED,
                 cuGraphClone(&clone, graph));
    exec = need_exec(graph);
    claim_result("a second instance of a graph that allocates", CUDA_ERROR_INVALID_VALUE,
                 cuGraphInstantiateWithFlags(&second, graph, 0));
    need("cuGraphLaunch", cuGraphLaunch(exec, stream));
    need("cuStreamSynchronize", cuStreamSynchronize(stream));
    claim_number("what a graph allocated and did not free is there after it", 3, need_word(parameters.dptr));
    claim_result("cuGraphLaunch before what it allocated is free", CUDA_ERROR_INVALID_VALUE,
                 cuGraphLaunch(exec, stream));
    claim_result("cuMemFreeAsync of what a graph allocated", CUDA_SUCCESS,
                 cuMemFreeAsync(parameters.dptr, stream));
    claim_result("cuGraphLaunch after what it allocated is free", CUDA_SUCCESS, cuGraphLaunch(exec, stream));
    claim_result("cuMemFree of what a graph allocated", CUDA_SUCCESS, cuMemFree_v2(parameters.dptr));
    need("cuStreamSynchronize", cuStreamSynchronize(stream));
    need("cuDeviceGraphMemTrim", cuDeviceGraphMemTrim(0));
    need("cuDeviceGetGraphMemAttribute",
         cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    claim_number("graphs use nothing when all is free", 0, used);
    need("cuGraphExecDestroy", cuGraphExecDestroy(exec));
    claim_result(
        "an instance after the first is destroyed", CUDA_SUCCESS,
        cuGraphInstantiateWithFlags(&second, graph, 1 /* CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH */));
    need("cuGraphLaunch", cuGraphLaunch(second, stream));
    claim_result("cuGraphLaunch again of one that frees on launch", CUDA_SUCCESS,
                 cuGraphLaunch(second, stream));
    need("cuStreamSynchronize", cuStreamSynchronize(stream));
    claim_result("cuGraphAddMemFreeNode of what no graph allocated", CUDA_ERROR_INVALID_VALUE,
                 cuGraphAddMemFreeNode(&release, graph, &allocation, 1, need_memory(4)));
    claim_result("cuGraphAddMemFreeNode", CUDA_SUCCESS,
                 cuGraphAddMemFreeNode(&release, graph, &set, 1, parameters.dptr));
    claim_result("cuGraphAddMemFreeNode a second time", CUDA_ERROR_INVALID_VALUE,
                 cuGraphAddMemFreeNode(&extra, graph, &set, 1, parameters.dptr));
}

const struct group groups_of_graphs[] = {
    {"capture", capture},
    {"invalidation", invalidation},
    {"captured", what_is_captured},
    {"forks", forks},
    {"modes", modes},
    {"legacy", legacy_stream},
    {"graph-edges", edges},
    {"graph-launch", launches},
    {"graph-update", updates},
    {"graph-memory", memory_nodes},
    {NULL, NULL},
};
