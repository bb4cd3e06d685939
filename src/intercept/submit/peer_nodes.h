/* peer_nodes.h - nodes of graphs that copy between the memory of two cards that cannot reach each other (peer_copies.h).
 *
 * A program that adds such a node by hand cannot say between which contexts it copies. A captured copy can, so the node is
 * made by capturing one, where the driver captures into a graph that there is (since CUDA 12.3) and the program is not
 * capturing into it itself; otherwise it is a child graph of one captured copy. What a program sets in a node later has
 * no place for contexts at all. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cuda/driver.h"
#include "cuda/driver_more.h"

/* Where a node is added. */
struct node_place {
    CUgraph graph;
    const CUgraphNode *before;
    const CUgraphEdgeData *edges; /* NULL: as if there were none */
    size_t count;
};

/* The copy of a node of any kind; NULL: it is not a copy. */
static inline const CUDA_MEMCPY3D *peer_nodes_copy(const CUgraphNodeParams *params)
{
    return params && params->type == CU_GRAPH_NODE_TYPE_MEMCPY ? &params->memcpy.copyParams : NULL;
}

/* The context that such a node names; NULL: none. */
static inline CUcontext peer_nodes_context(const CUgraphNodeParams *params)
{
    return peer_nodes_copy(params) ? params->memcpy.copyCtx : NULL;
}

/* Add a node for a copy between such cards. False: it is not one, or it cannot be added so, and the driver is to answer. */
bool peer_nodes_add(CUgraphNode *node, const struct node_place *place, const CUDA_MEMCPY3D *copy,
                    CUcontext context);

/* Whether a node would be set to such a copy, which could only fail whenever the graph is launched. */
bool peer_nodes_cannot_set(const CUDA_MEMCPY3D *copy);
