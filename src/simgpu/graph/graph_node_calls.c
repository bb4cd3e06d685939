/* graph_node_calls.c - the driver's calls on nodes, for each type of node and for all. */
#include <stdlib.h>
#include <string.h>

#include "simgpu/graph/graph.h"

/* --- Adding --------------------------------------------------------------------------------------- */

/* Nodes that name no context belong to the current one; some need none. */
static CUresult add_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                         const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    SIM_TRY(graph_check(graph));
    SIM_REQUIRE(node);
    CUcontext context = NULL;
    SIM_TRY(context_current(&context));
    return graph_node_add(graph, dependencies, edges, count, params, context, node);
}

static bool is_zero(const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (((const char *)bytes)[i])
            return false;
    return true;
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(params && is_zero(params->reserved0, sizeof(params->reserved0)) && params->reserved2 == 0);
    return add_node(node, graph, dependencies, edges, count, params);
}

CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    return cuGraphAddNode_v2(node, graph, dependencies, edges, count, params);
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                        CUgraphNodeParams *params)
{
    return cuGraphAddNode_v2(node, graph, dependencies, NULL, count, params);
}

/* The parameters of one kind of node, in the form that all have. */
#define PARAMS_OF(node_type, member, ...)                                                                    \
    (CUgraphNodeParams)                                                                                      \
    {                                                                                                        \
        .type = CU_GRAPH_NODE_TYPE_##node_type, .member = { __VA_ARGS__ }                                    \
    }

static CUgraphNodeParams kernel_params(const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    memcpy(&params.kernel, kernel, sizeof(params.kernel)); /* the same but for its name */
    return params;
}

/* The first form has no kernel and no context. */
static CUDA_KERNEL_NODE_PARAMS kernel_params_from_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *kernel)
{
    CUDA_KERNEL_NODE_PARAMS params = {0};
    memcpy(&params, kernel, sizeof(*kernel));
    return params;
}

static CUgraphNodeParams memset_params(const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context)
{
    return PARAMS_OF(MEMSET, memset, fill->dst, fill->pitch, fill->value, fill->elementSize, fill->width,
                     fill->height, context);
}

static CUgraphNodeParams memop_params(const CUDA_BATCH_MEM_OP_NODE_PARAMS *batch)
{
    return PARAMS_OF(BATCH_MEM_OP, memOp, batch->ctx, batch->count, batch->paramArray, batch->flags);
}

#define ADD(...) add_node(node, graph, dependencies, NULL, count, &__VA_ARGS__)

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(kernel);
    CUgraphNodeParams params = kernel_params(kernel);
    return ADD(params);
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *kernel)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(kernel);
    CUDA_KERNEL_NODE_PARAMS params = kernel_params_from_v1(kernel);
    return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &params);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_MEMCPY3D *copy, CUcontext context)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(copy);
    return ADD(PARAMS_OF(MEMCPY, memcpy, .copyCtx = context, .copyParams = *copy));
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(fill);
    CUgraphNodeParams params = memset_params(fill, context);
    return ADD(params);
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                            const CUDA_HOST_NODE_PARAMS *host)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(host);
    return ADD(PARAMS_OF(HOST, host, host->fn, host->userData));
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  size_t count, CUgraph child)
{
    return ADD(PARAMS_OF(GRAPH, graph, child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE));
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return ADD(params);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                   size_t count, CUevent event)
{
    return ADD(PARAMS_OF(EVENT_RECORD, eventRecord, event));
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, CUevent event)
{
    return ADD(PARAMS_OF(WAIT_EVENT, eventWait, event));
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *batch)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(batch);
    CUgraphNodeParams params = memop_params(batch);
    return ADD(params);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *alloc)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(alloc);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    memcpy(&params.alloc, alloc, sizeof(params.alloc)); /* the same but for its name */
    SIM_TRY(ADD(params));
    alloc->dptr = params.alloc.dptr;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, CUdeviceptr pointer)
{
    return ADD(PARAMS_OF(MEM_FREE, free, pointer));
}

/* --- Asking and setting ---------------------------------------------------------------------------- */

static CUresult node_of_type(CUgraphNode node, CUgraphNodeType type)
{
    SIM_TRY(graph_node_check(node));
    return node->params.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* An allocation cannot become another one, and bodies are changed as graphs. */
static CUresult set(CUgraphNode node, const CUgraphNodeParams *params)
{
    SIM_TRY(node_of_type(node, params->type));
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || params->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
        params->type == CU_GRAPH_NODE_TYPE_GRAPH || params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        return CUDA_ERROR_NOT_SUPPORTED;
    return graph_node_set(node, params, node->context);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
    SIM_TRY(graph_node_check(node));
    SIM_REQUIRE(params && is_zero(params->reserved0, sizeof(params->reserved0)) && params->reserved2 == 0);
    return set(node, params);
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams *params)
{
    return cuGraphNodeSetParams(node, params);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *kernel)
{
    SIM_TRY(node_of_type(node, CU_GRAPH_NODE_TYPE_KERNEL));
    SIM_REQUIRE(kernel);
    memcpy(kernel, &node->params.kernel, sizeof(*kernel));
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *kernel)
{
    CUDA_KERNEL_NODE_PARAMS params;
    SIM_TRY(cuGraphKernelNodeGetParams_v2(node, &params));
    SIM_REQUIRE(kernel);
    memcpy(kernel, &params, sizeof(*kernel));
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(kernel);
    CUgraphNodeParams params = kernel_params(kernel);
    return set(node, &params);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *kernel)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(kernel);
    CUDA_KERNEL_NODE_PARAMS params = kernel_params_from_v1(kernel);
    return cuGraphKernelNodeSetParams_v2(node, &params);
}

static CUresult attribute_check(CUgraphNode node, CUkernelNodeAttrID id)
{
    SIM_TRY(node_of_type(node, CU_GRAPH_NODE_TYPE_KERNEL));
    SIM_REQUIRE(id > CU_LAUNCH_ATTRIBUTE_IGNORE && id <= CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING);
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue *value)
{
    SIM_TRY(attribute_check(node, id));
    SIM_REQUIRE(value);
    if (node->attributes)
        *value = node->attributes->values[id];
    else
        memset(value, 0, sizeof(*value));
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                       const CUkernelNodeAttrValue *value)
{
    SIM_TRY(attribute_check(node, id));
    SIM_REQUIRE(value);
    graph_node_set_attribute(node, id, value);
    return node->attributes ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
    SIM_TRY(node_of_type(to, CU_GRAPH_NODE_TYPE_KERNEL));
    SIM_TRY(node_of_type(from, CU_GRAPH_NODE_TYPE_KERNEL));
    SIM_REQUIRE(to->context == from->context);
    if (to == from)
        return CUDA_SUCCESS;
    free(to->attributes);
    to->attributes = NULL;
    if (!from->attributes)
        return CUDA_SUCCESS;
    if (!(to->attributes = malloc(sizeof(*to->attributes))))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *to->attributes = *from->attributes;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *copy)
{
    SIM_TRY(node_of_type(node, CU_GRAPH_NODE_TYPE_MEMCPY));
    SIM_REQUIRE(copy);
    *copy = node->params.memcpy.copyParams;
    copy->reserved0 = copy->reserved1 = NULL;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *copy)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(copy);
    return set(node, &PARAMS_OF(MEMCPY, memcpy, .copyParams = *copy));
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *fill)
{
    SIM_TRY(node_of_type(node, CU_GRAPH_NODE_TYPE_MEMSET));
    SIM_REQUIRE(fill);
    memcpy(fill, &node->params.memset, sizeof(*fill)); /* the second form begins as the first */
    return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(fill);
    CUgraphNodeParams params = memset_params(fill, NULL);
    return set(node, &params);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *host)
{
    SIM_TRY(node_of_type(node, CU_GRAPH_NODE_TYPE_HOST));
    SIM_REQUIRE(host);
    *host = (CUDA_HOST_NODE_PARAMS){.fn = node->params.host.fn, .userData = node->params.host.userData};
    return CUDA_SUCCESS;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *host)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(host);
    return set(node, &PARAMS_OF(HOST, host, host->fn, host->userData));
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
    SIM_TRY(node_of_type(node, CU_GRAPH_NODE_TYPE_GRAPH));
    SIM_REQUIRE(graph);
    *graph = node->bodies[0];
    return CUDA_SUCCESS;
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
    SIM_TRY(node_of_type(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD));
    SIM_REQUIRE(event);
    *event = node->params.eventRecord.event;
    return CUDA_SUCCESS;
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    return set(node, &PARAMS_OF(EVENT_RECORD, eventRecord, event));
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
    SIM_TRY(node_of_type(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT));
    SIM_REQUIRE(event);
    *event = node->params.eventWait.event;
    return CUDA_SUCCESS;
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
    return set(node, &PARAMS_OF(WAIT_EVENT, eventWait, event));
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *batch)
{
    SIM_TRY(node_of_type(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP));
    SIM_REQUIRE(batch);
    memcpy(batch, &node->params.memOp, sizeof(*batch)); /* the same but for its name */
    return CUDA_SUCCESS;
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *batch)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(batch);
    CUgraphNodeParams params = memop_params(batch);
    return set(node, &params);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *alloc)
{
    SIM_TRY(node_of_type(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC));
    SIM_REQUIRE(alloc);
    memcpy(alloc, &node->params.alloc, sizeof(*alloc)); /* the same but for its name */
    return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *pointer)
{
    SIM_TRY(node_of_type(node, CU_GRAPH_NODE_TYPE_MEM_FREE));
    SIM_REQUIRE(pointer);
    *pointer = node->params.free.dptr;
    return CUDA_SUCCESS;
}
