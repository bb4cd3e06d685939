/* clean.h - extents that have not changed since their copy was made need not be copied again.
 *
 * digest    128 bits of what an extent holds, by a kernel of ours on the GPU: taken just before each copy out, and kept
 *           with the copy, which stays in the arena after the restore
 * digester  that kernel, loaded in one context
 *
 * Two different contents have the same digest once in 2^128, as far as nobody makes them to: only the program itself and
 * its GPU write to memory that moves (what others may reach is pinned). Where the kernel cannot be loaded, or memory for
 * results is short, everything is copied. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "intercept/memory/engine/extents.h"

struct digester {
    CUfunction function;
    CUstream stream;
    CUdeviceptr results; /* of `room` digests; 0: there is none */
    struct digest *seen; /* the same on the host */
    uint32_t room, count;
};

/* In the current context, for up to `room` digests at a time. Without success it is one that does nothing. */
void digester_begin(struct digester *digester, uint32_t room);
void digester_end(struct digester *digester);

/* Begin to take digests; of each extent, which then has this number; and wait for all of them. False: there are none. */
bool digester_start(struct digester *digester);
bool digester_add(struct digester *digester, CUdeviceptr address, uint64_t bytes, uint32_t *number);
bool digester_finish(struct digester *digester);

/* A context has gone, with the kernel in it. */
void digester_forget_context(CUcontext context);
