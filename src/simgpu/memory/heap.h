/* heap.h - addresses for device memory: one large reservation of this process, given out in blocks of 2 MiB
 * and pieces of them. Knows nothing of GPUs' memory (device.h says what fits), and commits a page when it is
 * touched.
 *
 * block   2 MiB of the reservation: free, part of one large allocation, or cut into pieces of one size
 * class   a size of pieces: multiples of 512 bytes, as the driver aligns */
#pragma once

#include "simgpu/memory/memory.h"

/* The largest piece. What is larger has blocks of its own. */
#define HEAP_PIECE_BYTES (UINT64_C(512) << 10)

/* Reserve addresses enough for `bytes` of memory, however fragmented. Once a process. False if the kernel
 * refuses. */
bool heap_init(uint64_t bytes);

/* An address for `like->bytes` bytes (not 0); the rest of `like` is remembered with it. 0 if there is none.
 */
uint64_t heap_allocate(const struct memory_allocation *like);

/* Free what begins at `address` and is of one of `kinds` (1 << kind), and tell what it was. */
bool heap_free(uint64_t address, unsigned kinds, struct memory_allocation *allocation);

/* Set `is_synchronous` of what `address` lies in. False if nothing is there. */
bool heap_set_synchronous(uint64_t address, bool is_synchronous);

/* What `address` lies in. */
bool heap_find(uint64_t address, struct memory_allocation *allocation);

/* Call `visit` for every allocation; those for which it returns true are freed, the
 * abandoned ones for good. */
void heap_free_each(bool (*visit)(struct memory_allocation *allocation, void *context), void *context);

/* Where an allocation's bytes lie for other processes: blocks of 2 MiB of a file, and the allocation's first
 * byte in them. `share` is remembered with it. False if `address` is in none. */
struct heap_place {
    int fd;
    uint32_t first_block, block_count;
    uint64_t inside_bytes;
};
#define HEAP_BLOCK_BITS 21u
int heap_descriptor(void); /* the file */
bool heap_place_of(uint64_t address, struct heap_place *place);
void heap_set_share(uint64_t address, struct device_share *share);
/* Another process goes on with what begins at `address` after it is freed here: its blocks are never used
 * again. */
void heap_abandon(uint64_t address);
