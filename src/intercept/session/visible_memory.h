/* visible_memory.h - a session looks like a smaller GPU. */
#pragma once

#include <stdint.h>

#include "intercept/session/session.h"

struct visible_memory {
    uint64_t total_bytes, free_bytes;
};

/* What a program shall see of a GPU whose card has `card`. The total is the smaller of limit and card, or the limit where the
 * session may pass the card. Free is what is left of that; where memory stays on the card, no more than the card has. A GPU that is forbidden keeps its size and has nothing free: programs
 * that divide by a GPU's size go on. */
struct visible_memory visible_memory_of(enum gpu_place place, uint32_t gpu, struct visible_memory card);
