/* clean.h - extents that have not changed since their copy was made need not be copied again.
 *
 * digest    128 bits of what an extent holds, by a kernel of ours on the GPU: taken just before each copy out, and kept
 *           with the copy, which stays in the arena after the restore
 * digester  that kernel in one context, with memory for what it finds
 *
 * trust     GPUSLICE_UNCHANGED: what the digest says is believed
 * verify    what it says has not changed is copied out as well, and compared with the copy byte by byte
 * copy      no digests are taken, and everything is copied
 *
 * Two different contents have the same digest once in 2^128, as far as nobody makes them to: only the program itself and
 * its GPU write to memory that moves (what others may reach is pinned). Where the kernel cannot be loaded, or memory for
 * results is short, everything is copied. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "intercept/memory/engine/arena.h"
#include "intercept/memory/engine/extents.h"
#include "intercept/memory/engine/tools.h"

enum clean_mode { CLEAN_TRUST, CLEAN_VERIFY, CLEAN_COPY };

/* What GPUSLICE_UNCHANGED says; what cannot be read is said on stderr, and everything is copied. */
enum clean_mode clean_mode_read(void);

/* Whether the `bytes` at `address` are those at `place` in the arena, by a compare of all. Uses the digests' stream. */
bool clean_is_same(const struct swap_tools *tools, CUdeviceptr address, const struct arena *arena,
                   uint64_t place, uint64_t bytes);

struct digester {
    CUfunction function;
    CUstream stream;
    CUdeviceptr results; /* of `room` digests; 0: there is none */
    struct digest *seen; /* the same on the host */
    uint32_t room, count;
};

/* In the current context, whose tools these are, for up to `room` digests at a time. Without success it is one that does nothing. */
void digester_begin(struct digester *digester, struct swap_tools *tools, uint32_t room);
void digester_end(struct digester *digester);

/* Begin to take digests; of each extent, which then has this number; and wait for all of them. False: there are none. */
bool digester_start(struct digester *digester);
bool digester_add(struct digester *digester, CUdeviceptr address, uint64_t bytes, uint32_t *number);
bool digester_finish(struct digester *digester);
