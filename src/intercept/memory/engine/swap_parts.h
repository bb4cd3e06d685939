/* swap_parts.h - what the files of the swap engine use of each other. */
#pragma once

#include "intercept/memory/area.h"
#include "intercept/memory/engine/swap.h"

static inline struct swap *swap_state(void)
{
    return (struct swap *)(void *)memory_area()->engine;
}

/* Under the lock: physical memory for an extent that has none; and away with it. What the driver answers; where that is
 * an error, nothing has changed. */
CUresult swap_make_resident(struct extent *extent);
CUresult swap_leave_card(struct extent *extent);

/* Under the lock: count an extent as one that is on the card, or away; and as none any more. */
void swap_count(const struct extent *extent, bool is_there);

/* Under the lock: the extent and its addresses go. */
CUresult swap_end_extent(struct extent *extent);

/* Under the lock: where it has a place in the arena, that is free again. */
void swap_give_up_place(struct extent *extent);

/* Of struct engine. */
bool swap_has_physical_memory(CUdeviceptr address);
CUresult swap_address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address);
CUresult swap_pointer_attribute(void *value, CUpointer_attribute which, CUdeviceptr address);
CUresult swap_pointer_attributes(unsigned count, CUpointer_attribute *which, void **values,
                                 CUdeviceptr address);
