/* graph_nodes.c - what nodes do: their parameters, checked and copied. */
#include <stdlib.h>
#include <string.h>

#include "simgpu/code/launch.h"
#include "simgpu/code/library.h"
#include "simgpu/graph/graph.h"
#include "simgpu/memory/memory.h"
#include "simgpu/time/semaphores.h"

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
    SIM_REQUIRE(!kernel->func != !kernel->kern); /* exactly one of them */
    SIM_TRY(context_check(context));
    CUfunction function;
    SIM_TRY(
        function_resolve(kernel->func ? kernel->func : (CUfunction)(void *)kernel->kern, context, &function));
    draft->context = function->module->context;
    SIM_TRY(launch_check(function, (const unsigned[3]){kernel->gridDimX, kernel->gridDimY, kernel->gridDimZ},
                         (const unsigned[3]){kernel->blockDimX, kernel->blockDimY, kernel->blockDimZ},
                         kernel->sharedMemBytes));
    SIM_TRY(module_load_code(function->module));
    SIM_TRY(context_need_local(function->module->context, function->image->local_bytes));
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

/* Point such a node's parameters to what it owns: semaphores, and behind them what each is to be. */
static void semaphores_point(CUgraphNodeParams *params, void *owned)
{
    if (params->type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL) {
        params->extSemSignal.extSemArray = owned;
        params->extSemSignal.paramsArray =
            (void *)(params->extSemSignal.extSemArray + params->extSemSignal.numExtSems);
    } else {
        params->extSemWait.extSemArray = owned;
        params->extSemWait.paramsArray =
            (void *)(params->extSemWait.extSemArray + params->extSemWait.numExtSems);
    }
}

static CUresult semaphores_own(struct draft *draft, const CUexternalSemaphore *semaphores, const void *given,
                               unsigned count, size_t given_bytes)
{
    SIM_TRY(context_check(draft->context));
    if (!draft_own(draft, count * (sizeof(*semaphores) + given_bytes)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(draft->owned, semaphores, count * sizeof(*semaphores));
    memcpy((char *)draft->owned + count * sizeof(*semaphores), given, count * given_bytes);
    semaphores_point(&draft->params, draft->owned);
    return CUDA_SUCCESS;
}

/* The GPU of an allocation node; its other locations have to exist too. */
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
        SIM_TRY(semaphores_signal_check(&given->extSemSignal));
        return semaphores_own(draft, given->extSemSignal.extSemArray, given->extSemSignal.paramsArray,
                              given->extSemSignal.numExtSems, sizeof(*given->extSemSignal.paramsArray));
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        SIM_TRY(semaphores_wait_check(&given->extSemWait));
        return semaphores_own(draft, given->extSemWait.extSemArray, given->extSemWait.paramsArray,
                              given->extSemWait.numExtSems, sizeof(*given->extSemWait.paramsArray));
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
    if (!child || atomic_load(&child->kind) != SIM_GRAPH_OF_EXEC) /* an exec's: its launch is captured */
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

/* The same place in `to`'s block as `pointer` in `from`'s. */
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
        } else if (node->params.type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL ||
                   node->params.type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT) {
            semaphores_point(&node->params, node->owned);
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
