/* peer_nodes.h - nodes of graphs that copy or set memory that the card of the node's context cannot reach (peer_copies.h).
 *
 * Where one context can do it, the node gets that context. A copy between cards that cannot reach each other names two, which a
 * program that adds such a node by hand cannot say. A captured copy can, so the node is made by capturing one, where the driver
 * captures into a graph that there is (since CUDA 12.3) and the program is not capturing into it itself; otherwise it is a child
 * graph of one captured copy. What a program sets in a node later has no place for two contexts at all. */
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

/* What a node is to do (copy_work.h), with the context that the program named. Where a function returns true, `*answer` is the
 * call's; otherwise the driver is to answer. */

/* Add a node for a copy between such cards. */
bool peer_nodes_add(CUgraphNode *node, const struct node_place *place, CUgraphNodeParams *work,
                    CUresult *answer);

/* The context that the node is to have: the one that the program named, or one that reaches the memory. */
CUcontext peer_nodes_context(CUgraphNodeParams *work);

/* The same for parameters of a node of any kind, of which `work` is a copy. Returns either. */
CUgraphNodeParams *peer_nodes_place(CUgraphNodeParams *params, CUgraphNodeParams *work);

/* Set a node by a call that names no context, so that the node may have any. */
bool peer_nodes_set(CUgraphNode node, CUgraphNodeParams *work, CUresult *answer);

/* Refuse to set a node to a copy between such cards, which could only fail whenever the graph is launched. */
bool peer_nodes_refuse(CUgraphNodeParams *work, CUresult *answer);
