/* graph_update.c - changing executable graphs: single nodes, and a whole exec by another graph. */
#include "simgpu/graph/graph_exec.h"

#include <string.h>

#include "simgpu/code/library.h"
#include "simgpu/memory/memory.h"

/* --- Changing nodes -------------------------------------------------------------------------------- */

/* The exec's copy of a node of the graph that it was made of; also in bodies. */
static CUgraphNode node_find(CUgraph graph, CUgraphNode origin)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        CUgraphNode node = graph->nodes[i];
        if (node->origin == origin)
            return node;
        for (unsigned body = 0; body < node->body_count; body++) {
            CUgraphNode inner = node_find(node->bodies[body], origin);
            if (inner)
                return inner;
        }
    }
    return NULL;
}

/* Whether an end of a copy stays the kind of memory that it was. */
static bool is_same_memory(CUmemorytype type, CUdeviceptr device, CUmemorytype old_type,
                           CUdeviceptr old_device)
{
    struct memory_allocation now, before;
    if (type != old_type)
        return false;
    if (type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
        return true;
    bool is_known = memory_find(device, &now), was_known = memory_find(old_device, &before);
    if (!is_known || !was_known)
        return !was_known || is_known; /* what it was may be freed by now */
    bool is_host = now.kind == MEMORY_HOST || now.kind == MEMORY_REGISTERED;
    bool was_host = before.kind == MEMORY_HOST || before.kind == MEMORY_REGISTERED;
    return is_host == was_host && now.gpu == before.gpu;
}

/* What an executable node cannot become (driver API reference: limits of graph update). */
static CUresult change_check(CUgraphNode node, const CUgraphNodeParams *params, CUcontext context,
                             CUgraphExecUpdateResult *why)
{
    const CUgraphNodeParams *old = &node->params;
    *why = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    SIM_REQUIRE(params->type == old->type);
    *why = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
        const CUDA_MEMCPY3D *now = &params->memcpy.copyParams, *before = &old->memcpy.copyParams;
        SIM_REQUIRE(context == node->context);
        if (memcmp(now, before, sizeof(*now)) == 0)
            return CUDA_SUCCESS;
        SIM_REQUIRE(now->Height == 1 && now->Depth == 1 && before->Height == 1 && before->Depth == 1);
        SIM_REQUIRE(
            is_same_memory(now->srcMemoryType, now->srcDevice, before->srcMemoryType, before->srcDevice));
        SIM_REQUIRE(
            is_same_memory(now->dstMemoryType, now->dstDevice, before->dstMemoryType, before->dstDevice));
        return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET:
        SIM_REQUIRE(context == node->context);
        SIM_REQUIRE((params->memset.height == 1 && old->memset.height == 1) ||
                    (params->memset.width == old->memset.width &&
                     params->memset.height == old->memset.height &&
                     params->memset.pitch == old->memset.pitch));
        SIM_REQUIRE(
            is_same_memory(CU_MEMORYTYPE_DEVICE, params->memset.dst, CU_MEMORYTYPE_DEVICE, old->memset.dst));
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        SIM_REQUIRE(params->alloc.bytesize == old->alloc.bytesize && params->alloc.dptr == old->alloc.dptr);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        SIM_REQUIRE(params->free.dptr == old->free.dptr);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
        SIM_REQUIRE(params->extSemSignal.numExtSems == old->extSemSignal.numExtSems);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        SIM_REQUIRE(params->extSemWait.numExtSems == old->extSemWait.numExtSems);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        SIM_REQUIRE(params->conditional.type == old->conditional.type &&
                    params->conditional.size == old->conditional.size);
        return CUDA_SUCCESS;
    default:
        return CUDA_SUCCESS;
    }
}

static CUresult kernel_change_check(CUgraphNode node, const CUgraphNodeParams *params,
                                    CUgraphExecUpdateResult *why)
{
    CUcontext context = params->kernel.ctx ? params->kernel.ctx : node->context;
    CUfunction function;
    *why = CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    SIM_REQUIRE(params->kernel.func || params->kernel.kern);
    SIM_TRY(
        function_resolve(params->kernel.func ? params->kernel.func : (CUfunction)(void *)params->kernel.kern,
                         context, &function));
    SIM_REQUIRE(function->module->context == node->context);
    return CUDA_SUCCESS;
}

static CUresult exec_node(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, CUgraphNode *own)
{
    SIM_TRY(graph_exec_check(exec));
    SIM_TRY(graph_node_check(node));
    *own = node_find(exec->graph, node);
    return *own && (*own)->params.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult exec_set(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams params)
{
    CUgraphNode own;
    CUgraphExecUpdateResult why;
    SIM_TRY(exec_node(exec, node, params.type, &own));
    if (params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || params.type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
        params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        return CUDA_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&exec->lock);
    CUcontext context = own->context;
    if (params.type == CU_GRAPH_NODE_TYPE_MEMCPY && params.memcpy.copyCtx)
        context = params.memcpy.copyCtx;
    if (params.type == CU_GRAPH_NODE_TYPE_MEMSET && params.memset.ctx)
        context = params.memset.ctx;
    CUresult result = change_check(own, &params, context, &why);
    if (result == CUDA_SUCCESS && params.type == CU_GRAPH_NODE_TYPE_KERNEL)
        result = kernel_change_check(own, &params, &why);
    if (result == CUDA_SUCCESS)
        result = graph_node_set(own, &params, context);
    pthread_mutex_unlock(&exec->lock);
    return result;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(kernel);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    memcpy(&params.kernel, kernel, sizeof(params.kernel)); /* the same but for its name */
    return exec_set(exec, node, params);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *kernel)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(kernel);
    CUDA_KERNEL_NODE_PARAMS params = {0};
    memcpy(&params, kernel, sizeof(*kernel)); /* the first form has no kernel and no context */
    return cuGraphExecKernelNodeSetParams_v2(exec, node, &params);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy,
                                        CUcontext context)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(copy);
    return exec_set(exec, node,
                    (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                                        .memcpy = {.copyCtx = context, .copyParams = *copy}});
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(fill);
    return exec_set(exec, node,
                    (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMSET,
                                        .memset = {fill->dst, fill->pitch, fill->value, fill->elementSize,
                                                   fill->width, fill->height, context}});
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *host)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(host);
    return exec_set(exec, node,
                    (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_HOST, .host = {host->fn, host->userData}});
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    return exec_set(exec, node,
                    (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = {event}});
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    return exec_set(exec, node,
                    (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {event}});
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS *batch)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(batch);
    return exec_set(
        exec, node,
        (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                            .memOp = {batch->ctx, batch->count, batch->paramArray, batch->flags}});
}

/* Only these nodes can be disabled; the others are there for their effect on what follows. */
static CUresult exec_switchable(CUgraphExec exec, CUgraphNode node, CUgraphNode *own)
{
    SIM_TRY(graph_exec_check(exec));
    SIM_TRY(graph_node_check(node));
    *own = node_find(exec->graph, node);
    SIM_REQUIRE(*own);
    CUgraphNodeType type = (*own)->params.type;
    SIM_REQUIRE(type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
                type == CU_GRAPH_NODE_TYPE_MEMSET);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int is_enabled)
{
    CUgraphNode own;
    SIM_TRY(exec_switchable(exec, node, &own));
    pthread_mutex_lock(&exec->lock);
    own->disabled = !is_enabled;
    pthread_mutex_unlock(&exec->lock);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *is_enabled)
{
    CUgraphNode own;
    SIM_TRY(exec_switchable(exec, node, &own));
    SIM_REQUIRE(is_enabled);
    *is_enabled = !own->disabled;
    return CUDA_SUCCESS;
}

/* --- Changing the whole ---------------------------------------------------------------------------- */

static bool is_same_attributes(const struct graph_attributes *one, const struct graph_attributes *other)
{
    static const struct graph_attributes none;
    return memcmp(one ? one : &none, other ? other : &none, sizeof(none)) == 0;
}

/* Nodes correspond by the order they were added in, as a capture done again gives the same order. Sets the
 * first difference that an update cannot make. */
static CUresult update_check(CUgraph own, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    SIM_REQUIRE(own->node_count == graph->node_count);
    for (size_t i = 0; i < graph->node_count; i++) {
        CUgraphNode node = graph->nodes[i], mine = own->nodes[i];
        info->errorNode = node;
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        SIM_REQUIRE(node->params.type == mine->params.type);
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        SIM_REQUIRE(node->dependency_count == mine->dependency_count && node->body_count == mine->body_count);
        for (size_t j = 0; j < node->dependency_count; j++) {
            info->errorFromNode = node->dependencies[j].from;
            SIM_REQUIRE(node->dependencies[j].from->index == mine->dependencies[j].from->index);
            SIM_REQUIRE(memcmp(&node->dependencies[j].data, &mine->dependencies[j].data,
                               sizeof(CUgraphEdgeData)) == 0);
        }
        info->errorFromNode = NULL;
        SIM_TRY(change_check(mine, &node->params, node->context, &info->result));
        if (node->params.type == CU_GRAPH_NODE_TYPE_KERNEL) {
            SIM_TRY(kernel_change_check(mine, &node->params, &info->result));
            info->result = CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
            SIM_REQUIRE(is_same_attributes(node->attributes, mine->attributes));
        }
        for (unsigned body = 0; body < node->body_count; body++)
            SIM_TRY(update_check(mine->bodies[body], node->bodies[body], info));
        info->errorNode = NULL;
    }
    info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    return CUDA_SUCCESS;
}

static CUresult update_apply(CUgraph own, CUgraph graph)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        CUgraphNode node = graph->nodes[i], mine = own->nodes[i];
        for (unsigned body = 0; body < node->body_count; body++)
            SIM_TRY(update_apply(mine->bodies[body], node->bodies[body]));
        if (node->body_count == 0 && !node->memory)
            SIM_TRY(graph_node_set(mine, &node->params, node->context));
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    SIM_TRY(graph_exec_check(exec));
    SIM_REQUIRE(info);
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    SIM_TRY(graph_check(graph));
    SIM_REQUIRE(!graph->capturing);
    pthread_mutex_lock(&exec->lock);
    CUresult result = update_check(exec->graph, graph, info);
    if (result != CUDA_SUCCESS) {
        result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    } else {
        result = update_apply(exec->graph, graph);
        if (result != CUDA_SUCCESS)
            info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
    }
    pthread_mutex_unlock(&exec->lock);
    return result;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *wrong, CUgraphExecUpdateResult *why)
{
    CUgraphExecUpdateResultInfo info;
    SIM_TRY(graph_exec_check(exec));
    SIM_REQUIRE(why);
    CUresult result = cuGraphExecUpdate_v2(exec, graph, &info);
    *why = info.result;
    if (wrong)
        *wrong = info.errorNode;
    return result;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    CUgraphNode own;
    CUgraphExecUpdateResultInfo info = {0};
    SIM_TRY(exec_node(exec, node, CU_GRAPH_NODE_TYPE_GRAPH, &own));
    SIM_TRY(graph_check(child));
    pthread_mutex_lock(&exec->lock);
    CUresult result = update_check(own->bodies[0], child, &info);
    if (result == CUDA_SUCCESS)
        result = update_apply(own->bodies[0], child);
    pthread_mutex_unlock(&exec->lock);
    return result;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
    SIM_TRY(graph_exec_check(exec));
    SIM_REQUIRE(params);
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return cuGraphExecChildGraphNodeSetParams(exec, node, params->graph.graph);
    return exec_set(exec, node, *params);
}
