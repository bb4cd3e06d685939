/* graph_node.c - nodes of any kind by one struct, which is the driver's too but for four of the kinds. */
#include "simcudart/simcudart.h"

#include <string.h>

enum {
    NODE_KERNEL = 0,
    NODE_COPY = 1,
    NODE_FILL = 2,
    NODE_CONDITIONAL = 13,
};

/* cudaGraphNodeParams and CUgraphNodeParams (13.0): what is in the union for the kinds that differ. */
struct cudaGraphNodeParams {
    int type;
    int reserved[3];
    union {
        long long words[29];
        struct cudaKernelNodeParams kernel;
        struct {
            CUfunction function;
            unsigned int shape[7]; /* grid, block, shared bytes: as the runtime has them */
            void **arguments, **extra;
            CUkernel kernel;
            CUcontext context;
        } driver_kernel;
        struct {
            int flags;
            int reserved[3];
            struct cudaMemcpy3DParms parameters;
        } copy;
        struct {
            int flags;
            int reserved;
            CUcontext context;
            CUDA_MEMCPY3D parameters;
        } driver_copy;
        struct {
            struct cudaMemsetParams parameters;
            CUcontext context; /* the driver's alone */
        } fill;
        struct {
            cudaGraphConditionalHandle handle;
            int type;
            unsigned int size;
            cudaGraph_t *bodies;
            CUcontext context; /* the driver's alone */
        } conditional;
    } of;
    long long reserved_2;
};
_Static_assert(sizeof(struct cudaGraphNodeParams) == 256, "as in driver_types.h 13.0");

static cudaError_t describe(const struct cudaGraphNodeParams *parameters, struct cudaGraphNodeParams *driver)
{
    CUcontext context;
    RUNTIME_REQUIRE(parameters, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(runtime_translate(DRIVER(cuCtxGetCurrent)(&context)));
    *driver = *parameters;
    switch (parameters->type) {
    case NODE_KERNEL:
        driver->of.driver_kernel.function = NULL;
        driver->of.driver_kernel.context = NULL;
        return program_kernel(parameters->of.kernel.func, &driver->of.driver_kernel.kernel);
    case NODE_COPY:
        memset(&driver->of, 0, sizeof driver->of);
        driver->of.driver_copy.flags = parameters->of.copy.flags;
        driver->of.driver_copy.context = context;
        return copy_describe(&parameters->of.copy.parameters, &driver->of.driver_copy.parameters);
    case NODE_FILL:
        driver->of.fill.context = context;
        return cudaSuccess;
    case NODE_CONDITIONAL:
        driver->of.conditional.context = context;
        return cudaSuccess;
    default:
        return cudaSuccess;
    }
}

/* What the driver filled in: the address that an allocation got, the graphs of a conditional node. */
static void take_back(struct cudaGraphNodeParams *parameters, const struct cudaGraphNodeParams *driver)
{
    if (parameters->type != NODE_KERNEL && parameters->type != NODE_COPY && parameters->type != NODE_FILL)
        *parameters = *driver;
    if (parameters->type == NODE_CONDITIONAL)
        parameters->of.conditional.context = NULL;
}

typedef CUresult add_node(CUgraphNode *, CUgraph, const CUgraphNode *, const cudaGraphEdgeData *, size_t,
                          struct cudaGraphNodeParams *);
typedef CUresult set_node(CUgraphNode, struct cudaGraphNodeParams *);
typedef CUresult exec_set_node(CUgraphExec, CUgraphNode, struct cudaGraphNodeParams *);
typedef CUresult create_condition(cudaGraphConditionalHandle *, CUgraph, CUcontext, unsigned int,
                                  unsigned int);

static cudaError_t add(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                       const cudaGraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *parameters)
{
    struct cudaGraphNodeParams driver;
    RUNTIME_TRY(describe(parameters, &driver));
    RUNTIME_TRY(runtime_translate(((add_node *)driver_entry(CUDA_ID_cuGraphAddNode_v2))(
        node, graph, dependencies, edges, count, &driver)));
    take_back(parameters, &driver);
    return cudaSuccess;
}
#if CUDART_MAJOR == 12
EXPORT(cudaGraphAddNode, add,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
        struct cudaGraphNodeParams *parameters),
       (node, graph, dependencies, NULL, count, parameters))
EXPORT(cudaGraphAddNode_v2, add,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        const cudaGraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *parameters),
       (node, graph, dependencies, edges, count, parameters))
#else
EXPORT(cudaGraphAddNode, add,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        const cudaGraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *parameters),
       (node, graph, dependencies, edges, count, parameters))
#endif

static cudaError_t set(cudaGraphNode_t node, struct cudaGraphNodeParams *parameters)
{
    struct cudaGraphNodeParams driver;
    RUNTIME_TRY(describe(parameters, &driver));
    return runtime_translate(((set_node *)driver_entry(CUDA_ID_cuGraphNodeSetParams))(node, &driver));
}
EXPORT(cudaGraphNodeSetParams, set, (cudaGraphNode_t node, struct cudaGraphNodeParams *parameters),
       (node, parameters))

static cudaError_t exec_set(cudaGraphExec_t exec, cudaGraphNode_t node,
                            struct cudaGraphNodeParams *parameters)
{
    struct cudaGraphNodeParams driver;
    RUNTIME_TRY(describe(parameters, &driver));
    return runtime_translate(
        ((exec_set_node *)driver_entry(CUDA_ID_cuGraphExecNodeSetParams))(exec, node, &driver));
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
    return runtime_translate(((create_condition *)driver_entry(CUDA_ID_cuGraphConditionalHandleCreate))(
        handle, graph, context, value, flags));
}
EXPORT(cudaGraphConditionalHandleCreate, condition,
       (cudaGraphConditionalHandle * handle, cudaGraph_t graph, unsigned int value, unsigned int flags),
       (handle, graph, value, flags))
