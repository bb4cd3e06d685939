/* capture.h - streams whose work becomes nodes of a graph instead of being done.
 *
 * capture   one sequence from cuStreamBeginCapture to cuStreamEndCapture: the graph it goes into, its mode,
 *           and all streams that are in it
 * origin    the stream the capture began in and has to end in. Others come in by waiting for an event that
 *           was recorded in the capture, and have to be joined the same way before the end
 * tail      of a stream: the nodes that its next one will depend on
 *
 * While nothing is captured in the process, captures cost a call one relaxed load: capture_is_possible(). */
#pragma once

#include "simgpu/driver/sim.h"

extern atomic_uint capture_count; /* captures that have begun and not ended */

static inline bool capture_is_possible(void)
{
    return atomic_load_explicit(&capture_count, memory_order_relaxed) != 0;
}

/* --- For calls that can be captured. They return false where the stream is not: do the work. Else the call
 * has become a node, or has failed: return `*result`. --- */

/* `params` NULL: a call that does nothing. */
bool capture_node(CUstream handle, bool per_thread, CUgraphNodeParams *params, CUresult *result);
/* The same of a kernel with attributes: of its launch (or NULL), and of the stream. */
bool capture_kernel(CUstream handle, bool per_thread, CUgraphNodeParams *params, const CUlaunchConfig *config,
                    bool is_cooperative, CUresult *result);
/* Memory of `gpu`, or of the stream's where that is -1. */
bool capture_allocation(CUstream handle, bool per_thread, int gpu, uint64_t bytes, CUdeviceptr *pointer,
                        CUresult *result);
bool capture_event_record(CUevent event, CUstream handle, bool per_thread, unsigned flags, CUresult *result);
bool capture_event_wait(CUevent event, CUstream handle, bool per_thread, unsigned flags, CUresult *result);

/* --- For calls that cannot. They invalidate the capture that they would break: a program can then only end
 * it, in failure. --- */

/* Use of a stream (NULL: the legacy one); see stream_resolve(). */
CUresult capture_refuse_stream(CUcontext context, CUstream stream);

CUresult capture_refuse_all_of(CUcontext context);
CUresult capture_refuse_unsafe(void);

/* For a call that waits for all work of a context, or asks about it. */
static inline CUresult capture_refuse_context(CUcontext context)
{
    return capture_is_possible() ? capture_refuse_all_of(context) : CUDA_SUCCESS;
}

/* A call that is "potentially unsafe", by the mode of this thread and of captures
 * (cuThreadExchangeStreamCaptureMode).
 */
static inline CUresult capture_unsafe(void)
{
    return capture_is_possible() ? capture_refuse_unsafe() : CUDA_SUCCESS;
}

/* For a call that asks about an event, or waits for it. */
CUresult capture_event_use(CUevent event);

/* --- Housekeeping ---------------------------------------------------------------------------------- */

void capture_event_forget(CUevent event); /* it was recorded anew, or is destroyed */
void capture_stream_gone(CUstream stream);

/* --- For capture_calls.c. Streams are what stream_find() sets. ------------------------------------- */

struct capture_info {
    CUstreamCaptureStatus status;
    unsigned long long id;
    CUgraph graph;
    const CUgraphNode *nodes; /* until the next call on the stream */
    const CUgraphEdgeData *edges;
    size_t count;
};

/* `graph` NULL: a new one. */
CUresult capture_begin(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, const CUgraphNode *nodes,
                       const CUgraphEdgeData *edges, size_t count);
CUresult capture_end(CUstream stream, CUgraph *graph);
CUresult capture_ask(CUcontext context, CUstream stream, struct capture_info *info);
CUresult capture_set_tail(CUstream stream, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
                          size_t count, bool replaces);
CUstreamCaptureMode capture_exchange_mode(CUstreamCaptureMode mode);
