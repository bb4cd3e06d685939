/* hook_names.c - calls that name device addresses but give the GPU no work. The driver looks at what is at those
 * addresses, so the memory is kept there meanwhile. For calls on a stream that is being captured, the gate does that
 * (gate.c). */
#include "cuda/driver_more.h"
#include "intercept/memory/code_room.h"
#include "intercept/memory/hooks/named.h"
#include "intercept/resolve/real.h"

#define NAMES(symbol, parameters, arguments) NAMES_IF(true, symbol, parameters, arguments)
#define NAMES_IF(may, symbol, parameters, arguments)                                                         \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        if (!(may))                                                                                          \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                 \
        bool holds = named_hold(__builtin_return_address(0));                                                \
        CUresult result = real(symbol) arguments;                                                            \
        named_let_go(holds);                                                                                 \
        return result;                                                                                       \
    }

/* --- Nodes of graphs ------------------------------------------------------------------------------- */

#define ADDS(symbol, type)                                                                                   \
    NAMES(symbol, (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, size_t count, type params), \
          (node, graph, before, count, params))
#define ADDS_IN_CONTEXT(symbol, type)                                                                        \
    NAMES(symbol,                                                                                            \
          (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, size_t count, type params,          \
           CUcontext context),                                                                               \
          (node, graph, before, count, params, context))
/* Of any kind: a kernel's local memory must fit. */
#define NODES(symbol, parameters, arguments) NAMES_IF(code_may_be_node(params), symbol, parameters, arguments)
#define SETS(symbol, type) NAMES(symbol, (CUgraphNode node, type params), (node, params))
#define SETS_IN_EXEC(symbol, type)                                                                           \
    NAMES(symbol, (CUgraphExec exec, CUgraphNode node, type params), (exec, node, params))
#define SETS_IN_EXEC_AND_CONTEXT(symbol, type)                                                               \
    NAMES(symbol, (CUgraphExec exec, CUgraphNode node, type params, CUcontext context),                      \
          (exec, node, params, context))

ADDS(cuGraphAddBatchMemOpNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS *)
NODES(cuGraphAddNode,
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, size_t count, CUgraphNodeParams *params),
      (node, graph, before, count, params))
NODES(cuGraphAddNode_v2,
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, const CUgraphEdgeData *edges,
       size_t count, CUgraphNodeParams *params),
      (node, graph, before, edges, count, params))
NODES(cuGraphAddNode_v3,
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, const CUgraphEdgeData *edges,
       size_t count, CUgraphNodeParams *params),
      (node, graph, before, edges, count, params))
ADDS_IN_CONTEXT(cuGraphAddMemcpyNode, const CUDA_MEMCPY3D *)
ADDS_IN_CONTEXT(cuGraphAddMemsetNode, const CUDA_MEMSET_NODE_PARAMS *)
SETS(cuGraphBatchMemOpNodeSetParams, const CUDA_BATCH_MEM_OP_NODE_PARAMS *)
SETS(cuGraphMemcpyNodeSetParams, const CUDA_MEMCPY3D *)
SETS(cuGraphMemsetNodeSetParams, const CUDA_MEMSET_NODE_PARAMS *)
NODES(cuGraphNodeSetParams, (CUgraphNode node, CUgraphNodeParams *params), (node, params))
NODES(cuGraphNodeSetParams_v2, (CUgraphNode node, CUgraphNodeParams *params), (node, params))
SETS_IN_EXEC(cuGraphExecBatchMemOpNodeSetParams, const CUDA_BATCH_MEM_OP_NODE_PARAMS *)
SETS_IN_EXEC(cuGraphExecChildGraphNodeSetParams, CUgraph)
NODES(cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params),
      (exec, node, params))
SETS_IN_EXEC_AND_CONTEXT(cuGraphExecMemcpyNodeSetParams, const CUDA_MEMCPY3D *)
SETS_IN_EXEC_AND_CONTEXT(cuGraphExecMemsetNodeSetParams, const CUDA_MEMSET_NODE_PARAMS *)
NAMES(cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode *wrong, CUgraphExecUpdateResult *why),
      (exec, graph, wrong, why))
NAMES(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info),
      (exec, graph, info))

/* --- Where memory is ------------------------------------------------------------------------------- */

NAMES(cuMemGetLocationInfo,
      (CUmemLocation * locations, CUdeviceptr address, size_t bytes, size_t summary_bytes,
       size_t sample_bytes),
      (locations, address, bytes, summary_bytes, sample_bytes))

/* --- Textures of linear memory --------------------------------------------------------------------- */

NAMES(cuTexObjectCreate,
      (CUtexObject * texture, const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *how,
       const CUDA_RESOURCE_VIEW_DESC *view),
      (texture, resource, how, view))
NAMES(cuTexRefSetAddress_v2, (size_t * offset, CUtexref texture, CUdeviceptr address, size_t bytes),
      (offset, texture, address, bytes))
NAMES(cuTexRefSetAddress2D_v2,
      (CUtexref texture, const CUDA_ARRAY_DESCRIPTOR *shape, CUdeviceptr address, size_t pitch),
      (texture, shape, address, pitch))
NAMES(cuTexRefSetAddress2D_v3,
      (CUtexref texture, const CUDA_ARRAY_DESCRIPTOR *shape, CUdeviceptr address, size_t pitch),
      (texture, shape, address, pitch))
