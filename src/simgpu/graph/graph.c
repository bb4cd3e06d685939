/* graph.c - graphs as such: nodes, what they depend on, copies. */
#include "simgpu/graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static CUgraphNode free_nodes;
static CUgraph free_graphs;
static atomic_ullong next_graph_id;

CUresult graph_check(CUgraph graph)
{
    SIM_TRY(sim_ready());
    return graph && atomic_load(&graph->kind) == SIM_GRAPH ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult graph_node_check(CUgraphNode node)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(node && atomic_load(&node->kind) == SIM_GRAPH_NODE);
    return graph_check(node->graph);
}

bool graph_edge_is_plain(const CUgraphEdgeData *data)
{
    return data->from_port == 0 && data->to_port == 0 && data->type == 0;
}

/* --- Making and dropping --------------------------------------------------------------------------- */

CUgraph graph_make(void)
{
    pthread_mutex_lock(&free_lock);
    CUgraph graph = free_graphs;
    if (graph)
        free_graphs = graph->next_free;
    pthread_mutex_unlock(&free_lock);
    if (graph)
        memset(graph, 0, sizeof(*graph));
    else if (!(graph = calloc(1, sizeof(*graph))))
        return NULL;
    graph->id = atomic_fetch_add(&next_graph_id, 1) + 1;
    atomic_store(&graph->kind, SIM_GRAPH);
    return graph;
}

static void node_free(CUgraphNode node)
{
    atomic_store(&node->kind, SIM_DESTROYED);
    graph_node_clear(node);
    free(node->attributes);
    node->attributes = NULL;
    free(node->dependencies);
    node->dependencies = NULL;
    node->dependency_count = 0;
    pthread_mutex_lock(&free_lock);
    node->next_free = free_nodes;
    free_nodes = node;
    pthread_mutex_unlock(&free_lock);
}

void graph_free(CUgraph graph)
{
    atomic_store(&graph->kind, SIM_DESTROYED);
    for (size_t i = 0; i < graph->node_count; i++)
        node_free(graph->nodes[i]);
    free(graph->nodes);
    free(graph->order);
    graph->nodes = graph->order = NULL;
    graph->node_count = 0;
    graph_references_release(graph);
    pthread_mutex_lock(&free_lock);
    graph->next_free = free_graphs;
    free_graphs = graph;
    pthread_mutex_unlock(&free_lock);
}

static CUgraphNode node_take(void)
{
    pthread_mutex_lock(&free_lock);
    CUgraphNode node = free_nodes;
    if (node)
        free_nodes = node->next_free;
    pthread_mutex_unlock(&free_lock);
    if (node)
        memset(node, 0, sizeof(*node));
    return node ? node : calloc(1, sizeof(*node));
}

/* Put the node behind the others. */
static bool graph_append(CUgraph graph, CUgraphNode node)
{
    if (graph->node_count == graph->node_capacity) {
        size_t capacity = graph->node_capacity ? graph->node_capacity * 2 : 16;
        CUgraphNode *nodes = realloc(graph->nodes, capacity * sizeof(CUgraphNode));
        if (!nodes)
            return false;
        graph->nodes = nodes;
        graph->node_capacity = capacity;
    }
    node->graph = graph;
    node->index = graph->node_count;
    graph->nodes[graph->node_count++] = node;
    return true;
}

static struct graph_edge *edge_find(CUgraphNode to, CUgraphNode from)
{
    for (size_t i = 0; i < to->dependency_count; i++)
        if (to->dependencies[i].from == from)
            return &to->dependencies[i];
    return NULL;
}

/* The ports and types that exist (cuda.h 13.0). A kernel's can also be "programmatic" and "launch order",
 * which wait for less on a card, and here for all. */
static CUresult edge_check(CUgraphNode from, const CUgraphEdgeData *data)
{
    if (graph_edge_is_plain(data))
        return CUDA_SUCCESS;
    SIM_REQUIRE(data->type <= 1 && data->to_port == 0 && data->from_port <= 2);
    SIM_REQUIRE(from->params.type == CU_GRAPH_NODE_TYPE_KERNEL);
    SIM_REQUIRE(data->type == 1 ? data->from_port != 0 : data->from_port == 0);
    return CUDA_SUCCESS;
}

static CUresult edge_add(CUgraphNode to, CUgraphNode from, const CUgraphEdgeData *data)
{
    static const CUgraphEdgeData plain;
    SIM_TRY(graph_node_check(from));
    SIM_REQUIRE(from->graph == to->graph && from != to && !edge_find(to, from));
    if (!data)
        data = &plain;
    SIM_TRY(edge_check(from, data));
    struct graph_edge *edges =
        realloc(to->dependencies, (to->dependency_count + 1) * sizeof(struct graph_edge));
    if (!edges)
        return CUDA_ERROR_OUT_OF_MEMORY;
    to->dependencies = edges;
    edges[to->dependency_count++] = (struct graph_edge){.from = from, .data = *data};
    return CUDA_SUCCESS;
}

static void edge_remove(CUgraphNode to, const struct graph_edge *edge)
{
    size_t at = (size_t)(edge - to->dependencies);
    memmove(&to->dependencies[at], &to->dependencies[at + 1],
            (to->dependency_count - at - 1) * sizeof(struct graph_edge));
    to->dependency_count--;
}

CUresult graph_node_make(CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                         size_t count, CUgraphNode *node_out)
{
    SIM_REQUIRE(count == 0 || dependencies);
    CUgraphNode node = node_take();
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->graph = graph;
    node->params.type = CU_GRAPH_NODE_TYPE_EMPTY;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = edge_add(node, dependencies[i], edges ? &edges[i] : NULL);
    if (result == CUDA_SUCCESS && !graph_append(graph, node))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        node_free(node);
        return result;
    }
    atomic_store(&node->kind, SIM_GRAPH_NODE);
    *node_out = node;
    return CUDA_SUCCESS;
}

void graph_node_drop(CUgraphNode node)
{
    CUgraph graph = node->graph;
    for (size_t i = 0; i < graph->node_count; i++) {
        struct graph_edge *edge = edge_find(graph->nodes[i], node);
        if (edge)
            edge_remove(graph->nodes[i], edge);
    }
    memmove(&graph->nodes[node->index], &graph->nodes[node->index + 1],
            (graph->node_count - node->index - 1) * sizeof(CUgraphNode));
    graph->node_count--;
    for (size_t i = node->index; i < graph->node_count; i++)
        graph->nodes[i]->index = i;
    node_free(node);
}

/* --- The whole ------------------------------------------------------------------------------------- */

bool graph_has_memory(CUgraph graph)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        CUgraphNode node = graph->nodes[i];
        if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
            node->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
            return true;
        for (unsigned body = 0; body < node->body_count; body++)
            if (graph_has_memory(node->bodies[body]))
                return true;
    }
    return false;
}

CUgraphNode graph_sort(CUgraph graph, CUgraphNode *order)
{
    size_t count = graph->node_count, placed = 0;
    cleanup_free bool *is_placed = calloc(count ? count : 1, sizeof(bool));
    if (!is_placed)
        return count ? graph->nodes[0] : NULL;
    /* Nodes mostly depend on earlier ones, so that one pass does it. */
    while (placed < count) {
        size_t before = placed;
        for (size_t i = 0; i < count; i++) {
            CUgraphNode node = graph->nodes[i];
            bool is_ready = !is_placed[i];
            for (size_t j = 0; j < node->dependency_count && is_ready; j++)
                is_ready = is_placed[node->dependencies[j].from->index];
            if (is_ready) {
                is_placed[i] = true;
                order[placed++] = node;
            }
        }
        if (placed == before)
            break;
    }
    for (size_t i = 0; i < count; i++)
        if (!is_placed[i])
            return graph->nodes[i];
    return NULL;
}

CUresult graph_copy(CUgraph graph, bool with_memory, CUgraph *copy_out)
{
    CUgraph copy = graph_make();
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    copy->origin = graph;
    CUresult result = graph_references_copy(copy, graph);
    for (size_t i = 0; i < graph->node_count && result == CUDA_SUCCESS; i++) {
        CUgraphNode node;
        result = graph_node_make(copy, NULL, NULL, 0, &node);
        if (result == CUDA_SUCCESS) {
            node->origin = graph->nodes[i];
            result = graph_node_copy(node, graph->nodes[i], with_memory);
        }
    }
    for (size_t i = 0; i < graph->node_count && result == CUDA_SUCCESS; i++) {
        const struct CUgraphNode_st *node = graph->nodes[i];
        for (size_t j = 0; j < node->dependency_count && result == CUDA_SUCCESS; j++)
            result = edge_add(copy->nodes[i], copy->nodes[node->dependencies[j].from->index],
                              &node->dependencies[j].data);
    }
    if (result != CUDA_SUCCESS) {
        graph_free(copy);
        return result;
    }
    *copy_out = copy;
    return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph *graph_out, unsigned int flags)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(graph_out && flags == 0);
    CUgraph graph = graph_make();
    if (!graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *graph_out = graph;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    SIM_TRY(graph_check(graph));
    SIM_REQUIRE(!graph->parent && !graph->capturing);
    graph_free(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *clone, CUgraph graph)
{
    SIM_TRY(graph_check(graph));
    SIM_REQUIRE(clone);
    if (graph_has_memory(graph))
        return CUDA_ERROR_NOT_SUPPORTED; /* an address belongs to one graph */
    return graph_copy(graph, false, clone);
}

CUresult cuGraphNodeFindInClone(CUgraphNode *node_out, CUgraphNode original, CUgraph clone)
{
    SIM_TRY(graph_node_check(original));
    SIM_TRY(graph_check(clone));
    SIM_REQUIRE(node_out);
    for (size_t i = 0; i < clone->node_count; i++)
        if (clone->nodes[i]->origin == original) {
            *node_out = clone->nodes[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphDestroyNode(CUgraphNode node)
{
    SIM_TRY(graph_node_check(node));
    SIM_REQUIRE(!node->graph->capturing);
    if (graph_has_memory(node->graph))
        return CUDA_ERROR_NOT_SUPPORTED;
    graph_node_drop(node);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    SIM_TRY(graph_node_check(node));
    SIM_REQUIRE(type);
    *type = node->params.type;
    return CUDA_SUCCESS;
}

/* --- Lists ----------------------------------------------------------------------------------------- */

/* Where the driver's lists go, with room for `capacity` in each. The caller learns how many there are; room
 * that is left over becomes NULL. */
struct node_list {
    CUgraphNode *first, *second; /* second: of edges */
    CUgraphEdgeData *data;
    size_t capacity, count;
    bool is_lossy; /* something other than plain had no place */
};

static void list_add(struct node_list *list, CUgraphNode first, CUgraphNode second,
                     const CUgraphEdgeData *data)
{
    if (data && !list->data && !graph_edge_is_plain(data))
        list->is_lossy = true;
    if (list->count < list->capacity) {
        if (list->first)
            list->first[list->count] = first;
        if (list->second)
            list->second[list->count] = second;
        if (list->data && data)
            list->data[list->count] = *data;
    }
    list->count++;
}

static CUresult list_end(struct node_list *list, size_t *count)
{
    if (list->is_lossy && list->first)
        return CUDA_ERROR_LOSSY_QUERY;
    for (size_t i = list->count; i < list->capacity && list->first; i++) {
        list->first[i] = NULL;
        if (list->second)
            list->second[i] = NULL;
    }
    *count = !list->first || list->count < list->capacity ? list->count : list->capacity;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SIM_TRY(graph_check(graph));
    SIM_REQUIRE(count);
    struct node_list list = {.first = nodes, .capacity = nodes ? *count : 0};
    for (size_t i = 0; i < graph->node_count; i++)
        list_add(&list, graph->nodes[i], NULL, NULL);
    return list_end(&list, count);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SIM_TRY(graph_check(graph));
    SIM_REQUIRE(count);
    struct node_list list = {.first = nodes, .capacity = nodes ? *count : 0};
    for (size_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->dependency_count == 0)
            list_add(&list, graph->nodes[i], NULL, NULL);
    return list_end(&list, count);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                            size_t *count)
{
    SIM_TRY(graph_check(graph));
    SIM_REQUIRE(count && !from == !to && (!data || from));
    struct node_list list = {.first = from, .second = to, .data = data, .capacity = from ? *count : 0};
    for (size_t i = 0; i < graph->node_count; i++) {
        CUgraphNode node = graph->nodes[i];
        for (size_t j = 0; j < node->dependency_count; j++)
            list_add(&list, node->dependencies[j].from, node, &node->dependencies[j].data);
    }
    return list_end(&list, count);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data,
                                       size_t *count)
{
    SIM_TRY(graph_node_check(node));
    SIM_REQUIRE(count && (!data || nodes));
    struct node_list list = {.first = nodes, .data = data, .capacity = nodes ? *count : 0};
    for (size_t i = 0; i < node->dependency_count; i++)
        list_add(&list, node->dependencies[i].from, NULL, &node->dependencies[i].data);
    return list_end(&list, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return cuGraphNodeGetDependencies_v2(node, nodes, NULL, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data,
                                         size_t *count)
{
    SIM_TRY(graph_node_check(node));
    SIM_REQUIRE(count && (!data || nodes));
    struct node_list list = {.first = nodes, .data = data, .capacity = nodes ? *count : 0};
    for (size_t i = 0; i < node->graph->node_count; i++) {
        const struct graph_edge *edge = edge_find(node->graph->nodes[i], node);
        if (edge)
            list_add(&list, node->graph->nodes[i], NULL, &edge->data);
    }
    return list_end(&list, count);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return cuGraphNodeGetDependentNodes_v2(node, nodes, NULL, count);
}

/* --- Dependencies ---------------------------------------------------------------------------------- */

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *data, size_t count)
{
    SIM_TRY(graph_check(graph));
    SIM_REQUIRE(count == 0 || (from && to));
    for (size_t i = 0; i < count; i++) {
        SIM_TRY(graph_node_check(to[i]));
        SIM_REQUIRE(to[i]->graph == graph);
        CUresult result = edge_add(to[i], from[i], data ? &data[i] : NULL);
        if (result == CUDA_SUCCESS)
            continue;
        while (i-- > 0)
            edge_remove(to[i], edge_find(to[i], from[i]));
        return result;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    return cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}

/* Without `data` an edge that has data stays (driver API reference: LOSSY_QUERY); with `data`, the edge's has
 * to be the same. */
CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *data, size_t count)
{
    SIM_TRY(graph_check(graph));
    SIM_REQUIRE(count == 0 || (from && to));
    SIM_REQUIRE(!graph->capturing);
    if (graph_has_memory(graph))
        return CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < count; i++) {
        SIM_TRY(graph_node_check(to[i]));
        SIM_REQUIRE(to[i]->graph == graph);
        const struct graph_edge *edge = edge_find(to[i], from[i]);
        SIM_REQUIRE(edge);
        if (!data && !graph_edge_is_plain(&edge->data))
            return CUDA_ERROR_LOSSY_QUERY;
        SIM_REQUIRE(!data || memcmp(&data[i], &edge->data, sizeof(*data)) == 0);
    }
    for (size_t i = 0; i < count; i++) {
        const struct graph_edge *edge = edge_find(to[i], from[i]);
        if (edge) /* the same may be said twice */
            edge_remove(to[i], edge);
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t count)
{
    return cuGraphRemoveDependencies_v2(graph, from, to, NULL, count);
}
