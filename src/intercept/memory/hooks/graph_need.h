/* graph_need.h - how much memory a graph needs for its memory nodes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "ledger/ledger.h"

struct graph_need {
    /* By CUDA's ordinal of the device: the most that is allocated there and not yet freed, if the nodes run in the
     * order in which the graph lists them. */
    uint64_t bytes[LEDGER_GPUS];
};

/* Read a graph and the graphs in it. False when it allocates nothing on any device, or cannot be read. Slow: asks the
 * driver about each node. Call inside own calls (resolve/own_calls.h). */
bool graph_need(CUgraph graph, struct graph_need *need);
