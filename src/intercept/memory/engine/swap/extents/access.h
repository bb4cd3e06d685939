/* access.h - who may reach extents and the program's mappings, and how it gets to.
 *
 * opener  gives access to memory that was mapped just now. Opening costs a call, so memory that lies side by side in one
 *         reservation, for the same devices, is opened by one
 *
 * All of this is called under the engine's lock. */
#pragma once

#include "intercept/memory/engine/swap/state.h"

#define OPENER_AREAS 256u

struct opener {
    CUresult result; /* of what was opened so far */
    uint32_t count;
    struct opener_area {
        uint64_t address, bytes;
        const struct extent *extent;
        const struct mapping *mapping; /* NULL: `extent` is there itself */
    } areas[OPENER_AREAS];
};

static inline void opener_begin(struct opener *opener)
{
    opener->result = CUDA_SUCCESS;
    opener->count = 0;
}

/* Open the extent, wherever it is mapped: at once, or with others at the end. It must not move or end before that. */
void opener_add(struct opener *opener, const struct extent *extent);
/* Open what is not yet. Returns the first error. */
CUresult opener_end(struct opener *opener);

/* The devices that may reach the extent: a bit for each, by ordinal. */
uint64_t extent_devices(const struct extent *extent);
