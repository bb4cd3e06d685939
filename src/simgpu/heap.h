/* heap.h - addresses for device memory: one large reservation of this process, given out in blocks of 2 MiB
 * and pieces of them. Knows nothing of GPUs' memory (device.h says what fits), and commits a page when it is
 * touched.
 *
 * block   2 MiB of the reservation: free, part of one large allocation, or cut into pieces of one size
 * class   a size of pieces: multiples of 512 bytes, as the driver aligns */
#pragma once

#include "simgpu/memory.h"

/* Reserve addresses enough for `bytes` of memory, however fragmented. Once a process. False if the kernel
 * refuses. */
bool heap_init(uint64_t bytes);

/* An address for `like->bytes` bytes (not 0); the rest of `like` is remembered with it. 0 if there is none.
 */
uint64_t heap_allocate(const struct memory_allocation *like);

/* Free what begins at `address` and is of one of `kinds` (1 << kind), and tell what it was. */
bool heap_free(uint64_t address, unsigned kinds, struct memory_allocation *allocation);

/* What `address` lies in. */
bool heap_find(uint64_t address, struct memory_allocation *allocation);

/* Call `visit` for every allocation; those for which it returns true are freed. */
void heap_free_each(bool (*visit)(const struct memory_allocation *allocation, void *context), void *context);
