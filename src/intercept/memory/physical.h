/* physical.h - physical memory of cuMemCreate, and what keeps it.
 *
 * physical memory   what one cuMemCreate took: charged until nothing keeps it any more. Named by a number of ours:
 *                   the driver may use a handle's value again while the memory it once named is still mapped.
 * hold              a handle, a mapping, a part of a sparse array, a binding to a multicast object: each keeps it */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "intercept/memory/charge.h"

/* New physical memory that the driver has just made, or imported; its handle keeps it. `flags`: RECORD_IMPORTED,
 * RECORD_MULTICAST; `name`: of what is imported, or 0. False without memory. */
bool physical_enter(const struct charge *charge, CUmemGenericAllocationHandle handle, unsigned flags,
                    uint64_t name);

/* The same of a shareable handle that another process made, known by `name`. It is charged when it is mapped, which tells
 * its size, unless its maker in the session is charged for it. False without memory, or where the session does not
 * have its GPU. */
bool physical_enter_import(CUmemGenericAllocationHandle handle, uint64_t name, bool is_its_own);

/* Enter `hold`, which keeps the physical memory `number` already. What had its key is stored in `*displaced`. False
 * without memory. */
bool physical_point_at(struct record hold, uint64_t number, struct record *displaced);

/* One more keeps it; one fewer. The last gives back what it was charged. */
void physical_keep(uint64_t number);
void physical_let_go(uint64_t number);

/* The number of a handle's memory, or of the memory mapped around an address; 0: none of ours. */
uint64_t physical_of_handle(CUmemGenericAllocationHandle handle);
uint64_t physical_at(CUdeviceptr address);

/* The first `bytes` of it are used: what was imported is charged by the most of it that is. False, with a line on
 * stderr, if that does not fit; true for any other. */
bool physical_charge_import(uint64_t number, uint64_t bytes);

/* Nothing keeps the multicast object `number` any more: let go of what is bound to it. */
void physical_multicast_ended(uint64_t number);

/* Take out, one after the other, all records of `kind` that `match`, and let go of what they kept. Slow:
 * looks at every record. */
void physical_let_go_all(enum record_kind kind, bool (*match)(const struct record *, const void *),
                         const void *argument);
