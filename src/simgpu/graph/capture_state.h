/* capture_state.h - between capture.c, which has the captures, and capture_nodes.c, which puts calls into them. */
#pragma once

#include <sys/queue.h>

#include "simgpu/graph/capture.h"

/* Nodes that something will depend on. */
struct capture_tail {
    CUgraphNode *nodes;
    CUgraphEdgeData *edges;
    size_t count;
};

struct capture_stream {
    struct capture *capture;
    CUcontext context; /* the stream's */
    bool is_blocking;
    CUstream stream; /* NULL: it was destroyed; what it did may still be unjoined */
    struct capture_tail tail;
    LIST_ENTRY(capture_stream) entry; /* of the capture's */
};

struct capture_event {
    unsigned long long capture_id;
    struct capture_tail tail;
};

struct capture {
    unsigned long long id;
    CUstreamCaptureMode mode;
    unsigned long long thread; /* that began it */
    bool invalid;
    bool owns_graph; /* the graph was made for this */
    CUgraph graph;
    CUstream origin;
    LIST_HEAD(, capture_stream) streams;
    LIST_ENTRY(capture) entry; /* of all */
};

/* Guards all captures, and streams' and events' pointers to them. Each function below is called under it. */
extern pthread_mutex_t capture_lock;

/* False without memory for it. */
bool capture_tail_add(struct capture_tail *tail, CUgraphNode node, const CUgraphEdgeData *edge);
bool capture_tail_join(struct capture_tail *tail, const struct capture_tail *other);
void capture_tail_free(struct capture_tail *tail);

/* The capture that has this number and has not ended; NULL if there is no such capture. */
struct capture *capture_of_id(unsigned long long id);
/* The stream comes into the capture. NULL without memory for it. */
struct capture_stream *capture_stream_add(struct capture *capture, CUstream stream);
