/* graph_device.c - graphs that may be launched from the device. A card's kernels do that through the device
 * runtime; here the built-in kernel gs_relaunch_u32 asks for the one launch that it can name, its own graph's
 * as a tail (cudaGetCurrentGraphExec, cudaStreamGraphTailLaunch). */
#include "simgpu/graph/graph_exec.h"

/* What runs in this thread now, and whether a kernel of it has asked to run again. */
static _Thread_local struct {
    CUgraphExec exec;
    bool asked;
} tail;

static bool is_possible(const struct CUgraphNode_st *node)
{
    switch (node->params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return true;
    default:
        return false;
    }
}

/* Counts the nodes that do something. */
static CUresult check(CUgraph graph, CUcontext *context, size_t *count, CUgraphNode *wrong,
                      CUgraphInstantiateResult *why)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        CUgraphNode node = graph->nodes[i];
        *wrong = node;
        *why = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
        if (!is_possible(node))
            return CUDA_ERROR_NOT_SUPPORTED;
        *why = CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED;
        if (node->context && *context && node->context != *context)
            return CUDA_ERROR_NOT_SUPPORTED;
        if (node->context)
            *context = node->context;
        *wrong = NULL;
        *count += node->params.type != CU_GRAPH_NODE_TYPE_GRAPH;
        for (unsigned body = 0; body < node->body_count; body++)
            SIM_TRY(check(node->bodies[body], context, count, wrong, why));
    }
    return CUDA_SUCCESS;
}

CUresult graph_device_check(CUgraph graph, CUgraphNode *wrong, CUgraphInstantiateResult *why)
{
    CUcontext context = NULL;
    size_t count = 0;
    SIM_TRY(check(graph, &context, &count, wrong, why));
    *why = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    return count ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

void graph_device_begin(CUgraphExec exec)
{
    tail.exec = exec->flags & GRAPH_DEVICE_LAUNCH ? exec : NULL;
    tail.asked = false;
}

bool graph_device_end(void)
{
    tail.exec = NULL;
    return tail.asked;
}

bool graph_device_relaunch(void)
{
    if (tail.exec)
        tail.asked = true;
    return tail.exec;
}
