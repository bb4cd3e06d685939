/* graph_nodes.c - what nodes do: their parameters, checked and copied. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "simgpu/execution.h"
#include "simgpu/graph.h"
#include "simgpu/launch.h"
#include "simgpu/library.h"
#include "simgpu/memory.h"

/* What is being made of a node's parameters, to be put into it when all is well. */
struct draft {
    CUgraphNodeParams params;
    CUcontext context;
    void *owned;
    size_t owned_bytes;
};

static bool draft_own(struct draft *draft, size_t bytes)
{
    draft->owned = malloc(bytes ? bytes : 1);
    draft->owned_bytes = bytes;
    return draft->owned != NULL;
}

/* --- Kernels --------------------------------------------------------------------------------------- */

/* A function's arguments: pointers to them, and behind those the arguments themselves. */
static CUresult arguments_copy(struct draft *draft, CUfunction function, void **parameters, void **extra)
{
    const struct sim_kernel_image *image = function->image;
    const char *buffer = NULL;
    size_t buffer_bytes = 0;
    SIM_REQUIRE(!(parameters && extra));
    if (extra)
        SIM_TRY(launch_extra_read(extra, &buffer, &buffer_bytes));
    SIM_REQUIRE(parameters || extra || image->parameter_count == 0);
    size_t pointers = image->parameter_count * sizeof(void *);
    if (!draft_own(draft, pointers + image->parameter_bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    void **to = draft->owned;
    char *bytes = (char *)draft->owned + pointers;
    for (uint32_t i = 0; i < image->parameter_count; i++) {
        const struct sim_parameter *parameter = &image->parameters[i];
        SIM_REQUIRE(!extra || parameter->offset_bytes + parameter->size_bytes <= buffer_bytes);
        const void *from = extra ? buffer + parameter->offset_bytes : parameters[i];
        SIM_REQUIRE(from);
        to[i] = memcpy(bytes + parameter->offset_bytes, from, parameter->size_bytes);
    }
    draft->params.kernel.kernelParams = image->parameter_count ? to : NULL;
    draft->params.kernel.extra = NULL;
    return CUDA_SUCCESS;
}

static CUresult draft_kernel(struct draft *draft, const CUgraphNodeParams *given)
{
    const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &given->kernel;
    CUcontext context = kernel->ctx ? kernel->ctx : draft->context;
    SIM_REQUIRE(!kernel->func != !kernel->kern); /* one of them */
    SIM_TRY(context_check(context));
    CUfunction function;
    SIM_TRY(
        function_resolve(kernel->func ? kernel->func : (CUfunction)(void *)kernel->kern, context, &function));
    draft->context = function->module->context;
    SIM_TRY(launch_check(function, (const unsigned[3]){kernel->gridDimX, kernel->gridDimY, kernel->gridDimZ},
                         (const unsigned[3]){kernel->blockDimX, kernel->blockDimY, kernel->blockDimZ},
                         kernel->sharedMemBytes));
    SIM_TRY(arguments_copy(draft, function, kernel->kernelParams, kernel->extra));
    draft->params.kernel.func = function;
    draft->params.kernel.kern = NULL; /* named by its function from here on */
    draft->params.kernel.ctx = draft->context;
    return CUDA_SUCCESS;
}

void graph_node_set_attribute(CUgraphNode node, CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
    if (!node->attributes && !(node->attributes = calloc(1, sizeof(*node->attributes))))
        return;
    node->attributes->values[id] = *value;
    node->attributes->set |= 1u << id;
}

/* --- Copies and fills ------------------------------------------------------------------------------ */

static CUresult operand_check(CUmemorytype type, const void *host, CUdeviceptr device, CUarray array)
{
    struct memory_allocation allocation;
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        return host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEMORYTYPE_DEVICE:
        return memory_find(device, &allocation) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEMORYTYPE_UNIFIED:
        return device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEMORYTYPE_ARRAY:
        return array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult draft_memcpy(struct draft *draft, const CUgraphNodeParams *given)
{
    const CUDA_MEMCPY3D *copy = &given->memcpy.copyParams;
    SIM_REQUIRE(given->memcpy.flags == 0 && given->memcpy.reserved == 0);
    SIM_REQUIRE(copy->WidthInBytes > 0 && copy->Height > 0 && copy->Depth > 0);
    SIM_REQUIRE(copy->srcLOD == 0 && copy->dstLOD == 0);
    SIM_TRY(operand_check(copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcArray));
    SIM_TRY(operand_check(copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstArray));
    if (given->memcpy.copyCtx)
        draft->context = given->memcpy.copyCtx;
    draft->params.memcpy.copyCtx = draft->context;
    return context_check(draft->context);
}

static CUresult draft_memset(struct draft *draft, const CUgraphNodeParams *given)
{
    const CUDA_MEMSET_NODE_PARAMS_v2 *fill = &given->memset;
    struct memory_allocation allocation;
    size_t row_bytes;
    SIM_REQUIRE(fill->elementSize == 1 || fill->elementSize == 2 || fill->elementSize == 4);
    SIM_REQUIRE(fill->width > 0 && fill->height > 0 && fill->dst % fill->elementSize == 0);
    SIM_REQUIRE(!__builtin_mul_overflow(fill->width, fill->elementSize, &row_bytes));
    SIM_REQUIRE(fill->height == 1 || (fill->pitch >= row_bytes && fill->pitch % fill->elementSize == 0));
    SIM_REQUIRE(memory_find(fill->dst, &allocation));
    if (fill->ctx)
        draft->context = fill->ctx;
    draft->params.memset.ctx = draft->context;
    return context_check(draft->context);
}

/* --- The others ------------------------------------------------------------------------------------ */

static CUresult event_check(CUevent event, CUcontext *context)
{
    if (!event || atomic_load(&event->kind) != SIM_EVENT)
        return CUDA_ERROR_INVALID_HANDLE;
    *context = event->context;
    return CUDA_SUCCESS;
}

static CUresult draft_memop(struct draft *draft, const CUgraphNodeParams *given)
{
    const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *batch = &given->memOp;
    SIM_REQUIRE(batch->count > 0 && batch->count <= 256 && batch->paramArray && batch->flags == 0);
    SIM_TRY(context_check(batch->ctx));
    draft->context = batch->ctx;
    if (!draft_own(draft, batch->count * sizeof(*batch->paramArray)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    draft->params.memOp.paramArray = memcpy(draft->owned, batch->paramArray, draft->owned_bytes);
    return CUDA_SUCCESS;
}

/* The GPU of an allocation node; its other locations have to be there too. */
static CUresult alloc_check(const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *alloc, unsigned *gpu)
{
    SIM_REQUIRE(alloc->bytesize > 0);
    SIM_REQUIRE(alloc->poolProps.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                alloc->poolProps.handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
                alloc->poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    SIM_TRY(device_check(alloc->poolProps.location.id));
    SIM_REQUIRE(alloc->accessDescCount == 0 || alloc->accessDescs);
    for (size_t i = 0; i < alloc->accessDescCount; i++) {
        SIM_REQUIRE(alloc->accessDescs[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                    alloc->accessDescs[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        SIM_TRY(device_check(alloc->accessDescs[i].location.id));
    }
    *gpu = simulator.visible[alloc->poolProps.location.id];
    return CUDA_SUCCESS;
}

static CUresult draft_alloc(struct draft *draft, const CUgraphNodeParams *given)
{
    const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *alloc = &given->alloc;
    unsigned gpu;
    SIM_TRY(alloc_check(alloc, &gpu));
    if (!draft_own(draft, alloc->accessDescCount * sizeof(*alloc->accessDescs)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (alloc->accessDescCount)
        draft->params.alloc.accessDescs = memcpy(draft->owned, alloc->accessDescs, draft->owned_bytes);
    else
        draft->params.alloc.accessDescs = NULL;
    return CUDA_SUCCESS;
}

static CUresult draft_make(struct draft *draft, const CUgraphNodeParams *given)
{
    draft->params = *given;
    switch (given->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return draft_kernel(draft, given);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return draft_memcpy(draft, given);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return draft_memset(draft, given);
    case CU_GRAPH_NODE_TYPE_HOST:
        return given->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return event_check(given->eventWait.event, &draft->context);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return event_check(given->eventRecord.event, &draft->context);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return draft_memop(draft, given);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return draft_alloc(draft, given);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return graph_memory_at(given->free.dptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        return CUDA_ERROR_NOT_SUPPORTED; /* there are no external semaphores here */
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

void graph_node_clear(CUgraphNode node)
{
    for (unsigned i = 0; i < node->body_count; i++)
        graph_free(node->bodies[i]);
    free(node->bodies);
    free(node->owned);
    node->bodies = NULL;
    node->owned = NULL;
    node->body_count = 0;
    node->owned_bytes = 0;
    if (node->memory)
        graph_memory_release(node->memory);
    node->memory = NULL;
}

CUresult graph_node_set(CUgraphNode node, const CUgraphNodeParams *params, CUcontext context)
{
    struct draft draft = {.context = context};
    CUresult result = draft_make(&draft, params);
    if (result != CUDA_SUCCESS) {
        free(draft.owned);
        return result;
    }
    free(node->owned);
    node->params = draft.params;
    node->context = draft.context;
    node->owned = draft.owned;
    node->owned_bytes = draft.owned_bytes;
    return CUDA_SUCCESS;
}

/* --- Nodes with bodies ----------------------------------------------------------------------------- */

static CUresult bodies_make(CUgraphNode node, unsigned count)
{
    node->bodies = calloc(count, sizeof(*node->bodies));
    if (!node->bodies)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

static CUresult body_add(CUgraphNode node, CUgraph body)
{
    if (!body)
        return CUDA_ERROR_OUT_OF_MEMORY;
    body->parent = node;
    node->bodies[node->body_count++] = body;
    return CUDA_SUCCESS;
}

static CUresult child_make(CUgraphNode node, CUgraphNodeParams *params)
{
    CUgraph child = params->graph.graph;
    SIM_TRY(graph_check(child));
    SIM_REQUIRE(child != node->graph && !child->capturing);
    bool is_moved = params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    SIM_REQUIRE(is_moved || params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
    if (!is_moved) {
        if (graph_has_memory(child))
            return CUDA_ERROR_NOT_SUPPORTED;
        SIM_TRY(graph_copy(child, false, &child));
    } else {
        SIM_REQUIRE(!child->parent && atomic_load(&child->exec_count) == 0);
    }
    CUresult result = bodies_make(node, 1);
    if (result == CUDA_SUCCESS)
        return body_add(node, child);
    if (!is_moved)
        graph_free(child);
    return result;
}

static CUresult conditional_make(CUgraphNode node, CUgraphNodeParams *params, CUcontext context)
{
    CUDA_CONDITIONAL_NODE_PARAMS *conditional = &params->conditional;
    SIM_REQUIRE(graph_condition_exists(conditional->handle, node->graph));
    switch (conditional->type) {
    case CU_GRAPH_COND_TYPE_IF:
        SIM_REQUIRE(conditional->size == 1 || conditional->size == 2); /* the second: else */
        break;
    case CU_GRAPH_COND_TYPE_WHILE:
        SIM_REQUIRE(conditional->size == 1);
        break;
    case CU_GRAPH_COND_TYPE_SWITCH:
        SIM_REQUIRE(conditional->size > 0 && conditional->size <= UINT16_MAX);
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    node->context = conditional->ctx ? conditional->ctx : context;
    SIM_TRY(context_check(node->context));
    SIM_TRY(bodies_make(node, conditional->size));
    for (unsigned i = 0; i < conditional->size; i++)
        SIM_TRY(body_add(node, graph_make()));
    conditional->phGraph_out = node->bodies;
    node->params = *params;
    return CUDA_SUCCESS;
}

/* --- Adding ---------------------------------------------------------------------------------------- */

static CUresult node_fill(CUgraphNode node, CUgraphNodeParams *params, CUcontext context)
{
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_GRAPH:
        SIM_TRY(child_make(node, params));
        node->params = *params;
        node->params.graph.graph = node->bodies[0];
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return conditional_make(node, params, context);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
        unsigned gpu;
        uint64_t address;
        SIM_TRY(graph_node_set(node, params, context));
        SIM_TRY(alloc_check(&params->alloc, &gpu));
        SIM_TRY(graph_memory_make(gpu, params->alloc.bytesize, &node->memory, &address));
        params->alloc.dptr = node->params.alloc.dptr = address;
        return CUDA_SUCCESS;
    }
    default:
        return graph_node_set(node, params, context);
    }
}

/* Whether a node of the graph frees that address already. */
static bool is_freed(CUgraph graph, CUdeviceptr address)
{
    for (size_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
            graph->nodes[i]->params.free.dptr == address)
            return true;
    return false;
}

CUresult graph_node_add(CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                        size_t count, CUgraphNodeParams *params, CUcontext context, CUgraphNode *node_out)
{
    CUgraphNode node;
    SIM_REQUIRE(params->type != CU_GRAPH_NODE_TYPE_MEM_FREE || !is_freed(graph, params->free.dptr));
    SIM_TRY(graph_node_make(graph, dependencies, edges, count, &node));
    CUresult result = node_fill(node, params, context);
    if (result != CUDA_SUCCESS) {
        graph_node_drop(node);
        return result;
    }
    *node_out = node;
    return CUDA_SUCCESS;
}

/* A pointer into `from`'s block, in `to`'s. */
static void *rebase(const void *pointer, CUgraphNode to, CUgraphNode from)
{
    return (char *)to->owned + ((const char *)pointer - (const char *)from->owned);
}

CUresult graph_node_copy(CUgraphNode node, CUgraphNode from, bool with_memory)
{
    node->params = from->params;
    node->context = from->context;
    if (from->attributes) {
        node->attributes = malloc(sizeof(*node->attributes));
        if (!node->attributes)
            return CUDA_ERROR_OUT_OF_MEMORY;
        *node->attributes = *from->attributes;
    }
    if (from->owned) {
        node->owned = malloc(from->owned_bytes ? from->owned_bytes : 1);
        if (!node->owned)
            return CUDA_ERROR_OUT_OF_MEMORY;
        node->owned_bytes = from->owned_bytes;
        memcpy(node->owned, from->owned, from->owned_bytes);
        if (node->params.type == CU_GRAPH_NODE_TYPE_KERNEL && from->params.kernel.kernelParams) {
            void **pointers = node->owned;
            uint32_t count =
                from->params.kernel.func->image ? from->params.kernel.func->image->parameter_count : 0;
            node->params.kernel.kernelParams = pointers;
            for (uint32_t i = 0; i < count; i++)
                pointers[i] = rebase(pointers[i], node, from);
        } else if (node->params.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
            node->params.memOp.paramArray = node->owned;
        } else if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && node->params.alloc.accessDescs) {
            node->params.alloc.accessDescs = node->owned;
        }
    }
    if (from->body_count) {
        SIM_TRY(bodies_make(node, from->body_count));
        for (unsigned i = 0; i < from->body_count; i++) {
            CUgraph body;
            SIM_TRY(graph_copy(from->bodies[i], with_memory, &body));
            SIM_TRY(body_add(node, body));
        }
        if (node->params.type == CU_GRAPH_NODE_TYPE_GRAPH)
            node->params.graph.graph = node->bodies[0];
        else
            node->params.conditional.phGraph_out = node->bodies;
    }
    if (with_memory && from->memory) {
        node->memory = from->memory;
        graph_memory_retain(node->memory);
    }
    return CUDA_SUCCESS;
}

/* --- The driver's calls ---------------------------------------------------------------------------- */

/* Nodes that name no context belong to the current one; some need none. */
static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
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
    return add(node, graph, dependencies, edges, count, params);
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
    memcpy(&params.kernel, kernel, sizeof(params.kernel)); /* the same but by name */
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

#define ADD(...) add(node, graph, dependencies, NULL, count, &__VA_ARGS__)

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
    memcpy(&params.alloc, alloc, sizeof(params.alloc)); /* the same but by name */
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

/* What allocates cannot be another allocation, and bodies are changed as graphs. */
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
    memcpy(batch, &node->params.memOp, sizeof(*batch)); /* the same but by name */
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
    memcpy(alloc, &node->params.alloc, sizeof(*alloc)); /* the same but by name */
    return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *pointer)
{
    SIM_TRY(node_of_type(node, CU_GRAPH_NODE_TYPE_MEM_FREE));
    SIM_REQUIRE(pointer);
    *pointer = node->params.free.dptr;
    return CUDA_SUCCESS;
}
