#include "intercept/submit/peer_nodes.h"

#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"
#include "intercept/resolve/report.h"
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

/* In the context that carries out the copy. */
static bool add_in_context(CUgraphNode *node, const struct node_place *place, const CUDA_MEMCPY3D *copy)
{
    CUDA_MEMCPY3D_PEER box;
    CUstream stream;
    if (!peer_copies_name_contexts(copy, &box) ||
        real(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return false;
    bool is_added = capture_into(stream, node, place, &box) || capture_child(stream, node, place, &box);
    real(cuStreamDestroy_v2)(stream);
    return is_added;
}

bool peer_nodes_add(CUgraphNode *node, const struct node_place *place, const CUDA_MEMCPY3D *copy,
                    CUcontext context)
{
    struct own_calls calls;
    if (!node || !copy || !peer_copies_are_possible() || !real(cuMemcpy3DPeerAsync) ||
        !real(cuStreamBeginCapture_v2) || !own_calls_begin(&calls, context))
        return false;
    bool is_added = add_in_context(node, place, copy);
    own_calls_end(&calls);
    return is_added;
}

bool peer_nodes_cannot_set(const CUDA_MEMCPY3D *copy)
{
    static atomic_bool said;
    CUDA_MEMCPY3D_PEER box;
    if (!peer_copies_are_possible() || !peer_copies_name_contexts(copy, &box))
        return false;
    report_once(
        &said,
        "a node of a graph was to be set to a copy between two GPUs that cannot reach each other: that is "
        "refused where memory can leave the GPU; add such a copy as a new node");
    return true;
}
