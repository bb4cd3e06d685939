/* capture.c - which streams are captured into which graph, and what must not happen meanwhile. */
#include "simgpu/graph/capture_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "simgpu/graph/graph.h"
#include "simgpu/time/execution.h"

atomic_uint capture_count;

pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, capture) captures = LIST_HEAD_INITIALIZER(captures);
static unsigned long long last_id;

static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUstreamCaptureMode capture_exchange_mode(CUstreamCaptureMode mode)
{
    CUstreamCaptureMode previous = thread_mode;
    thread_mode = mode;
    return previous;
}

/* --- Tails ----------------------------------------------------------------------------------------- */

bool capture_tail_add(struct capture_tail *tail, CUgraphNode node, const CUgraphEdgeData *edge)
{
    for (size_t i = 0; i < tail->count; i++)
        if (tail->nodes[i] == node)
            return true;
    CUgraphNode *nodes = realloc(tail->nodes, (tail->count + 1) * sizeof(CUgraphNode));
    if (nodes)
        tail->nodes = nodes;
    CUgraphEdgeData *edges = realloc(tail->edges, (tail->count + 1) * sizeof(CUgraphEdgeData));
    if (edges)
        tail->edges = edges;
    if (!nodes || !edges)
        return false;
    nodes[tail->count] = node;
    edges[tail->count++] = edge ? *edge : (CUgraphEdgeData){0};
    return true;
}

bool capture_tail_join(struct capture_tail *tail, const struct capture_tail *other)
{
    for (size_t i = 0; i < other->count; i++)
        if (!capture_tail_add(tail, other->nodes[i], &other->edges[i]))
            return false;
    return true;
}

void capture_tail_free(struct capture_tail *tail)
{
    free(tail->nodes);
    free(tail->edges);
    *tail = (struct capture_tail){0};
}

/* --- Captures, under the lock ---------------------------------------------------------------------- */

struct capture *capture_of_id(unsigned long long id)
{
    struct capture *capture;
    LIST_FOREACH (capture, &captures, entry)
        if (capture->id == id)
            return capture;
    return NULL;
}

static bool is_blocking(CUstream stream)
{
    return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

struct capture_stream *capture_stream_add(struct capture *capture, CUstream stream)
{
    struct capture_stream *part = calloc(1, sizeof(*part));
    if (!part)
        return NULL;
    part->capture = capture;
    part->stream = stream;
    part->context = stream->context;
    part->is_blocking = is_blocking(stream);
    LIST_INSERT_HEAD(&capture->streams, part, entry);
    stream->capture = part;
    return part;
}

static void part_free(struct capture_stream *part)
{
    LIST_REMOVE(part, entry);
    if (part->stream)
        part->stream->capture = NULL;
    capture_tail_free(&part->tail);
    free(part);
}

/* Its streams are ordinary streams again; a graph that it owns goes too, unless `keeps`. */
static void capture_finish(struct capture *capture, bool keeps)
{
    struct capture_stream *part;
    LIST_REMOVE(capture, entry);
    while ((part = LIST_FIRST(&capture->streams)))
        part_free(part);
    capture->graph->capturing = false;
    if (capture->owns_graph && !keeps)
        graph_free(capture->graph);
    free(capture);
    atomic_fetch_sub(&capture_count, 1);
}

/* --- Beginning and ending -------------------------------------------------------------------------- */

static CUresult start_capture(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                              const CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count)
{
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct capture *capture = calloc(1, sizeof(*capture));
    if (!capture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->owns_graph = !graph;
    capture->graph = graph ? graph : graph_make();
    struct capture_stream *part = capture->graph ? capture_stream_add(capture, stream) : NULL;
    bool is_made = part != NULL;
    for (size_t i = 0; i < count && is_made; i++)
        is_made = capture_tail_add(&part->tail, nodes[i], edges ? &edges[i] : NULL);
    if (!is_made) {
        if (part)
            part_free(part);
        if (capture->owns_graph && capture->graph)
            graph_free(capture->graph);
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->id = ++last_id;
    capture->mode = mode;
    capture->thread = stream_thread();
    capture->origin = stream;
    capture->graph->capturing = true;
    LIST_INSERT_HEAD(&captures, capture, entry);
    atomic_fetch_add(&capture_count, 1);
    return CUDA_SUCCESS;
}

CUresult capture_begin(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, const CUgraphNode *nodes,
                       const CUgraphEdgeData *edges, size_t count)
{
    pthread_mutex_lock(&capture_lock);
    CUresult result = start_capture(stream, mode, graph, nodes, edges, count);
    pthread_mutex_unlock(&capture_lock);
    return result;
}

static void mark_before(CUgraphNode node, bool *is_before)
{
    if (is_before[node->index])
        return;
    is_before[node->index] = true;
    for (size_t i = 0; i < node->dependency_count; i++)
        mark_before(node->dependencies[i].from, is_before);
}

/* Whether the origin's next node would come after all that is in other streams. */
static bool is_joined(const struct capture *capture)
{
    cleanup_free bool *is_before = calloc(capture->graph->node_count + 1, sizeof(bool));
    if (!is_before)
        return false;
    const struct capture_tail *tail = &capture->origin->capture->tail;
    for (size_t i = 0; i < tail->count; i++)
        mark_before(tail->nodes[i], is_before);
    const struct capture_stream *part;
    LIST_FOREACH (part, &capture->streams, entry)
        for (size_t i = 0; i < part->tail.count; i++)
            if (!is_before[part->tail.nodes[i]->index])
                return false;
    return true;
}

static CUresult finish_capture(CUstream stream, CUgraph *graph)
{
    if (!stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct capture *capture = stream->capture->capture;
    SIM_REQUIRE(graph || !capture->owns_graph); /* the program has that one already */
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != stream_thread())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (capture->origin != stream) {
        capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    CUresult result = CUDA_SUCCESS;
    if (capture->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!is_joined(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (graph)
        *graph = result == CUDA_SUCCESS ? capture->graph : NULL;
    capture_finish(capture, result == CUDA_SUCCESS);
    return result;
}

CUresult capture_end(CUstream stream, CUgraph *graph)
{
    pthread_mutex_lock(&capture_lock);
    CUresult result = finish_capture(stream, graph);
    pthread_mutex_unlock(&capture_lock);
    return result;
}

static bool has_blocking_capture(CUcontext context, bool invalidates)
{
    bool has = false;
    struct capture *capture;
    const struct capture_stream *part;
    LIST_FOREACH (capture, &captures, entry)
        LIST_FOREACH (part, &capture->streams, entry)
            if (part->context == context && part->is_blocking) {
                has = true;
                capture->invalid |= invalidates;
            }
    return has;
}

CUresult capture_ask(CUcontext context, CUstream stream, struct capture_info *info)
{
    CUresult result = CUDA_SUCCESS;
    *info = (struct capture_info){.status = CU_STREAM_CAPTURE_STATUS_NONE};
    pthread_mutex_lock(&capture_lock);
    if (!stream) {
        if (has_blocking_capture(context, false))
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    } else if (stream->capture) {
        const struct capture_stream *part = stream->capture;
        *info = (struct capture_info){
            .status = part->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                             : CU_STREAM_CAPTURE_STATUS_ACTIVE,
            .id = part->capture->id,
            .graph = part->capture->graph,
            .nodes = part->tail.nodes,
            .edges = part->tail.edges,
            .count = part->tail.count,
        };
    }
    pthread_mutex_unlock(&capture_lock);
    return result;
}

static CUresult set_tail(CUstream stream, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
                         size_t count, bool replaces)
{
    if (!stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct capture_stream *part = stream->capture;
    if (part->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    for (size_t i = 0; i < count; i++) {
        SIM_TRY(graph_node_check(nodes[i]));
        SIM_REQUIRE(nodes[i]->graph == part->capture->graph);
    }
    struct capture_tail tail = {0};
    bool is_made = replaces || capture_tail_join(&tail, &part->tail);
    for (size_t i = 0; i < count && is_made; i++)
        is_made = capture_tail_add(&tail, nodes[i], edges ? &edges[i] : NULL);
    if (!is_made) {
        capture_tail_free(&tail);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture_tail_free(&part->tail);
    part->tail = tail;
    return CUDA_SUCCESS;
}

CUresult capture_set_tail(CUstream stream, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
                          size_t count, bool replaces)
{
    pthread_mutex_lock(&capture_lock);
    CUresult result = set_tail(stream, nodes, edges, count, replaces);
    pthread_mutex_unlock(&capture_lock);
    return result;
}

/* --- Calls that are refused ------------------------------------------------------------------------ */

CUresult capture_refuse_stream(CUcontext context, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&capture_lock);
    if (stream && stream->capture) {
        struct capture *capture = stream->capture->capture;
        result =
            capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        capture->invalid = true;
    } else if (!stream && has_blocking_capture(context, true)) {
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    pthread_mutex_unlock(&capture_lock);
    return result;
}

CUresult capture_refuse_all_of(CUcontext context)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&capture_lock);
    struct capture *capture;
    const struct capture_stream *part;
    LIST_FOREACH (capture, &captures, entry)
        LIST_FOREACH (part, &capture->streams, entry)
            if (part->context == context) {
                capture->invalid = true;
                result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            }
    pthread_mutex_unlock(&capture_lock);
    return result;
}

CUresult capture_refuse_unsafe(void)
{
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&capture_lock);
    struct capture *capture;
    LIST_FOREACH (capture, &captures, entry) {
        bool is_own = capture->thread == stream_thread();
        bool forbids = is_own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                              : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                    thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (forbids) {
            capture->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    pthread_mutex_unlock(&capture_lock);
    return result;
}

void capture_stream_gone(CUstream stream)
{
    if (!stream->capture)
        return;
    pthread_mutex_lock(&capture_lock);
    struct capture_stream *part = stream->capture;
    struct capture *capture = part ? part->capture : NULL;
    if (capture && capture->origin == stream) {
        capture_finish(capture, false); /* nobody can end it any more */
    } else if (capture) {
        part->stream = NULL; /* its work is the capture's still (driver API reference: cuStreamDestroy) */
        stream->capture = NULL;
    }
    pthread_mutex_unlock(&capture_lock);
}
