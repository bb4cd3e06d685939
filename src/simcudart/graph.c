/* graph.c - nodes whose parameters the runtime and the driver describe differently: kernels, which the host
 * names in its own way, and copies. All other calls on graphs are forwards. */
#include "simcudart/simcudart.h"

#include <string.h>

static cudaError_t current(CUcontext *context)
{
    RUNTIME_TRY(runtime_need_context());
    return runtime_translate(DRIVER(cuCtxGetCurrent)(context));
}

static cudaError_t describe_kernel(const struct cudaKernelNodeParams *parameters,
                                   CUDA_KERNEL_NODE_PARAMS *node)
{
    CUkernel kernel;
    RUNTIME_REQUIRE(parameters, cudaErrorInvalidValue);
    RUNTIME_TRY(program_kernel(parameters->func, &kernel));
    *node = (CUDA_KERNEL_NODE_PARAMS){
        .gridDimX = parameters->gridDim.x,
        .gridDimY = parameters->gridDim.y,
        .gridDimZ = parameters->gridDim.z,
        .blockDimX = parameters->blockDim.x,
        .blockDimY = parameters->blockDim.y,
        .blockDimZ = parameters->blockDim.z,
        .sharedMemBytes = parameters->sharedMemBytes,
        .kernelParams = parameters->kernelParams,
        .extra = parameters->extra,
        .kern = kernel,
    };
    return cudaSuccess;
}

static cudaError_t add_kernel(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                              size_t count, const struct cudaKernelNodeParams *parameters)
{
    CUDA_KERNEL_NODE_PARAMS driver;
    RUNTIME_TRY(describe_kernel(parameters, &driver));
    return runtime_translate(DRIVER(cuGraphAddKernelNode_v2)(node, graph, dependencies, count, &driver));
}
EXPORT(cudaGraphAddKernelNode, add_kernel,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
        const struct cudaKernelNodeParams *parameters),
       (node, graph, dependencies, count, parameters))

static cudaError_t get_kernel(cudaGraphNode_t node, struct cudaKernelNodeParams *parameters)
{
    CUDA_KERNEL_NODE_PARAMS driver = {0};
    RUNTIME_REQUIRE(parameters, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(runtime_translate(DRIVER(cuGraphKernelNodeGetParams_v2)(node, &driver)));
    *parameters = (struct cudaKernelNodeParams){
        .func = driver.kern ? program_host_of(driver.kern) : (void *)driver.func,
        .gridDim = {driver.gridDimX, driver.gridDimY, driver.gridDimZ},
        .blockDim = {driver.blockDimX, driver.blockDimY, driver.blockDimZ},
        .sharedMemBytes = driver.sharedMemBytes,
        .kernelParams = driver.kernelParams,
        .extra = driver.extra,
    };
    return cudaSuccess;
}
EXPORT(cudaGraphKernelNodeGetParams, get_kernel,
       (cudaGraphNode_t node, struct cudaKernelNodeParams *parameters), (node, parameters))

static cudaError_t set_kernel(cudaGraphNode_t node, const struct cudaKernelNodeParams *parameters)
{
    CUDA_KERNEL_NODE_PARAMS driver;
    RUNTIME_TRY(describe_kernel(parameters, &driver));
    return runtime_translate(DRIVER(cuGraphKernelNodeSetParams_v2)(node, &driver));
}
EXPORT(cudaGraphKernelNodeSetParams, set_kernel,
       (cudaGraphNode_t node, const struct cudaKernelNodeParams *parameters), (node, parameters))

static cudaError_t exec_set_kernel(cudaGraphExec_t exec, cudaGraphNode_t node,
                                   const struct cudaKernelNodeParams *parameters)
{
    CUDA_KERNEL_NODE_PARAMS driver;
    RUNTIME_TRY(describe_kernel(parameters, &driver));
    return runtime_translate(DRIVER(cuGraphExecKernelNodeSetParams_v2)(exec, node, &driver));
}
EXPORT(cudaGraphExecKernelNodeSetParams, exec_set_kernel,
       (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaKernelNodeParams *parameters),
       (exec, node, parameters))

static cudaError_t add_copy(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                            size_t count, const struct cudaMemcpy3DParms *parameters)
{
    CUDA_MEMCPY3D driver;
    CUcontext context;
    RUNTIME_TRY(current(&context));
    RUNTIME_TRY(copy_describe(parameters, &driver));
    return runtime_translate(
        DRIVER(cuGraphAddMemcpyNode)(node, graph, dependencies, count, &driver, context));
}
EXPORT(cudaGraphAddMemcpyNode, add_copy,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
        const struct cudaMemcpy3DParms *parameters),
       (node, graph, dependencies, count, parameters))

static cudaError_t get_copy(cudaGraphNode_t node, struct cudaMemcpy3DParms *parameters)
{
    CUDA_MEMCPY3D driver;
    RUNTIME_REQUIRE(parameters, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(runtime_translate(DRIVER(cuGraphMemcpyNodeGetParams)(node, &driver)));
    return copy_undescribe(&driver, parameters);
}
EXPORT(cudaGraphMemcpyNodeGetParams, get_copy, (cudaGraphNode_t node, struct cudaMemcpy3DParms *parameters),
       (node, parameters))

static cudaError_t set_copy(cudaGraphNode_t node, const struct cudaMemcpy3DParms *parameters)
{
    CUDA_MEMCPY3D driver;
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(copy_describe(parameters, &driver));
    return runtime_translate(DRIVER(cuGraphMemcpyNodeSetParams)(node, &driver));
}
EXPORT(cudaGraphMemcpyNodeSetParams, set_copy,
       (cudaGraphNode_t node, const struct cudaMemcpy3DParms *parameters), (node, parameters))

static cudaError_t exec_set_copy(cudaGraphExec_t exec, cudaGraphNode_t node,
                                 const struct cudaMemcpy3DParms *parameters)
{
    CUDA_MEMCPY3D driver;
    CUcontext context;
    RUNTIME_TRY(current(&context));
    RUNTIME_TRY(copy_describe(parameters, &driver));
    return runtime_translate(DRIVER(cuGraphExecMemcpyNodeSetParams)(exec, node, &driver, context));
}
EXPORT(cudaGraphExecMemcpyNodeSetParams, exec_set_copy,
       (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaMemcpy3DParms *parameters),
       (exec, node, parameters))

/* A run of bytes is a box of one row. */
static struct cudaMemcpy3DParms linear(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return (struct cudaMemcpy3DParms){
        .srcPtr = {(void *)(uintptr_t)from, bytes, bytes, 1},
        .dstPtr = {to, bytes, bytes, 1},
        .extent = {bytes, 1, 1},
        .kind = kind,
    };
}

static cudaError_t add_linear(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                              size_t count, void *to, const void *from, size_t bytes,
                              enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms parameters = linear(to, from, bytes, kind);
    return add_copy(node, graph, dependencies, count, &parameters);
}
EXPORT(cudaGraphAddMemcpyNode1D, add_linear,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
        void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind),
       (node, graph, dependencies, count, to, from, bytes, kind))

static cudaError_t add_to_symbol(cudaGraphNode_t *node, cudaGraph_t graph,
                                 const cudaGraphNode_t *dependencies, size_t count, const void *symbol,
                                 const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind)
{
    void *to;
    RUNTIME_TRY(copy_symbol_target(symbol, bytes, offset, kind, &to));
    return add_linear(node, graph, dependencies, count, to, from, bytes, kind);
}
EXPORT(cudaGraphAddMemcpyNodeToSymbol, add_to_symbol,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
        const void *symbol, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind),
       (node, graph, dependencies, count, symbol, from, bytes, offset, kind))

static cudaError_t add_from_symbol(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *dependencies, size_t count, void *to,
                                   const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind)
{
    void *from;
    RUNTIME_TRY(copy_symbol_source(symbol, bytes, offset, kind, &from));
    return add_linear(node, graph, dependencies, count, to, from, bytes, kind);
}
EXPORT(cudaGraphAddMemcpyNodeFromSymbol, add_from_symbol,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
        void *to, const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind),
       (node, graph, dependencies, count, to, symbol, bytes, offset, kind))

static cudaError_t set_linear(cudaGraphNode_t node, void *to, const void *from, size_t bytes,
                              enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms parameters = linear(to, from, bytes, kind);
    return set_copy(node, &parameters);
}
EXPORT(cudaGraphMemcpyNodeSetParams1D, set_linear,
       (cudaGraphNode_t node, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind),
       (node, to, from, bytes, kind))

static cudaError_t set_to_symbol(cudaGraphNode_t node, const void *symbol, const void *from, size_t bytes,
                                 size_t offset, enum cudaMemcpyKind kind)
{
    void *to;
    RUNTIME_TRY(copy_symbol_target(symbol, bytes, offset, kind, &to));
    return set_linear(node, to, from, bytes, kind);
}
EXPORT(cudaGraphMemcpyNodeSetParamsToSymbol, set_to_symbol,
       (cudaGraphNode_t node, const void *symbol, const void *from, size_t bytes, size_t offset,
        enum cudaMemcpyKind kind),
       (node, symbol, from, bytes, offset, kind))

static cudaError_t set_from_symbol(cudaGraphNode_t node, void *to, const void *symbol, size_t bytes,
                                   size_t offset, enum cudaMemcpyKind kind)
{
    void *from;
    RUNTIME_TRY(copy_symbol_source(symbol, bytes, offset, kind, &from));
    return set_linear(node, to, from, bytes, kind);
}
EXPORT(cudaGraphMemcpyNodeSetParamsFromSymbol, set_from_symbol,
       (cudaGraphNode_t node, void *to, const void *symbol, size_t bytes, size_t offset,
        enum cudaMemcpyKind kind),
       (node, to, symbol, bytes, offset, kind))

static cudaError_t exec_set_linear(cudaGraphExec_t exec, cudaGraphNode_t node, void *to, const void *from,
                                   size_t bytes, enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms parameters = linear(to, from, bytes, kind);
    return exec_set_copy(exec, node, &parameters);
}
EXPORT(cudaGraphExecMemcpyNodeSetParams1D, exec_set_linear,
       (cudaGraphExec_t exec, cudaGraphNode_t node, void *to, const void *from, size_t bytes,
        enum cudaMemcpyKind kind),
       (exec, node, to, from, bytes, kind))

static cudaError_t exec_set_to_symbol(cudaGraphExec_t exec, cudaGraphNode_t node, const void *symbol,
                                      const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind)
{
    void *to;
    RUNTIME_TRY(copy_symbol_target(symbol, bytes, offset, kind, &to));
    return exec_set_linear(exec, node, to, from, bytes, kind);
}
EXPORT(cudaGraphExecMemcpyNodeSetParamsToSymbol, exec_set_to_symbol,
       (cudaGraphExec_t exec, cudaGraphNode_t node, const void *symbol, const void *from, size_t bytes,
        size_t offset, enum cudaMemcpyKind kind),
       (exec, node, symbol, from, bytes, offset, kind))

static cudaError_t exec_set_from_symbol(cudaGraphExec_t exec, cudaGraphNode_t node, void *to,
                                        const void *symbol, size_t bytes, size_t offset,
                                        enum cudaMemcpyKind kind)
{
    void *from;
    RUNTIME_TRY(copy_symbol_source(symbol, bytes, offset, kind, &from));
    return exec_set_linear(exec, node, to, from, bytes, kind);
}
EXPORT(cudaGraphExecMemcpyNodeSetParamsFromSymbol, exec_set_from_symbol,
       (cudaGraphExec_t exec, cudaGraphNode_t node, void *to, const void *symbol, size_t bytes, size_t offset,
        enum cudaMemcpyKind kind),
       (exec, node, to, symbol, bytes, offset, kind))

static cudaError_t describe_fill(const struct cudaMemsetParams *parameters, CUDA_MEMSET_NODE_PARAMS *fill)
{
    RUNTIME_REQUIRE(parameters, cudaErrorInvalidValue);
    *fill = (CUDA_MEMSET_NODE_PARAMS){
        .dst = (CUdeviceptr)parameters->dst,
        .pitch = parameters->pitch,
        .value = parameters->value,
        .elementSize = parameters->elementSize,
        .width = parameters->width,
        .height = parameters->height,
    };
    return cudaSuccess;
}

static cudaError_t add_fill(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                            size_t count, const struct cudaMemsetParams *parameters)
{
    CUDA_MEMSET_NODE_PARAMS fill;
    CUcontext context;
    RUNTIME_TRY(current(&context));
    RUNTIME_TRY(describe_fill(parameters, &fill));
    return runtime_translate(DRIVER(cuGraphAddMemsetNode)(node, graph, dependencies, count, &fill, context));
}
EXPORT(cudaGraphAddMemsetNode, add_fill,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
        const struct cudaMemsetParams *parameters),
       (node, graph, dependencies, count, parameters))

static cudaError_t exec_set_fill(cudaGraphExec_t exec, cudaGraphNode_t node,
                                 const struct cudaMemsetParams *parameters)
{
    CUDA_MEMSET_NODE_PARAMS fill;
    CUcontext context;
    RUNTIME_TRY(current(&context));
    RUNTIME_TRY(describe_fill(parameters, &fill));
    return runtime_translate(DRIVER(cuGraphExecMemsetNodeSetParams)(exec, node, &fill, context));
}
EXPORT(cudaGraphExecMemsetNodeSetParams, exec_set_fill,
       (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaMemsetParams *parameters),
       (exec, node, parameters))
