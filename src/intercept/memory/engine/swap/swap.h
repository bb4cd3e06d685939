/* swap.h - the engine whose memory can leave the card and come back at the same addresses.
 *
 * Linear and pitched memory lies in extents (extents.h): addresses that are reserved once, with physical memory of
 * cuMemCreate mapped there while the process is resident. swap_move.h says how it leaves and comes back.
 *
 * In an evicted process, memory is allocated and freed without the card: an extent is made without physical memory,
 * and one that is freed takes its copy with it. */
#pragma once

#include "intercept/memory/engine/engine.h"

extern const struct engine engine_swap;

/* Use this engine from now on (choose.h). */
void swap_begin(void);
