#include "intercept/submit/peer_nodes.h"

#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"
#include "intercept/resolve/report.h"
#include "intercept/submit/copy_work.h"
#include "intercept/submit/peer_copies.h"

/* A stream that is being captured tells which nodes the next one would come after: here, the one that was captured. */
static bool find_captured(CUstream stream, CUgraphNode *node)
{
    CUstreamCaptureStatus status;
    const CUgraphNode *last;
    size_t count;
    if (real(cuStreamGetCaptureInfo_v2)(stream, &status, NULL, NULL, &last, &count) != CUDA_SUCCESS ||
        count != 1)
        return false;
    *node = last[0];
    return true;
}

static bool capture_into(CUstream stream, CUgraphNode *node, const struct node_place *place,
                         const CUDA_MEMCPY3D_PEER *box)
{
    CUgraph graph;
    if (!real(cuStreamBeginCaptureToGraph) || !real(cuStreamGetCaptureInfo_v2) ||
        real(cuStreamBeginCaptureToGraph)(stream, place->graph, place->before, place->edges, place->count,
                                          CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS)
        return false;
    bool is_added = real(cuMemcpy3DPeerAsync)(box, stream) == CUDA_SUCCESS && find_captured(stream, node);
    return real(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS && is_added;
}

static bool capture_child(CUstream stream, CUgraphNode *node, const struct node_place *place,
                          const CUDA_MEMCPY3D_PEER *box)
{
    CUgraph child = NULL;
    if (place->edges || !real(cuGraphAddChildGraphNode) || !real(cuGraphDestroy) ||
        real(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS)
        return false;
    bool is_captured = real(cuMemcpy3DPeerAsync)(box, stream) == CUDA_SUCCESS;
    is_captured = real(cuStreamEndCapture)(stream, &child) == CUDA_SUCCESS && is_captured;
    bool is_added = is_captured && real(cuGraphAddChildGraphNode)(node, place->graph, place->before,
                                                                  place->count, child) == CUDA_SUCCESS;
    if (child)
        real(cuGraphDestroy)(child); /* the node has one of its own */
    return is_added;
}

static enum peer_way way_of(CUgraphNodeParams *work, struct peer_contexts *contexts)
{
    CUcontext *named = peer_copies_are_possible() ? copy_work_context(work) : NULL;
    *contexts = (struct peer_contexts){NULL, NULL};
    return named ? peer_copies_way(work, *named, contexts) : PEER_AS_GIVEN;
}

static bool has_one_context(const struct peer_contexts *contexts)
{
    return contexts->to && contexts->to == contexts->from;
}

/* Whether no one context can do it. */
static bool is_between(CUgraphNodeParams *work, struct peer_contexts *contexts)
{
    return way_of(work, contexts) == PEER_BETWEEN && !has_one_context(contexts);
}

/* In the context that carries out the copy. */
static bool add_in_context(CUgraphNode *node, const struct node_place *place, const CUDA_MEMCPY3D_PEER *box)
{
    CUstream stream;
    if (real(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return false;
    bool is_added = capture_into(stream, node, place, box) || capture_child(stream, node, place, box);
    real(cuStreamDestroy_v2)(stream);
    return is_added;
}

bool peer_nodes_add(CUgraphNode *node, const struct node_place *place, CUgraphNodeParams *work,
                    CUresult *answer)
{
    struct own_calls calls;
    struct peer_contexts contexts;
    if (!node || !is_between(work, &contexts) || !real(cuStreamBeginCapture_v2) ||
        !own_calls_begin(&calls, *copy_work_context(work)))
        return false;
    CUDA_MEMCPY3D_PEER box = peer_copies_box(work, &contexts);
    bool is_added = add_in_context(node, place, &box);
    own_calls_end(&calls);
    if (is_added)
        *answer = CUDA_SUCCESS;
    return is_added;
}

CUcontext peer_nodes_context(CUgraphNodeParams *work)
{
    struct peer_contexts contexts;
    bool is_another = way_of(work, &contexts) != PEER_AS_GIVEN && has_one_context(&contexts);
    CUcontext *named = copy_work_context(work);
    return is_another ? contexts.to : named ? *named : NULL;
}

CUgraphNodeParams *peer_nodes_place(CUgraphNodeParams *params, CUgraphNodeParams *work)
{
    CUcontext *named = copy_work_context(work), context = peer_nodes_context(work);
    if (!params || !named || *named == context)
        return params;
    *named = context;
    return work;
}

bool peer_nodes_refuse(CUgraphNodeParams *work, CUresult *answer)
{
    static atomic_bool said;
    struct peer_contexts contexts;
    if (!is_between(work, &contexts))
        return false;
    report_once(
        &said,
        "a node of a graph was to be set to a copy between two GPUs that cannot reach each other: that is "
        "refused where memory can leave the GPU; add such a copy as a new node");
    *answer = CUDA_ERROR_INVALID_VALUE;
    return true;
}

bool peer_nodes_set(CUgraphNode node, CUgraphNodeParams *work, CUresult *answer)
{
    struct peer_contexts contexts;
    way_of(work, &contexts);
    if (!has_one_context(&contexts) || !real(cuGraphNodeSetParams))
        return peer_nodes_refuse(work, answer);
    *copy_work_context(work) = contexts.to;
    *answer = real(cuGraphNodeSetParams)(node, work);
    return true;
}
