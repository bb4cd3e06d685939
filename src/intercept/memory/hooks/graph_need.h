/* graph_need.h - how much memory a graph needs for its memory nodes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"

struct graph_need {
    /* The most that is allocated and not yet freed, in the order in which the graph lists its nodes. */
    uint64_t bytes;
    CUdevice device;
    /* All on which it allocates: bit d: CUDA's device d. */
    uint64_t devices;
};

/* Look through a graph and the graphs in it. False when it allocates nothing on a device, or cannot be read.
 * Where it allocates on several devices, the need on the one of most. Slow: asks the driver for each node.
 * Call inside own calls (resolve/own_calls.h). */
bool graph_need(CUgraph graph, struct graph_need *need);
