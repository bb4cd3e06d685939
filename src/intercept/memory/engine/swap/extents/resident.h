/* resident.h - extents, and the physical memory behind them. All of this is called under the engine's lock. */
#pragma once

#include "intercept/memory/engine/swap/state.h"

#define SWAP_GRANULARITY_BYTES (UINT64_C(2) << 20) /* of device memory, on all cards so far (measure) */

/* Make extents of at least `bytes`, at addresses of their own: on the card, unless the process is evicted. A large
 * allocation is made in pieces; returns the first. NULL with `*result` if it fails, and then nothing has changed. */
struct extent *extent_make(CUcontext context, CUdevice device, uint64_t bytes, bool is_shared,
                           CUresult *result);
/* The same at these addresses of a pool, where each piece is an extent by itself. And end the extents that lie
 * there. */
CUresult extents_make_at(CUdevice device, uint64_t address, uint64_t bytes, uint32_t pool);
void extents_end_at(uint64_t address, uint64_t bytes);
/* End an extent with all pieces of its allocation, and give back its addresses unless they are a pool's. If the
 * driver refuses, nothing has changed. */
CUresult extent_end(struct extent *extent);

/* Give an extent physical memory, which has none, to be opened (access.h); take it away. Returns what the driver answers;
 * after an error nothing has changed. */
CUresult extent_make_resident(struct extent *extent);
CUresult extent_leave_card(struct extent *extent);

/* Whether RDMA may reach linear memory that we make on the device, as it may reach cuMemAlloc's. */
bool extents_are_for_rdma(CUdevice device);

/* Add an extent to the sums of bytes, as it is now; or take it out of them. */
void extent_count(const struct extent *extent, bool is_there);
/* Change where it is among those states in which it is on the card, or among those in which it is away. */
void extent_set_residence(struct extent *extent, enum residence residence);
/* Whether each extent is valid, and the sums are theirs. */
bool extents_are_valid(void);

/* From now on the extent stays on the card, where it is. And: what it was pinned for did not happen. */
void extent_pin(struct extent *extent, enum wire_stays why);
void extent_unpin(struct extent *extent, enum wire_stays why);

/* A number for the allocation in a shared extent that begins at `address`: the one that it has, or a new one. And: the
 * allocations that begin in a range of such an extent have ended. */
uint32_t extent_number_small(struct extent *extent, uint64_t address);
void extent_forget_numbers(const struct extent *extent, uint64_t address, uint64_t bytes);

/* Give back its place in the arena, if it has one. */
void extent_give_up_place(struct extent *extent);
