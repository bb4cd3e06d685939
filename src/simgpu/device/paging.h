/* paging.h - how much managed memory a GPU holds, where there may be more of it than the GPU has (constant PAGING).
 *
 * No page is in a table that processes share: what is known of a page is its owner's alone (memory/managed.h). The GPU
 * counts the bytes that were ever brought to it or, where there is less room than memory, used there: its age. A piece that was last
 * used at one age is gone once it and what was used since are more than the GPU has room for: which is what becomes of it under
 * a driver that throws out what was used longest ago, when programs go through their pieces from end to end; what is used again and
 * again counts each time. Other memory comes first: managed memory has the room that it leaves.
 *
 * The count of what a process holds is its own: it takes out what it finds gone, not when that goes. So the sum may say more
 * than the room, and means the room then. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

bool paging_is_on(void);

/* Bring bytes of this process's to the GPU, for the first time or `again`. Returns how many, of anybody's, leave for them. */
uint64_t paging_bring(unsigned gpu, uint64_t bytes, bool again);
/* They are used, and are there. */
void paging_use(unsigned gpu, uint64_t bytes);
/* They are moved away or freed, whether or not they were thrown out before. */
void paging_leave(unsigned gpu, uint64_t bytes);

/* The GPU's age in bytes; and whether a piece that was last used at one is still there. */
uint64_t paging_age(unsigned gpu);
bool paging_holds(unsigned gpu, uint64_t age, uint64_t bytes);

/* Managed memory of all living processes that is on the GPU. */
uint64_t paging_held_bytes(unsigned gpu);
