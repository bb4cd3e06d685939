/* hook_graph_kernels.c - kernels in graphs. The driver takes the local memory of their threads when the graph is launched. A kernel whose
 * local memory does not fit is refused as it becomes a node, since afterwards the graph may be launched by any call, also from the
 * device. Kernels that a stream's capture makes nodes pass the gate of launches. */
#include "cuda/driver_more.h"
#include "intercept/memory/code_room.h"
#include "intercept/resolve/real.h"

#define IF_IT_FITS(symbol, type, parameters, arguments)                                                      \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        return params && !code_may_launch(function_of_##type) ? CUDA_ERROR_OUT_OF_MEMORY                     \
                                                              : real(symbol) arguments;                      \
    }
#define function_of_v1 params->func
#define function_of_v2 params->func ? params->func : (CUfunction)params->kern

IF_IT_FITS(cuGraphAddKernelNode, v1,
           (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, size_t count,
            const CUDA_KERNEL_NODE_PARAMS_v1 *params),
           (node, graph, before, count, params))
IF_IT_FITS(cuGraphAddKernelNode_v2, v2,
           (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, size_t count,
            const CUDA_KERNEL_NODE_PARAMS *params),
           (node, graph, before, count, params))
IF_IT_FITS(cuGraphKernelNodeSetParams, v1, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
           (node, params))
IF_IT_FITS(cuGraphKernelNodeSetParams_v2, v2, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params),
           (node, params))
IF_IT_FITS(cuGraphExecKernelNodeSetParams, v1,
           (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
           (exec, node, params))
IF_IT_FITS(cuGraphExecKernelNodeSetParams_v2, v2,
           (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params), (exec, node, params))
