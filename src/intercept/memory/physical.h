/* physical.h - physical memory of cuMemCreate, and what keeps it.
 *
 * physical memory   what one cuMemCreate took: charged until nothing keeps it any more. We name it by a number, since
 *                   the driver may reuse a handle's value while the memory that it once named is still mapped.
 * hold              a handle, a mapping, a part of a sparse array, or a binding to a multicast object: each keeps it */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "intercept/memory/charge.h"

/* Enter new physical memory that the driver has just made, or imported; its handle keeps it. `flags`:
 * RECORD_IMPORTED, RECORD_MULTICAST. `name`: the name of what was imported, or 0. False without memory for it. */
bool physical_enter(const struct charge *charge, CUmemGenericAllocationHandle handle, unsigned flags,
                    uint64_t name);

/* The same for a shareable handle that another process made, known by `name`. It is charged when it is mapped, since
 * only then its size is known; if its maker is in the session, the maker is charged for it. False without memory, or
 * if the session does not have the GPU. */
bool physical_enter_import(CUmemGenericAllocationHandle handle, uint64_t name, bool is_its_own);

/* Enter `hold`, which keeps the physical memory `number` already. A record that had its key is stored in
 * `*displaced`. False without memory. */
bool physical_point_at(struct record hold, uint64_t number, struct record *displaced);

/* One more hold keeps it; one fewer. When the last one lets go, what it was charged is given back. */
void physical_keep(uint64_t number);
void physical_let_go(uint64_t number);

/* The number of a handle's memory, or of the memory that is mapped around an address; 0: it is not in our records. */
uint64_t physical_of_handle(CUmemGenericAllocationHandle handle);
uint64_t physical_at(CUdeviceptr address);

/* The process uses the first `bytes` of it. Imported memory is charged by the most of it that was ever used. False,
 * with a line on stderr, if that does not fit; always true for other memory. */
bool physical_charge_import(uint64_t number, uint64_t bytes);

/* The key of what is bound to a multicast object at this offset; and let go of what has a key between these two. When nothing
 * keeps the object any more, all that is bound to it is let go. */
static inline uint64_t physical_binding_key(uint64_t object, uint32_t gpu, uint64_t offset)
{
    /* {number of the object:24, GPU:8, offset in the object in units of 64 KiB:32} */
    return object << 40 | (uint64_t)(gpu & 0xff) << 32 | (offset >> 16 & UINT32_MAX);
}
void physical_let_go_bindings(uint64_t first, uint64_t last);

/* Take out, one after the other, all records of `kind` for which `match` is true, and let go of what they kept. Slow:
 * it looks at every record. */
void physical_let_go_all(enum record_kind kind, bool (*match)(const struct record *, const void *),
                         const void *argument);
