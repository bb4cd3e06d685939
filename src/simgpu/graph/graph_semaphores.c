/* graph_semaphores.c - the driver's calls on nodes that signal external semaphores or wait for them. */
#include "simgpu/graph/graph.h"

#define CALLS(Kind, KIND)                                                                                    \
    static CUgraphNodeParams params_of_##Kind(const CUDA_EXT_SEM_##KIND##_NODE_PARAMS *given)                \
    {                                                                                                        \
        return (CUgraphNodeParams){                                                                          \
            .type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_##KIND,                                                     \
            .extSem##Kind = {given->extSemArray, given->paramsArray, given->numExtSems}};                    \
    }                                                                                                        \
                                                                                                             \
    CUresult cuGraphAddExternalSemaphores##Kind##Node(CUgraphNode *node, CUgraph graph,                      \
                                                      const CUgraphNode *dependencies, size_t count,         \
                                                      const CUDA_EXT_SEM_##KIND##_NODE_PARAMS *given)        \
    {                                                                                                        \
        SIM_TRY(sim_ready());                                                                                \
        SIM_REQUIRE(given);                                                                                  \
        CUgraphNodeParams params = params_of_##Kind(given);                                                  \
        return cuGraphAddNode_v2(node, graph, dependencies, NULL, count, &params);                           \
    }                                                                                                        \
                                                                                                             \
    /* What it points to is the node's, until the node is changed (driver API reference). */                 \
    CUresult cuGraphExternalSemaphores##Kind##NodeGetParams(CUgraphNode node,                                \
                                                            CUDA_EXT_SEM_##KIND##_NODE_PARAMS *params)       \
    {                                                                                                        \
        SIM_TRY(graph_node_check(node));                                                                     \
        SIM_REQUIRE(params && node->params.type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_##KIND);                     \
        *params = (CUDA_EXT_SEM_##KIND##_NODE_PARAMS){node->params.extSem##Kind.extSemArray,                 \
                                                      node->params.extSem##Kind.paramsArray,                 \
                                                      node->params.extSem##Kind.numExtSems};                 \
        return CUDA_SUCCESS;                                                                                 \
    }                                                                                                        \
                                                                                                             \
    CUresult cuGraphExternalSemaphores##Kind##NodeSetParams(CUgraphNode node,                                \
                                                            const CUDA_EXT_SEM_##KIND##_NODE_PARAMS *given)  \
    {                                                                                                        \
        SIM_TRY(sim_ready());                                                                                \
        SIM_REQUIRE(given);                                                                                  \
        CUgraphNodeParams params = params_of_##Kind(given);                                                  \
        return cuGraphNodeSetParams(node, &params);                                                          \
    }                                                                                                        \
                                                                                                             \
    CUresult cuGraphExecExternalSemaphores##Kind##NodeSetParams(                                             \
        CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_##KIND##_NODE_PARAMS *given)                  \
    {                                                                                                        \
        SIM_TRY(sim_ready());                                                                                \
        SIM_REQUIRE(given);                                                                                  \
        CUgraphNodeParams params = params_of_##Kind(given);                                                  \
        return cuGraphExecNodeSetParams(exec, node, &params);                                                \
    }
CALLS(Signal, SIGNAL)
CALLS(Wait, WAIT)
#undef CALLS
