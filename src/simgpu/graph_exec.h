/* graph_exec.h - what an executable graph is, for graph_exec.c and graph_update.c. */
#pragma once

#include "simgpu/graph.h"

struct CUgraphExec_st {
    _Atomic unsigned kind;
    pthread_mutex_t turn; /* one launch or change at a time */
    CUgraph graph;        /* its own */
    CUgraph source;       /* what it was made of, if that has `source_id` still */
    unsigned long long source_id;
    cuuint64_t flags;
    CUcontext context; /* of the last launch; NULL: none yet */
    struct timeline_marks last;
    CUgraphExec next_free;
};

/* INVALID_VALUE unless it lives. */
CUresult graph_exec_check(CUgraphExec exec);
