/* graph_node.c - nodes of any kind by one struct. It is the driver's too, but for four of the kinds. */
#include "simcudart/simcudart.h"

#include <string.h>

struct cudaGraphNodeParams {
    int type; /* numbered as the driver's */
    int reserved[3];
    union {
        long long words[29];
        struct cudaKernelNodeParams kernel;
        struct {
            int flags;
            int reserved[3];
            struct cudaMemcpy3DParms parameters;
        } copy;
    } of;
    long long reserved_2;
};
_Static_assert(sizeof(struct cudaGraphNodeParams) == sizeof(CUgraphNodeParams),
               "the driver's, but for some kinds");

static cudaError_t describe(const struct cudaGraphNodeParams *parameters, CUgraphNodeParams *driver)
{
    CUcontext context;
    RUNTIME_REQUIRE(parameters, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(runtime_translate(DRIVER(cuCtxGetCurrent)(&context)));
    memcpy(driver, parameters, sizeof *driver);
    switch (driver->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        driver->kernel.func = NULL;
        driver->kernel.ctx = NULL;
        return program_kernel(parameters->of.kernel.func, &driver->kernel.kern);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        memset(driver->reserved1, 0, sizeof driver->reserved1);
        driver->memcpy.flags = parameters->of.copy.flags;
        driver->memcpy.copyCtx = context;
        return copy_describe(&parameters->of.copy.parameters, &driver->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        driver->memset.ctx = context;
        return cudaSuccess;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        driver->conditional.ctx = context;
        return cudaSuccess;
    default:
        return cudaSuccess;
    }
}

/* Copy back what the driver filled in: an allocation's address, the graphs of a conditional node. */
static void take_back(struct cudaGraphNodeParams *parameters, CUgraphNodeParams *driver)
{
    if (driver->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        driver->conditional.ctx = NULL; /* the runtime's struct has nothing there */
    if (driver->type == CU_GRAPH_NODE_TYPE_CONDITIONAL || driver->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        memcpy(parameters, driver, sizeof *driver);
}

static cudaError_t add_node(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                            const cudaGraphEdgeData *edges, size_t count,
                            struct cudaGraphNodeParams *parameters)
{
    CUgraphNodeParams driver;
    RUNTIME_TRY(describe(parameters, &driver));
    RUNTIME_TRY(
        runtime_translate(DRIVER(cuGraphAddNode_v2)(node, graph, dependencies, edges, count, &driver)));
    take_back(parameters, &driver);
    return cudaSuccess;
}
#if CUDART_MAJOR == 12
EXPORT(cudaGraphAddNode, add_node,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
        struct cudaGraphNodeParams *parameters),
       (node, graph, dependencies, NULL, count, parameters))
EXPORT(cudaGraphAddNode_v2, add_node,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        const cudaGraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *parameters),
       (node, graph, dependencies, edges, count, parameters))
#else
EXPORT(cudaGraphAddNode, add_node,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        const cudaGraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *parameters),
       (node, graph, dependencies, edges, count, parameters))
#endif

static cudaError_t set(cudaGraphNode_t node, struct cudaGraphNodeParams *parameters)
{
    CUgraphNodeParams driver;
    RUNTIME_TRY(describe(parameters, &driver));
    return runtime_translate(DRIVER(cuGraphNodeSetParams)(node, &driver));
}
EXPORT(cudaGraphNodeSetParams, set, (cudaGraphNode_t node, struct cudaGraphNodeParams *parameters),
       (node, parameters))

static cudaError_t exec_set(cudaGraphExec_t exec, cudaGraphNode_t node,
                            struct cudaGraphNodeParams *parameters)
{
    CUgraphNodeParams driver;
    RUNTIME_TRY(describe(parameters, &driver));
    return runtime_translate(DRIVER(cuGraphExecNodeSetParams)(exec, node, &driver));
}
EXPORT(cudaGraphExecNodeSetParams, exec_set,
       (cudaGraphExec_t exec, cudaGraphNode_t node, struct cudaGraphNodeParams *parameters),
       (exec, node, parameters))

static cudaError_t condition(cudaGraphConditionalHandle *handle, cudaGraph_t graph, unsigned int value,
                             unsigned int flags)
{
    CUcontext context;
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(runtime_translate(DRIVER(cuCtxGetCurrent)(&context)));
    return runtime_translate(DRIVER(cuGraphConditionalHandleCreate)((CUgraphConditionalHandle *)handle, graph,
                                                                    context, value, flags));
}
EXPORT(cudaGraphConditionalHandleCreate, condition,
       (cudaGraphConditionalHandle * handle, cudaGraph_t graph, unsigned int value, unsigned int flags),
       (handle, graph, value, flags))
