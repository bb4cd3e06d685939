/* visible_memory.h - makes a session look like a smaller GPU to its programs. */
#pragma once

#include <stdint.h>

#include "intercept/session/session.h"

struct visible_memory {
    uint64_t total_bytes, free_bytes;
};

/* What a program is shown of a GPU whose card has `card`. The total is the smaller of limit and card; it is the limit
 * where the session may pass the card. Free is the total less what the session uses, but not more than the card has
 * free where memory cannot leave the card. A GPU that is forbidden keeps its size and has nothing free, so that
 * programs which divide by a GPU's size still run. */
struct visible_memory visible_memory_of(enum gpu_place place, uint32_t gpu, struct visible_memory card);
