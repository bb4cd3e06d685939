/* clean.h - finds extents that have not changed since their copy was made, and so need not be copied again.
 *
 * digest  128 bits computed from an extent's contents by a kernel of ours on the GPU (digester.h), just before each copy
 *         out, and kept with the copy, which stays in the arena after the restore
 *
 * The modes, by GPUSLICE_UNCHANGED:
 *
 * trust     what the digest says is believed
 * verify    what the digest says has not changed is compared with its copy byte by byte, and copied if it differs
 * copy      no digests are computed, and everything is copied
 *
 * Two different contents have the same digest once in 2^128, as long as nobody constructs them: only the program
 * itself and its GPU write to memory that moves (what others may reach is pinned). Where the kernel cannot be loaded,
 * or takes longer than copies do, everything is copied. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "intercept/memory/engine/swap/extents/extents.h"
#include "intercept/memory/engine/swap/move/arena.h"
#include "intercept/memory/engine/swap/move/digester.h"
#include "intercept/memory/engine/swap/move/tools.h"
#include "intercept/memory/engine/swap/state.h"

/* Read GPUSLICE_UNCHANGED. For a value that it does not know it prints a line on stderr, and returns CLEAN_COPY. */
enum clean_mode clean_mode_read(void);

/* Whether the `bytes` at `address` are those at `place` in the arena, compared byte by byte. Uses the stream for
 * digests. */
bool clean_is_same(const struct swap_tools *tools, CUdeviceptr address, const struct arena *arena,
                   uint64_t place, uint64_t bytes);

/* At the beginning of a move out: whether it takes digests. And at its end: learn from it. */
bool clean_begin_move(struct swap_tools *tools);
void clean_end_move(struct swap_tools *tools);
