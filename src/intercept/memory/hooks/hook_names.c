/* hook_names.c - calls that name device addresses but give the GPU no work. The driver looks at what is at those
 * addresses, so the memory is kept there meanwhile. For calls on a stream that is being captured, the gate does that
 * (gate.c). */
#include "cuda/driver_more.h"
#include "intercept/memory/code_room.h"
#include "intercept/memory/hooks/named.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/peer_nodes.h"

/* A node that does not fit is refused. Where `is_settled`, the answer is `settled`, and the driver is not asked. */
#define NAMES_WHERE(fits, is_settled, settled, symbol, parameters, arguments)                                \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        if (!(fits))                                                                                         \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                 \
        bool holds = named_hold(__builtin_return_address(0));                                                \
        CUresult result = (is_settled) ? (settled) : real(symbol) arguments;                                 \
        named_let_go(holds);                                                                                 \
        return result;                                                                                       \
    }
#define NAMES_UNLESS(is_settled, settled, symbol, parameters, arguments)                                     \
    NAMES_WHERE(true, is_settled, settled, symbol, parameters, arguments)
#define NAMES(symbol, parameters, arguments) NAMES_UNLESS(false, CUDA_SUCCESS, symbol, parameters, arguments)

/* --- Nodes of graphs ------------------------------------------------------------------------------- */

#define ADDS(symbol, type)                                                                                   \
    NAMES(symbol, (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, size_t count, type params), \
          (node, graph, before, count, params))
/* Nodes of any kind: a kernel's local memory must fit. */
#define ADDS_ANY(symbol, edges, parameters, arguments)                                                       \
    NAMES_WHERE(code_may_be_node(params),                                                                    \
                peer_nodes_add(node, &(struct node_place){graph, before, edges, count},                      \
                               peer_nodes_copy(params), peer_nodes_context(params)),                         \
                CUDA_SUCCESS, symbol, parameters, arguments)
#define ADDS_IN_CONTEXT(symbol, type, is_added)                                                              \
    NAMES_UNLESS(is_added, CUDA_SUCCESS, symbol,                                                             \
                 (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, size_t count, type params,   \
                  CUcontext context),                                                                        \
                 (node, graph, before, count, params, context))
#define SETS(symbol, type) NAMES(symbol, (CUgraphNode node, type params), (node, params))
#define SETS_COPY(symbol, type)                                                                              \
    NAMES_UNLESS(peer_nodes_cannot_set(params), CUDA_ERROR_INVALID_VALUE, symbol,                            \
                 (CUgraphNode node, type params), (node, params))
#define SETS_IN_EXEC(symbol, type)                                                                           \
    NAMES(symbol, (CUgraphExec exec, CUgraphNode node, type params), (exec, node, params))
#define SETS_ANY(symbol, parameters, arguments)                                                              \
    NAMES_WHERE(code_may_be_node(params), peer_nodes_cannot_set(peer_nodes_copy(params)),                    \
                CUDA_ERROR_INVALID_VALUE, symbol, parameters, arguments)
#define SETS_IN_EXEC_AND_CONTEXT(symbol, type, is_refused)                                                   \
    NAMES_UNLESS(is_refused, CUDA_ERROR_INVALID_VALUE, symbol,                                               \
                 (CUgraphExec exec, CUgraphNode node, type params, CUcontext context),                       \
                 (exec, node, params, context))

ADDS(cuGraphAddBatchMemOpNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS *)
ADDS_ANY(cuGraphAddNode, NULL,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, size_t count,
          CUgraphNodeParams *params),
         (node, graph, before, count, params))
ADDS_ANY(cuGraphAddNode_v2, edges,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, const CUgraphEdgeData *edges,
          size_t count, CUgraphNodeParams *params),
         (node, graph, before, edges, count, params))
ADDS_ANY(cuGraphAddNode_v3, edges,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, const CUgraphEdgeData *edges,
          size_t count, CUgraphNodeParams *params),
         (node, graph, before, edges, count, params))
ADDS_IN_CONTEXT(cuGraphAddMemcpyNode, const CUDA_MEMCPY3D *,
                peer_nodes_add(node, &(struct node_place){graph, before, NULL, count}, params, context))
ADDS_IN_CONTEXT(cuGraphAddMemsetNode, const CUDA_MEMSET_NODE_PARAMS *, false)
SETS(cuGraphBatchMemOpNodeSetParams, const CUDA_BATCH_MEM_OP_NODE_PARAMS *)
SETS_COPY(cuGraphMemcpyNodeSetParams, const CUDA_MEMCPY3D *)
SETS(cuGraphMemsetNodeSetParams, const CUDA_MEMSET_NODE_PARAMS *)
SETS_ANY(cuGraphNodeSetParams, (CUgraphNode node, CUgraphNodeParams *params), (node, params))
SETS_ANY(cuGraphNodeSetParams_v2, (CUgraphNode node, CUgraphNodeParams *params), (node, params))
SETS_IN_EXEC(cuGraphExecBatchMemOpNodeSetParams, const CUDA_BATCH_MEM_OP_NODE_PARAMS *)
SETS_IN_EXEC(cuGraphExecChildGraphNodeSetParams, CUgraph)
SETS_ANY(cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params),
         (exec, node, params))
SETS_IN_EXEC_AND_CONTEXT(cuGraphExecMemcpyNodeSetParams, const CUDA_MEMCPY3D *, peer_nodes_cannot_set(params))
SETS_IN_EXEC_AND_CONTEXT(cuGraphExecMemsetNodeSetParams, const CUDA_MEMSET_NODE_PARAMS *, false)
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
