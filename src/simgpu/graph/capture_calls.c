/* capture_calls.c - the driver's calls on captures; the rules are in capture.c. */
#include "simgpu/graph/capture.h"
#include "simgpu/graph/graph.h"
#include "simgpu/time/execution.h"

static CUresult stream_capturable(CUstream handle, bool per_thread, CUstream *stream)
{
    CUcontext context;
    SIM_TRY(stream_find(handle, per_thread, &context, stream));
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static CUresult begin_capture(CUstream handle, bool per_thread, CUstreamCaptureMode mode)
{
    CUstream stream;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    SIM_TRY(stream_capturable(handle, per_thread, &stream));
    return capture_begin(stream, mode, NULL, NULL, NULL, 0);
}

SIM_FORMS(cuStreamBeginCapture, _ptsz, (CUstream stream),
          begin_capture(stream, per_thread, CU_STREAM_CAPTURE_MODE_GLOBAL))

SIM_FORMS(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, CUstreamCaptureMode mode),
          begin_capture(stream, per_thread, mode))

static CUresult begin_to_graph(CUstream handle, bool per_thread, CUgraph graph, const CUgraphNode *nodes,
                               const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
{
    CUstream stream;
    SIM_TRY(graph_check(graph));
    SIM_REQUIRE(mode <= CU_STREAM_CAPTURE_MODE_RELAXED && !graph->capturing && (count == 0 || nodes));
    for (size_t i = 0; i < count; i++) {
        SIM_TRY(graph_node_check(nodes[i]));
        SIM_REQUIRE(nodes[i]->graph == graph);
    }
    SIM_TRY(stream_capturable(handle, per_thread, &stream));
    return capture_begin(stream, mode, graph, nodes, edges, count);
}

SIM_FORMS(cuStreamBeginCaptureToGraph, _ptsz,
          (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
           size_t count, CUstreamCaptureMode mode),
          begin_to_graph(stream, per_thread, graph, nodes, edges, count, mode))

static CUresult end_capture(CUstream handle, bool per_thread, CUgraph *graph)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(sim_ready());
    SIM_TRY(stream_find(handle, per_thread, &context, &stream));
    return stream ? capture_end(stream, graph) : CUDA_ERROR_ILLEGAL_STATE;
}

SIM_FORMS(cuStreamEndCapture, _ptsz, (CUstream stream, CUgraph *graph),
          end_capture(stream, per_thread, graph))

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(mode && *mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    *mode = capture_exchange_mode(*mode);
    return CUDA_SUCCESS;
}

/* --- Asking ---------------------------------------------------------------------------------------- */

static CUresult ask_capture(CUstream handle, bool per_thread, struct capture_info *info)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(stream_find(handle, per_thread, &context, &stream));
    return capture_ask(context, stream, info);
}

static CUresult is_capturing(CUstream handle, bool per_thread, CUstreamCaptureStatus *status)
{
    struct capture_info info;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(status);
    SIM_TRY(ask_capture(handle, per_thread, &info));
    *status = info.status;
    return CUDA_SUCCESS;
}

SIM_FORMS(cuStreamIsCapturing, _ptsz, (CUstream stream, CUstreamCaptureStatus *status),
          is_capturing(stream, per_thread, status))

/* What the caller wants to know; all but the status may be NULL. */
struct question {
    CUstreamCaptureStatus *status;
    cuuint64_t *id;
    CUgraph *graph;
    const CUgraphNode **nodes;
    const CUgraphEdgeData **edges;
    size_t *count;
};

static CUresult get_info(CUstream handle, bool per_thread, struct question question)
{
    struct capture_info info;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(question.status && (!question.edges || question.nodes));
    SIM_TRY(ask_capture(handle, per_thread, &info));
    *question.status = info.status;
    if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    for (size_t i = 0; i < info.count && question.nodes && !question.edges; i++)
        if (!graph_edge_is_plain(&info.edges[i]))
            return CUDA_ERROR_LOSSY_QUERY;
    if (question.id)
        *question.id = info.id;
    if (question.graph)
        *question.graph = info.graph;
    if (question.nodes)
        *question.nodes = info.nodes;
    if (question.edges)
        *question.edges = info.edges;
    if (question.count)
        *question.count = info.count;
    return CUDA_SUCCESS;
}

SIM_FORMS(cuStreamGetCaptureInfo, _ptsz, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id),
          get_info(stream, per_thread, (struct question){.status = status, .id = id}))

SIM_FORMS(cuStreamGetCaptureInfo_v2, _ptsz,
          (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
           const CUgraphNode **nodes, size_t *count),
          get_info(stream, per_thread, (struct question){status, id, graph, nodes, NULL, count}))

SIM_FORMS(cuStreamGetCaptureInfo_v3, _ptsz,
          (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
           const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count),
          get_info(stream, per_thread, (struct question){status, id, graph, nodes, edges, count}))

/* --- Changing -------------------------------------------------------------------------------------- */

static CUresult update(CUstream handle, bool per_thread, const CUgraphNode *nodes,
                       const CUgraphEdgeData *edges, size_t count, unsigned flags)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES || flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    SIM_REQUIRE(count == 0 || nodes);
    SIM_TRY(stream_find(handle, per_thread, &context, &stream));
    if (!stream)
        return CUDA_ERROR_ILLEGAL_STATE;
    return capture_set_tail(stream, nodes, edges, count, flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
}

SIM_FORMS(cuStreamUpdateCaptureDependencies, _ptsz,
          (CUstream stream, CUgraphNode *nodes, size_t count, unsigned int flags),
          update(stream, per_thread, nodes, NULL, count, flags))

SIM_FORMS(cuStreamUpdateCaptureDependencies_v2, _ptsz,
          (CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count,
           unsigned int flags),
          update(stream, per_thread, nodes, edges, count, flags))
