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
 * went wrong. CUDA_ERROR_OUT_OF_MEMORY: an arena that others fill had room for some of the memory, which is away now, or
 * for none; call again when there is more. CUDA_ERROR_NOT_READY: work goes on
 * that the drain has not seen, and nothing has moved. After any other failure what had moved is where it was before; if even moving
 * it back fails, the process is evicted with some of its memory on the card. */
CUresult swap_evict(void (*progress)(void));
CUresult swap_restore(void (*progress)(void));

/* While all is away: bring up to `most_bytes` of the device's memory. Its copies in the arena still hold, since
 * nothing uses the memory before swap_restore() brings the rest; swap_evict() takes it away again without a copy.
 * After a failure, what this call had brought is away again. */
CUresult swap_restore_part(CUdevice device, uint64_t most_bytes, void (*progress)(void));

/* Whether the arena has a chunk more than all memory that moves, with a reserve, could take. */
bool swap_has_spare_chunk(void);
/* Give the last chunk back to the system, if it is spare or there is more than `keep_bytes`. False if not, if it holds the
 * only copy of something, or if the driver keeps it. Called by the thread that moves memory, without locks. */
bool swap_give_back_chunk(uint64_t keep_bytes);

/* --- page_lock.c ----------------------------------------------------------------------------------- */

/* Page-locks the arena (arena.h) in the background, a piece at a time, and undoes it.
 *
 * No lock of ours is held while the driver works: threads allocate, launch, and make contexts meanwhile. The context is
 * held (context_locks.h): a thread that destroys it waits for one piece. Called by the thread that takes chunks, gives them
 * back and moves memory, so no piece goes meanwhile. */
enum page_lock {
    PAGE_LOCK_DONE, /* one more piece is page-locked */
    PAGE_LOCK_ALL,  /* all were */
    PAGE_LOCK_NOT,  /* the driver refuses, or there is no context to page-lock it in */
};

enum page_lock page_lock_next(void);

/* Undo it in [begin, end) of the arena. False if the driver refuses for a piece. */
bool page_lock_undo(uint64_t begin, uint64_t end);
