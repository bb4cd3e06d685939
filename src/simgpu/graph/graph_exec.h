/* graph_exec.h - what an executable graph is, for graph_exec.c, graph_update.c and graph_device.c. */
#pragma once

#include "simgpu/graph/graph.h"

struct CUgraphExec_st {
    _Atomic unsigned kind;
    pthread_mutex_t lock; /* one launch or change at a time */
    CUgraph graph;        /* its own */
    CUgraph source;       /* what it was made of, if that has `source_id` still */
    unsigned long long source_id;
    cuuint64_t flags;
    CUcontext context; /* of the last launch; NULL: none yet */
    struct timeline_marks last;
    CUgraphExec next_free;
};

/* INVALID_VALUE unless the exec is alive. */
CUresult graph_exec_check(CUgraphExec exec);

/* --- graph_device.c -------------------------------------------------------------------------------- */

/* Whether the graph may be launched from the device; else the node that forbids it, if one does. */
CUresult graph_device_check(CUgraph graph, CUgraphNode *wrong, CUgraphInstantiateResult *why);
/* Around one run of an exec. graph_device_end() says whether the exec is to run again behind it. */
void graph_device_begin(CUgraphExec exec);
bool graph_device_end(void);
