/* blocks.h - how linear memory is taken from a GPU: by the byte, or in blocks as a card's driver does.
 *
 * FAKECUDA_BLOCK_BYTES   size of the blocks, of which small allocations share one; 0 (the default): exact.
 * What a process's last block has left over is its slack: NVML shows it, and no allocation asked for it.
 *
 * NVML's figure for a process leaves managed memory out, while it counts as used on the card (measure). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "simgpu/memory/memory.h"

/* Take `bytes` of the GPU's memory for an allocation of this kind; false if they do not fit. */
bool blocks_take(unsigned gpu, enum memory_kind kind, uint64_t bytes);
void blocks_give_back(unsigned gpu, enum memory_kind kind, uint64_t bytes);
