/* swap_move.h - takes memory of the swap engine off the card, and brings it back.
 *
 * Eviction copies all extents to the arena and gives their physical memory back. Restoring makes new physical memory
 * behind the same addresses and copies back. Both go batch by batch (move.h), so that memory is free on the card, or
 * used again, while the rest still moves. When a move fails, what had moved is moved back, and nothing is lost. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"

/* Bytes of extents on the card, and in the arena. */
struct swap_bytes {
    uint64_t resident_bytes, evicted_bytes;
};
struct swap_bytes swap_bytes(void);

/* Take all that moves off the card; bring all back. The caller makes sure that nothing uses the memory meanwhile, and
 * that nothing is submitted before it is back. `progress` is called from time to time. Returns CUDA_SUCCESS, or what
 * went wrong. After a failure what had moved is where it was before; if even moving it back fails, the process is
 * evicted with some of its memory on the card. */
CUresult swap_evict(void (*progress)(void));
CUresult swap_restore(void (*progress)(void));

/* While all is away: bring up to `most_bytes` of the device's memory. Its copies in the arena still hold, since
 * nothing uses the memory before swap_restore() brings the rest; swap_evict() takes it away again without a copy.
 * After a failure, what this call had brought is away again. */
CUresult swap_restore_part(CUdevice device, uint64_t most_bytes, void (*progress)(void));

/* Page-lock the arena's chunks ahead of need: during a move this would take longer than the move itself. */
void swap_lock_pages(void);

/* Whether the arena has a chunk more than all memory that moves, with a reserve, could take; and give it back to the
 * system. False if it holds the only copy of something, or the driver keeps it. */
bool swap_has_spare_chunk(void);
bool swap_give_back_chunk(void);
