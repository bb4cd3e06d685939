/* swap_move.h - memory of the swap engine leaves the card, and comes back.
 *
 * Eviction copies all extents to the arena and gives their physical memory back; restoring makes new physical memory behind
 * the same addresses and copies back. Each goes on batch by batch (move.h), so that memory is free on the card, or used
 * again, while the rest still moves. When one fails, what had moved is moved back, and nothing is lost. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"

/* Bytes of extents on the card, and in the arena. */
struct swap_bytes {
    uint64_t resident_bytes, evicted_bytes;
};
struct swap_bytes swap_bytes(void);

/* All that moves leaves the card; all comes back. The caller sees to it that nothing uses the memory meanwhile, and that
 * nothing is submitted before it is back. `progress` is called from time to time. CUDA_SUCCESS, or what went wrong; then
 * what had moved is where it was, or where even that failed the process is evicted with some of its memory on the card. */
CUresult swap_evict(void (*progress)(void));
CUresult swap_restore(void (*progress)(void));

/* While all is away: up to `most_bytes` of the device's come, and their copies in the arena hold, as nothing uses them before
 * swap_restore() brings the rest. swap_evict() takes them away again without a copy. After a failure, what this call had
 * brought is away. */
CUresult swap_restore_part(CUdevice device, uint64_t most_bytes, void (*progress)(void));

/* Page-lock what the arena has, ahead of need: at a move it would take longer than the move. */
void swap_lock_pages(void);

/* Whether the arena has a chunk more than all that moves, and a reserve, could take; and give it back to the system. False: it has
 * what is away, or the driver keeps it. */
bool swap_has_spare_chunk(void);
bool swap_give_back_chunk(void);
