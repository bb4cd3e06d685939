/* graph.h - graphs of work: what a program builds or captures, and the executable copies of it.
 *
 * graph   nodes in the order they were added, and what each depends on
 * node    one operation: the driver's parameters, with everything they point to copied
 * body    a graph inside a node: of a child graph, or what a conditional may run
 * exec    a copy of a graph, in an order that keeps every dependency. A launch runs it through the same
 *         entry points that a program calls, on a stream of its own for each node, so that branches of a
 *         graph overlap in simulated time and results are those of the direct calls
 *
 * As with the driver, two threads must not use one graph at a time; they may launch one exec. */
#pragma once

#include "simgpu/driver/sim.h"

enum graph_kind {
    SIM_GRAPH = 0x51c0de40,
    SIM_GRAPH_NODE = 0x51c0de41,
    SIM_GRAPH_EXEC = 0x51c0de42,
    SIM_USER_OBJECT = 0x51c0de43,
    SIM_GRAPH_OF_EXEC = 0x51c0de44, /* no program ever had its handle: a handle that names it is stale */
};

/* Flags of the driver's that its prototypes pass as plain numbers (cuda.h 13.0). */
enum {
    GRAPH_AUTO_FREE_ON_LAUNCH = 1,
    GRAPH_UPLOAD = 2,
    GRAPH_DEVICE_LAUNCH = 4,
    GRAPH_USE_NODE_PRIORITY = 8,
    GRAPH_CONDITION_ASSIGN_DEFAULT = 1,
    GRAPH_USER_OBJECT_MOVE = 1,
    USER_OBJECT_NO_DESTRUCTOR_SYNC = 1,
};

struct graph_edge {
    CUgraphNode from;
    CUgraphEdgeData data;
};

/* What a kernel node says besides its parameters. */
struct graph_attributes {
    uint32_t set; /* 1 << id */
    CUlaunchAttributeValue values[CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING + 1];
};

struct CUgraphNode_st {
    _Atomic unsigned kind;
    CUgraph graph;
    CUgraphNode origin; /* what this is a copy of, or NULL */
    size_t index;       /* in its graph */
    CUcontext context;  /* where it runs */
    bool disabled;      /* of an exec's */
    struct graph_edge *dependencies;
    size_t dependency_count;

    CUgraphNodeParams params; /* what its pointers point to is in `owned`, or in `bodies` */
    void *owned;
    size_t owned_bytes;
    struct graph_attributes *attributes; /* NULL: none */
    CUgraph *bodies;
    unsigned body_count;
    struct graph_memory *memory; /* of nodes that allocate */

    /* What an exec's node runs on, under the exec's lock; afterwards what to wait for. */
    struct CUstream_st stream;
    CUgraphNode next_free;
};

struct graph_user_reference {
    CUuserObject object;
    unsigned count;
};

struct CUgraph_st {
    _Atomic unsigned kind;
    unsigned long long id;
    CUgraph origin;
    CUgraphNode parent; /* the node whose body it is, or NULL */
    CUgraphNode *nodes;
    size_t node_count, node_capacity;
    CUgraphNode *order; /* of an exec's */
    struct graph_user_reference *references;
    size_t reference_count;
    bool capturing;         /* until the capture into it ends */
    atomic_uint exec_count; /* living execs made of it */
    CUgraph next_free;
};

/* --- graph.c --------------------------------------------------------------------------------------- */

CUresult graph_check(CUgraph graph);
CUresult graph_node_check(CUgraphNode node);
CUgraph graph_make(void);
void graph_free(CUgraph graph);

/* A copy with all nodes, of bodies too. Memory nodes go with it only if `with_memory`. */
CUresult graph_copy(CUgraph graph, bool with_memory, CUgraph *copy);

/* Add an empty node behind the graph's others, and check what it depends on. Undo with graph_node_drop(). */
CUresult graph_node_make(CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                         size_t count, CUgraphNode *node);
void graph_node_drop(CUgraphNode node);

/* Put all nodes into `order` so that dependencies are kept. Returns NULL, or a node of a cycle. */
CUgraphNode graph_sort(CUgraph graph, CUgraphNode *order);

bool graph_has_memory(CUgraph graph);
/* Whether an edge says more than that one node is after another. */
bool graph_edge_is_plain(const CUgraphEdgeData *data);

/* --- graph_nodes.c --------------------------------------------------------------------------------- */

/* Check parameters and make them the node's own. `context` is the one for those that name none. On failure
 * the node is as it was. */
CUresult graph_node_set(CUgraphNode node, const CUgraphNodeParams *params, CUcontext context);
/* Make `node` what `from` is. */
CUresult graph_node_copy(CUgraphNode node, CUgraphNode from, bool with_memory);
/* Let go of all that a node's parameters own. */
void graph_node_clear(CUgraphNode node);

/* Add a node as cuGraphAddNode does; what the driver tells about it is written into `params`. */
CUresult graph_node_add(CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                        size_t count, CUgraphNodeParams *params, CUcontext context, CUgraphNode *node);
void graph_node_set_attribute(CUgraphNode node, CUlaunchAttributeID id, const CUlaunchAttributeValue *value);

/* --- graph_objects.c ------------------------------------------------------------------------------- */

/* Take and release a graph's references of user objects. */
CUresult graph_references_copy(CUgraph to, CUgraph from);
void graph_references_release(CUgraph graph);

/* --- graph_condition.c ----------------------------------------------------------------------------- */

/* The values that conditional nodes ask. Handles are never used twice. */
bool graph_condition_exists(CUgraphConditionalHandle handle, CUgraph graph);
unsigned graph_condition_value(CUgraphConditionalHandle handle);
/* What a kernel does by cudaGraphSetConditional. False if no condition has that handle. */
bool graph_condition_set(CUgraphConditionalHandle handle, unsigned value);
void graph_condition_begin(CUgraphConditionalHandle handle); /* at a launch: set its default */

/* --- graph_device.c -------------------------------------------------------------------------------- */

/* Let the graph that this thread runs now run again behind its end, as a kernel of it asks for. False if the
 * graph may not be launched from the device. */
bool graph_device_relaunch(void);

/* --- graph_memory.c -------------------------------------------------------------------------------- */

/* An allocation of a graph. It has its address from when the node is made, and its bytes from when the node
 * runs until they are freed. A node and its copies share one allocation. */
struct graph_memory;

CUresult graph_memory_make(unsigned gpu, uint64_t bytes, struct graph_memory **memory, uint64_t *address);
void graph_memory_retain(struct graph_memory *memory);
void graph_memory_release(struct graph_memory *memory);
/* What an address allocated by a graph belongs to, or NULL. */
struct graph_memory *graph_memory_at(uint64_t address);
bool graph_memory_is_live(const struct graph_memory *memory);
unsigned graph_memory_gpu(const struct graph_memory *memory);
uint64_t graph_memory_bytes(const struct graph_memory *memory);

/* Reserve `bytes` more than what is used; false if the device does not have so much. */
bool graph_memory_reserve(unsigned gpu, uint64_t bytes);
CUresult graph_memory_allocate(struct graph_memory *memory);
CUresult graph_memory_free(struct graph_memory *memory);
