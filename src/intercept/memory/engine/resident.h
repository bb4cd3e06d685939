/* resident.h - extents, and the physical memory behind them. All of this is called under the engine's lock. */
#pragma once

#include "intercept/memory/engine/state.h"

#define SWAP_GRANULARITY_BYTES (UINT64_C(2) << 20) /* of device memory on all cards so far (measure) */

/* New extents of at least `bytes`, at addresses of their own: on the card, unless the process is evicted. What is large is made
 * in pieces, of which this is the first. NULL with `*result`, and nothing has changed. */
struct extent *extent_make(CUcontext context, CUdevice device, uint64_t bytes, bool is_shared,
                           CUresult *result);
/* The same at these addresses of a pool, where each piece is an extent for itself; and those that lie there go. */
CUresult extents_make_at(CUdevice device, uint64_t address, uint64_t bytes, uint32_t pool);
void extents_end_at(uint64_t address, uint64_t bytes);
/* An extent goes with all pieces of its allocation, and its addresses unless they are a pool's. Where the driver refuses,
 * nothing has changed. */
CUresult extent_end(struct extent *extent);

/* Physical memory for an extent that has none; and away with it. What the driver answers; where that is an error, nothing
 * has changed. */
CUresult extent_make_resident(struct extent *extent);
CUresult extent_leave_card(struct extent *extent);

/* Whether RDMA may reach linear memory that is made on the device, as it may cuMemAlloc's. */
bool extents_are_for_rdma(CUdevice device);

/* Let peers reach it that may (cuCtxEnablePeerAccess). */
CUresult extent_open_to_peers(const struct extent *extent);

/* Count an extent as one that is on the card, or away; and as none any more. */
void extent_count(const struct extent *extent, bool is_there);

/* It stays on the card from now on, where it is. */
void extent_pin(struct extent *extent);

/* Where it has a place in the arena, that is free again. */
void extent_give_up_place(struct extent *extent);
