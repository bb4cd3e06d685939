/* clean.h - finds extents that have not changed since their copy was made, and so need not be copied again.
 *
 * digest    128 bits computed from an extent's contents by a kernel of ours on the GPU, just before each copy out, and
 *           kept with the copy, which stays in the arena after the restore
 * digester  that kernel in one context, with memory for its results
 *
 * The modes, by GPUSLICE_UNCHANGED:
 *
 * trust     what the digest says is believed
 * verify    what the digest says has not changed is compared with its copy byte by byte, and copied if it differs
 * copy      no digests are computed, and everything is copied
 *
 * Two different contents have the same digest once in 2^128, as long as nobody constructs them: only the program
 * itself and its GPU write to memory that moves (what others may reach is pinned). Where the kernel cannot be loaded,
 * or there is no memory for the results, everything is copied. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "intercept/memory/engine/arena.h"
#include "intercept/memory/engine/extents.h"
#include "intercept/memory/engine/state.h"
#include "intercept/memory/engine/tools.h"

/* Read GPUSLICE_UNCHANGED. For a value that it does not know it prints a line on stderr, and returns CLEAN_COPY. */
enum clean_mode clean_mode_read(void);

/* Whether the `bytes` at `address` are those at `place` in the arena, compared byte by byte. Uses the stream for
 * digests. */
bool clean_is_same(const struct swap_tools *tools, CUdeviceptr address, const struct arena *arena,
                   uint64_t place, uint64_t bytes);

struct digester {
    CUfunction function;
    CUstream stream;
    CUdeviceptr results; /* of `room` digests; 0: the digester computes none */
    struct digest *seen; /* the results on the host */
    uint32_t room, count;
};

/* Begin in the current context, whose tools these are, with room for `room` digests at a time. If that fails, the
 * digester computes none. */
void digester_begin(struct digester *digester, struct swap_tools *tools, uint32_t room);
void digester_end(struct digester *digester);

/* Begin a round of digests; add an extent, whose digest gets this number; wait for all of the round. False: it
 * failed, and there are no digests. */
bool digester_start(struct digester *digester);
bool digester_add(struct digester *digester, CUdeviceptr address, uint64_t bytes, uint32_t *number);
bool digester_finish(struct digester *digester);
