/* paging.h - how much managed memory a GPU holds, where there may be more of it than the GPU has (constant PAGING).
 *
 * Processes share no table of pages: only a page's owner knows about it (memory/managed.h). The GPU counts the bytes
 * that were ever brought to it or, where there is less room than memory, used there: its age. A piece is gone once it and
 * what was used since its last use are more than the GPU has room for. A driver that throws out what was used longest ago
 * does the same, when programs go through their pieces from end to end; what is used again and again counts each time.
 * Other memory comes first: managed memory has the room that it leaves.
 *
 * Each process counts what it holds, and takes a piece out when it finds the piece gone, not when the piece goes. So the
 * sum may be more than the room, and then means the room. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

bool paging_is_on(void);

/* Bring bytes of this process to the GPU, for the first time or `again`. Returns how many bytes, of any process, leave for
 * them. */
uint64_t paging_bring(unsigned gpu, uint64_t bytes, bool again);
/* The bytes are used, and are on the GPU. */
void paging_use(unsigned gpu, uint64_t bytes);
/* The bytes are moved away or freed, whether or not they were thrown out before. */
void paging_leave(unsigned gpu, uint64_t bytes);

/* The GPU's age in bytes; and whether a piece that was last used at an age is still there. */
uint64_t paging_age(unsigned gpu);
bool paging_holds(unsigned gpu, uint64_t age, uint64_t bytes);

/* Managed memory of all living processes that is on the GPU. */
uint64_t paging_held_bytes(unsigned gpu);
