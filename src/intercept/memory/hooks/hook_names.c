/* hook_names.c - calls that name device addresses but give the GPU no work. The driver looks at what is at those
 * addresses, so the memory is kept there meanwhile. For calls on a stream that is being captured, the gate does that
 * (gate.c). */
#include "cuda/driver_more.h"
#include "intercept/memory/code_room.h"
#include "intercept/memory/hooks/named.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/copy_work.h"
#include "intercept/submit/peer_nodes.h"

#define NAMES(symbol, parameters, arguments)                                                                 \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        bool holds = named_hold(__builtin_return_address(0));                                                \
        CUresult result = real(symbol) arguments;                                                            \
        named_let_go(holds);                                                                                 \
        return result;                                                                                       \
    }

/* --- Nodes of graphs ------------------------------------------------------------------------------- */

#define ADDS(symbol, type)                                                                                   \
    NAMES(symbol, (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, size_t count, type params), \
          (node, graph, before, count, params))
#define SETS(symbol, type) NAMES(symbol, (CUgraphNode node, type params), (node, params))
#define SETS_IN_EXEC(symbol, type)                                                                           \
    NAMES(symbol, (CUgraphExec exec, CUgraphNode node, type params), (exec, node, params))
ADDS(cuGraphAddBatchMemOpNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS *)
SETS(cuGraphBatchMemOpNodeSetParams, const CUDA_BATCH_MEM_OP_NODE_PARAMS *)
SETS_IN_EXEC(cuGraphExecBatchMemOpNodeSetParams, const CUDA_BATCH_MEM_OP_NODE_PARAMS *)
SETS_IN_EXEC(cuGraphExecChildGraphNodeSetParams, CUgraph)

/* Nodes that may copy or set memory which their context's card cannot reach: `described` is what they do (peer_nodes.h). One
 * that does not fit is refused. Where it is settled, `answer` is set, and the driver is not asked. */
#define PLACES(symbol, parameters, described, fits, is_settled, arguments)                                   \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        if (!(fits))                                                                                         \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                 \
        bool holds = named_hold(__builtin_return_address(0));                                                \
        CUgraphNodeParams work = described;                                                                  \
        CUresult answer;                                                                                     \
        if (!(is_settled))                                                                                   \
            answer = real(symbol) arguments;                                                                 \
        named_let_go(holds);                                                                                 \
        return answer;                                                                                       \
    }
#define PLACE(edges)                                                                                         \
    &(struct node_place)                                                                                     \
    {                                                                                                        \
        graph, before, edges, count                                                                          \
    }

/* Of any kind: a kernel's local memory must fit. */
#define ADDS_ANY(symbol, edges, parameters, arguments)                                                       \
    PLACES(symbol, parameters, copy_work_of_node(params), code_may_be_node(params),                          \
           peer_nodes_add(node, PLACE(edges), &work, &answer), arguments)
ADDS_ANY(cuGraphAddNode, NULL,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, size_t count,
          CUgraphNodeParams *params),
         (node, graph, before, count, peer_nodes_place(params, &work)))
#define ADDS_ANY_BY_EDGES(symbol)                                                                            \
    ADDS_ANY(symbol, edges,                                                                                  \
             (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, const CUgraphEdgeData *edges,    \
              size_t count, CUgraphNodeParams *params),                                                      \
             (node, graph, before, edges, count, peer_nodes_place(params, &work)))
ADDS_ANY_BY_EDGES(cuGraphAddNode_v2)
ADDS_ANY_BY_EDGES(cuGraphAddNode_v3)
#define SETS_ANY(symbol, parameters, arguments)                                                              \
    PLACES(symbol, parameters, copy_work_of_node(params), code_may_be_node(params),                          \
           peer_nodes_refuse(&work, &answer), arguments)
SETS_ANY(cuGraphNodeSetParams, (CUgraphNode node, CUgraphNodeParams *params),
         (node, peer_nodes_place(params, &work)))
SETS_ANY(cuGraphNodeSetParams_v2, (CUgraphNode node, CUgraphNodeParams *params),
         (node, peer_nodes_place(params, &work)))
SETS_ANY(cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params),
         (exec, node, peer_nodes_place(params, &work)))

/* Copies and memsets, each by calls of its own. */
#define COPIES_OR_SETS(kind, type, described)                                                                \
    PLACES(cuGraphAdd##kind##Node,                                                                           \
           (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, size_t count, const type *params,  \
            CUcontext context),                                                                              \
           copy_work_in(described(params), context), true,                                                   \
           peer_nodes_add(node, PLACE(NULL), &work, &answer),                                                \
           (node, graph, before, count, params, peer_nodes_context(&work)))                                  \
    PLACES(cuGraph##kind##NodeSetParams, (CUgraphNode node, const type *params), described(params), true,    \
           peer_nodes_set(node, &work, &answer), (node, params))                                             \
    PLACES(cuGraphExec##kind##NodeSetParams,                                                                 \
           (CUgraphExec exec, CUgraphNode node, const type *params, CUcontext context),                      \
           copy_work_in(described(params), context), true, peer_nodes_refuse(&work, &answer),                \
           (exec, node, params, peer_nodes_context(&work)))
COPIES_OR_SETS(Memcpy, CUDA_MEMCPY3D, copy_work_box)
COPIES_OR_SETS(Memset, CUDA_MEMSET_NODE_PARAMS, copy_work_of_fill)

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
