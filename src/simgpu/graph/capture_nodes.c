/* capture_nodes.c - calls on streams that are being captured: they become nodes, or tell a stream what it follows. */
#include <stdlib.h>

#include "simgpu/graph/capture_state.h"
#include "simgpu/graph/graph.h"
#include "simgpu/time/execution.h"

/* --- Calls that become nodes ----------------------------------------------------------------------- */

/* Set the stream's part in a capture and hold the lock; or return false, without the lock, if it has none. The
 * call itself refuses a handle that is not a stream. */
static bool part_of(CUstream handle, bool per_thread, struct capture_stream **part)
{
    CUcontext context;
    CUstream stream;
    if (stream_find(handle, per_thread, &context, &stream) != CUDA_SUCCESS || !stream)
        return false;
    pthread_mutex_lock(&capture_lock);
    *part = stream->capture;
    if (!*part)
        pthread_mutex_unlock(&capture_lock);
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
    if (!part->tail.count && !capture_tail_add(&part->tail, node, NULL))
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
    pthread_mutex_unlock(&capture_lock);
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
    pthread_mutex_unlock(&capture_lock);
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
    pthread_mutex_unlock(&capture_lock);
    return true;
}

/* --- Events ---------------------------------------------------------------------------------------- */

static void event_forget(CUevent event)
{
    if (!event->capture)
        return;
    capture_tail_free(&event->capture->tail);
    free(event->capture);
    event->capture = NULL;
}

void capture_event_forget(CUevent event)
{
    pthread_mutex_lock(&capture_lock);
    event_forget(event);
    pthread_mutex_unlock(&capture_lock);
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
    if (capture_tail_join(&capture->tail, &part->tail))
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
    pthread_mutex_unlock(&capture_lock);
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
    if (!part && !(part = capture_stream_add(capture, stream)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return capture_tail_join(&part->tail, &event->tail) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
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
    pthread_mutex_lock(&capture_lock);
    bool is_captured = event_wait(event, context, stream, flags, result);
    pthread_mutex_unlock(&capture_lock);
    return is_captured;
}

CUresult capture_event_use(CUevent event)
{
    if (!event->capture)
        return capture_unsafe();
    pthread_mutex_lock(&capture_lock);
    struct capture *capture = event->capture ? capture_of_id(event->capture->capture_id) : NULL;
    if (capture)
        capture->invalid = true;
    pthread_mutex_unlock(&capture_lock);
    return CUDA_ERROR_CAPTURED_EVENT;
}
