/* capture.c - which streams are captured into which graph, and what must not happen meanwhile. */
#include "simgpu/graph/capture.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "simgpu/graph/graph.h"
#include "simgpu/time/execution.h"

/* Nodes that something will depend on. */
struct tail {
    CUgraphNode *nodes;
    CUgraphEdgeData *edges;
    size_t count;
};

struct capture_stream {
    struct capture *capture;
    CUstream stream;
    struct tail tail;
    struct capture_stream *next; /* of the capture's */
};

struct capture_event {
    unsigned long long capture_id;
    struct tail tail;
};

struct capture {
    unsigned long long id;
    CUstreamCaptureMode mode;
    unsigned long long thread; /* that began it */
    bool invalid;
    bool owns_graph; /* it was made for this */
    CUgraph graph;
    CUstream origin;
    struct capture_stream *streams;
    struct capture *next;
};

atomic_uint capture_count;

/* Of everything here but the count, also streams' and events' pointers to it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;
static unsigned long long last_id;

static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUstreamCaptureMode capture_exchange_mode(CUstreamCaptureMode mode)
{
    CUstreamCaptureMode previous = thread_mode;
    thread_mode = mode;
    return previous;
}

/* --- Tails ----------------------------------------------------------------------------------------- */

static bool tail_add(struct tail *tail, CUgraphNode node, const CUgraphEdgeData *edge)
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

static bool tail_join(struct tail *tail, const struct tail *other)
{
    for (size_t i = 0; i < other->count; i++)
        if (!tail_add(tail, other->nodes[i], &other->edges[i]))
            return false;
    return true;
}

static void tail_free(struct tail *tail)
{
    free(tail->nodes);
    free(tail->edges);
    *tail = (struct tail){0};
}

/* --- Captures, under the lock ---------------------------------------------------------------------- */

static struct capture *capture_of_id(unsigned long long id)
{
    struct capture *capture = captures;
    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

static struct capture_stream *stream_add(struct capture *capture, CUstream stream)
{
    struct capture_stream *part = calloc(1, sizeof(*part));
    if (!part)
        return NULL;
    part->capture = capture;
    part->stream = stream;
    part->next = capture->streams;
    capture->streams = part;
    stream->capture = part;
    return part;
}

static void part_free(struct capture_stream *part)
{
    part->stream->capture = NULL;
    tail_free(&part->tail);
    free(part);
}

/* Its streams are streams again; the graph goes too unless `keeps`. */
static void capture_finish(struct capture *capture, bool keeps)
{
    struct capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    while (capture->streams) {
        struct capture_stream *part = capture->streams;
        capture->streams = part->next;
        part_free(part);
    }
    capture->graph->capturing = false;
    if (capture->owns_graph && !keeps)
        graph_free(capture->graph);
    free(capture);
    atomic_fetch_sub(&capture_count, 1);
}

static bool is_blocking(CUstream stream)
{
    return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

/* --- Beginning and ending -------------------------------------------------------------------------- */

static CUresult begin(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, const CUgraphNode *nodes,
                      const CUgraphEdgeData *edges, size_t count)
{
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct capture *capture = calloc(1, sizeof(*capture));
    if (!capture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->owns_graph = !graph;
    capture->graph = graph ? graph : graph_make();
    struct capture_stream *part = capture->graph ? stream_add(capture, stream) : NULL;
    bool is_made = part != NULL;
    for (size_t i = 0; i < count && is_made; i++)
        is_made = tail_add(&part->tail, nodes[i], edges ? &edges[i] : NULL);
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
    capture->next = captures;
    captures = capture;
    atomic_fetch_add(&capture_count, 1);
    return CUDA_SUCCESS;
}

CUresult capture_begin(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, const CUgraphNode *nodes,
                       const CUgraphEdgeData *edges, size_t count)
{
    pthread_mutex_lock(&lock);
    CUresult result = begin(stream, mode, graph, nodes, edges, count);
    pthread_mutex_unlock(&lock);
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
    const struct tail *tail = &capture->origin->capture->tail;
    for (size_t i = 0; i < tail->count; i++)
        mark_before(tail->nodes[i], is_before);
    for (const struct capture_stream *part = capture->streams; part; part = part->next)
        for (size_t i = 0; i < part->tail.count; i++)
            if (!is_before[part->tail.nodes[i]->index])
                return false;
    return true;
}

static CUresult end(CUstream stream, CUgraph *graph)
{
    if (!stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct capture *capture = stream->capture->capture;
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
    *graph = result == CUDA_SUCCESS ? capture->graph : NULL;
    capture_finish(capture, result == CUDA_SUCCESS);
    return result;
}

CUresult capture_end(CUstream stream, CUgraph *graph)
{
    pthread_mutex_lock(&lock);
    CUresult result = end(stream, graph);
    pthread_mutex_unlock(&lock);
    return result;
}

static bool has_blocking_capture(CUcontext context, bool invalidates)
{
    bool has = false;
    for (struct capture *capture = captures; capture; capture = capture->next)
        for (const struct capture_stream *part = capture->streams; part; part = part->next)
            if (part->stream->context == context && is_blocking(part->stream)) {
                has = true;
                capture->invalid |= invalidates;
            }
    return has;
}

CUresult capture_ask(CUcontext context, CUstream stream, struct capture_info *info)
{
    CUresult result = CUDA_SUCCESS;
    *info = (struct capture_info){.status = CU_STREAM_CAPTURE_STATUS_NONE};
    pthread_mutex_lock(&lock);
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
    pthread_mutex_unlock(&lock);
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
    struct tail tail = {0};
    bool is_made = replaces || tail_join(&tail, &part->tail);
    for (size_t i = 0; i < count && is_made; i++)
        is_made = tail_add(&tail, nodes[i], edges ? &edges[i] : NULL);
    if (!is_made) {
        tail_free(&tail);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    tail_free(&part->tail);
    part->tail = tail;
    return CUDA_SUCCESS;
}

CUresult capture_set_tail(CUstream stream, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
                          size_t count, bool replaces)
{
    pthread_mutex_lock(&lock);
    CUresult result = set_tail(stream, nodes, edges, count, replaces);
    pthread_mutex_unlock(&lock);
    return result;
}

/* --- Calls that become nodes ----------------------------------------------------------------------- */

/* The stream's part in a capture, with the lock held; or false, without it, where there is none. A handle
 * that is no stream is for the call itself to refuse. */
static bool part_of(CUstream handle, bool per_thread, struct capture_stream **part)
{
    CUcontext context;
    CUstream stream;
    if (stream_find(handle, per_thread, &context, &stream) != CUDA_SUCCESS || !stream)
        return false;
    pthread_mutex_lock(&lock);
    *part = stream->capture;
    if (!*part)
        pthread_mutex_unlock(&lock);
    return *part != NULL;
}

static CUresult part_add(struct capture_stream *part, CUgraphNodeParams *params, CUgraphNode *node_out)
{
    if (part->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!params)
        return CUDA_SUCCESS;
    CUgraphNode node;
    SIM_TRY(graph_node_add(part->capture->graph, part->tail.nodes, part->tail.edges, part->tail.count, params,
                           part->stream->context, &node));
    if (!part->tail.count && !tail_add(&part->tail, node, NULL))
        return CUDA_ERROR_OUT_OF_MEMORY;
    part->tail.count = 1;
    part->tail.nodes[0] = node;
    part->tail.edges[0] = (CUgraphEdgeData){0};
    if (node_out)
        *node_out = node;
    return CUDA_SUCCESS;
}

bool capture_node(CUstream handle, bool per_thread, CUgraphNodeParams *params, CUresult *result)
{
    struct capture_stream *part;
    if (!part_of(handle, per_thread, &part))
        return false;
    *result = part_add(part, params, NULL);
    pthread_mutex_unlock(&lock);
    return true;
}

bool capture_kernel(CUstream handle, bool per_thread, CUgraphNodeParams *params, const CUlaunchConfig *config,
                    bool is_cooperative, CUresult *result)
{
    struct capture_stream *part;
    CUgraphNode node = NULL;
    if (!part_of(handle, per_thread, &part))
        return false;
    *result = part_add(part, params, &node);
    if (*result == CUDA_SUCCESS) {
        if (part->stream->priority)
            graph_node_set_attribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY,
                                     &(CUlaunchAttributeValue){.priority = part->stream->priority});
        if (is_cooperative)
            graph_node_set_attribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                                     &(CUlaunchAttributeValue){.cooperative = 1});
        for (unsigned i = 0; config && i < config->numAttrs; i++)
            if (config->attrs[i].id > CU_LAUNCH_ATTRIBUTE_IGNORE &&
                config->attrs[i].id <= CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING)
                graph_node_set_attribute(node, config->attrs[i].id, &config->attrs[i].value);
    }
    pthread_mutex_unlock(&lock);
    return true;
}

static int ordinal_of(unsigned gpu)
{
    unsigned ordinal = 0;
    while (ordinal < simulator.device_count && simulator.visible[ordinal] != gpu)
        ordinal++;
    return (int)ordinal;
}

bool capture_allocation(CUstream handle, bool per_thread, int gpu, uint64_t bytes, CUdeviceptr *pointer,
                        CUresult *result)
{
    struct capture_stream *part;
    if (!part_of(handle, per_thread, &part))
        return false;
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        .alloc = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                             .id = gpu < 0 ? part->stream->context->device
                                                           : ordinal_of((unsigned)gpu)}},
                  .bytesize = bytes},
    };
    *result = part_add(part, &params, NULL);
    if (*result == CUDA_SUCCESS)
        *pointer = params.alloc.dptr;
    pthread_mutex_unlock(&lock);
    return true;
}

/* --- Events ---------------------------------------------------------------------------------------- */

static void event_forget(CUevent event)
{
    if (!event->capture)
        return;
    tail_free(&event->capture->tail);
    free(event->capture);
    event->capture = NULL;
}

void capture_event_forget(CUevent event)
{
    pthread_mutex_lock(&lock);
    event_forget(event);
    pthread_mutex_unlock(&lock);
}

static CUresult event_record(const struct capture_stream *part, CUevent event)
{
    if (part->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event_forget(event);
    struct capture_event *capture = calloc(1, sizeof(*capture));
    if (!capture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->capture_id = part->capture->id;
    event->capture = capture;
    if (tail_join(&capture->tail, &part->tail))
        return CUDA_SUCCESS;
    event_forget(event);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

bool capture_event_record(CUevent event, CUstream handle, bool per_thread, unsigned flags, CUresult *result)
{
    struct capture_stream *part;
    if (!part_of(handle, per_thread, &part))
        return false;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = {event}};
    if (flags & CU_EVENT_RECORD_EXTERNAL)
        *result = part_add(part, &params, NULL);
    else
        *result = event_record(part, event);
    pthread_mutex_unlock(&lock);
    return true;
}

/* A wait for an event of `capture`: the stream comes into that capture, or joins what another of its streams
 * did. */
static CUresult wait_inside(struct capture *capture, const struct capture_event *event, CUcontext context,
                            CUstream stream)
{
    if (!stream) {
        capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    struct capture_stream *part = stream->capture;
    if (part && part->capture != capture) {
        part->capture->invalid = capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!part && !(part = stream_add(capture, stream)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return tail_join(&part->tail, &event->tail) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Under the lock; false where no capture is concerned. */
static bool event_wait(CUevent event, CUcontext context, CUstream stream, unsigned flags, CUresult *result)
{
    struct capture_stream *part = stream ? stream->capture : NULL;
    if (flags & CU_EVENT_WAIT_EXTERNAL) {
        CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {event}};
        *result = part ? part_add(part, &params, NULL) : CUDA_SUCCESS;
        return part != NULL;
    }
    struct capture *capture = event->capture ? capture_of_id(event->capture->capture_id) : NULL;
    if (capture) {
        *result = wait_inside(capture, event->capture, context, stream);
        return true;
    }
    if (!part)
        return false;
    *result = CUDA_SUCCESS;
    if (part->capture->invalid) {
        *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (event->recorded || event->capture) { /* of work outside, or of a capture that has ended */
        part->capture->invalid = true;
        *result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    return true;
}

bool capture_event_wait(CUevent event, CUstream handle, bool per_thread, unsigned flags, CUresult *result)
{
    CUcontext context;
    CUstream stream;
    if (stream_find(handle, per_thread, &context, &stream) != CUDA_SUCCESS)
        return false;
    pthread_mutex_lock(&lock);
    bool is_captured = event_wait(event, context, stream, flags, result);
    pthread_mutex_unlock(&lock);
    return is_captured;
}

CUresult capture_event_use(CUevent event)
{
    if (!event->capture)
        return capture_unsafe();
    pthread_mutex_lock(&lock);
    struct capture *capture = event->capture ? capture_of_id(event->capture->capture_id) : NULL;
    if (capture)
        capture->invalid = true;
    pthread_mutex_unlock(&lock);
    return CUDA_ERROR_CAPTURED_EVENT;
}

/* --- Calls that are refused ------------------------------------------------------------------------ */

CUresult capture_refuse_stream(CUcontext context, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (stream && stream->capture) {
        struct capture *capture = stream->capture->capture;
        result =
            capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        capture->invalid = true;
    } else if (!stream && has_blocking_capture(context, true)) {
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult capture_refuse_all_of(CUcontext context)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    for (struct capture *capture = captures; capture; capture = capture->next)
        for (const struct capture_stream *part = capture->streams; part; part = part->next)
            if (part->stream->context == context) {
                capture->invalid = true;
                result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult capture_refuse_unsafe(void)
{
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    for (struct capture *capture = captures; capture; capture = capture->next) {
        bool is_own = capture->thread == stream_thread();
        bool forbids = is_own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                              : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                    thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (forbids) {
            capture->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

void capture_stream_gone(CUstream stream)
{
    if (!stream->capture)
        return;
    pthread_mutex_lock(&lock);
    struct capture_stream *part = stream->capture;
    struct capture *capture = part ? part->capture : NULL;
    if (capture && capture->origin == stream) {
        capture_finish(capture, false); /* nobody can end it any more */
    } else if (capture) {
        capture->invalid = true;
        struct capture_stream **link = &capture->streams;
        while (*link != part)
            link = &(*link)->next;
        *link = part->next;
        part_free(part);
    }
    pthread_mutex_unlock(&lock);
}
