/* graph_dot.c - a graph as a picture: what cuGraphDebugDotPrint writes, in the language of Graphviz. */
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "simgpu/code/library.h"
#include "simgpu/graph/graph.h"

static const char *type_name(CUgraphNodeType type)
{
    static const char *const names[] = {
        [CU_GRAPH_NODE_TYPE_KERNEL] = "KERNEL",
        [CU_GRAPH_NODE_TYPE_MEMCPY] = "MEMCPY",
        [CU_GRAPH_NODE_TYPE_MEMSET] = "MEMSET",
        [CU_GRAPH_NODE_TYPE_HOST] = "HOST",
        [CU_GRAPH_NODE_TYPE_GRAPH] = "GRAPH",
        [CU_GRAPH_NODE_TYPE_EMPTY] = "EMPTY",
        [CU_GRAPH_NODE_TYPE_WAIT_EVENT] = "EVENT_WAIT",
        [CU_GRAPH_NODE_TYPE_EVENT_RECORD] = "EVENT_RECORD",
        [CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL] = "EXT_SEMAS_SIGNAL",
        [CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT] = "EXT_SEMAS_WAIT",
        [CU_GRAPH_NODE_TYPE_MEM_ALLOC] = "MEM_ALLOC",
        [CU_GRAPH_NODE_TYPE_MEM_FREE] = "MEM_FREE",
        [CU_GRAPH_NODE_TYPE_BATCH_MEM_OP] = "BATCH_MEM_OP",
        [CU_GRAPH_NODE_TYPE_CONDITIONAL] = "CONDITIONAL",
    };
    return names[type];
}

static void graph_print(FILE *file, CUgraph graph)
{
    fprintf(file, "subgraph \"cluster_%llu\" {\nlabel=\"graph_%llu\"\n", graph->id, graph->id);
    for (size_t i = 0; i < graph->node_count; i++) {
        CUgraphNode node = graph->nodes[i];
        bool has_name = node->params.type == CU_GRAPH_NODE_TYPE_KERNEL && node->params.kernel.func->image;
        fprintf(file, "\"graph_%llu_node_%zu\" [shape=\"box\" label=\"%zu\\n%s%s%s\"]\n", graph->id, i, i,
                type_name(node->params.type), has_name ? "\\n" : "",
                has_name ? node->params.kernel.func->image->name : "");
        for (unsigned body = 0; body < node->body_count; body++)
            graph_print(file, node->bodies[body]);
    }
    for (size_t i = 0; i < graph->node_count; i++)
        for (size_t j = 0; j < graph->nodes[i]->dependency_count; j++)
            fprintf(file, "\"graph_%llu_node_%zu\" -> \"graph_%llu_node_%zu\"\n", graph->id,
                    graph->nodes[i]->dependencies[j].from->index, graph->id, i);
    fprintf(file, "}\n");
}

CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags)
{
    SIM_TRY(graph_check(graph));
    SIM_REQUIRE(path && (flags & ~0xffffu) == 0);
    cleanup_file FILE *file = fopen(path, "w");
    if (!file)
        return CUDA_ERROR_OPERATING_SYSTEM;
    fprintf(file, "digraph dot {\n");
    graph_print(file, graph);
    fprintf(file, "}\n");
    return CUDA_SUCCESS;
}
