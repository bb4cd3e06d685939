/* digester.h - computes digests of extents on the GPU, many in one launch of a kernel of ours (digest_ptx.h).
 *
 * Each context has one, with its tools (tools.h). The kernel reads what to do from page-locked memory of the host, and
 * writes the results there: that takes no memory of the card, and no copy waits in line behind those of the move. The
 * kernel itself takes some of the card's memory, which is given back when a restore lacks it.
 *
 * All of this is called under the engine's lock, with the tools' context current. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "intercept/memory/engine/swap/move/tools.h"

struct digest;

/* Add what went between two events that are reached. */
void pace_add(struct pace *pace, uint64_t bytes, CUevent begun, CUevent done);

/* Load the kernel, if it is not loaded, and run it once. False: there are no digests, perhaps because the card has no room
 * for the kernel. */
bool digester_load(struct swap_tools *tools);
/* Give back what the kernel takes of the card. False: it took nothing. */
bool digester_unload(struct swap_tools *tools);

/* Begin a round; add an extent; wait until all are computed. Each digest is set at the end of the round. False: it
 * failed, and no digest of the round holds. */
void digester_start(struct swap_tools *tools);
bool digester_add(struct swap_tools *tools, CUdeviceptr address, uint64_t bytes, struct digest *digest);
bool digester_finish(struct swap_tools *tools);
