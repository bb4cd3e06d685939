/* vmm.h - physical memory of cuMemCreate, and what keeps it: handles, mappings, parts of sparse arrays,
 * bindings to multicast objects. Each holds the allocation; what it was charged goes with the last of them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "intercept/memory/charge.h"

/* Let a record of `kind` with this key stand for one that holds the allocation `number`; no reference is
 * taken. Whatever had the key is stored in `*displaced`. False without memory. */
bool vmm_point_at(struct record record, uint64_t number, struct record *displaced);

void vmm_hold(uint64_t number);
void vmm_let_go(uint64_t number);

/* A new allocation that the driver has just made, or imported; its handle holds it. `flags`: RECORD_IMPORTED,
 * RECORD_MULTICAST; `name`: of what is imported, or 0. False without memory. */
bool vmm_keep(const struct charge *charge, CUmemGenericAllocationHandle handle, unsigned flags,
              uint64_t name);

/* The allocation of a handle, or of the mapping around an address; 0: none of ours. */
uint64_t vmm_allocation_of(CUmemGenericAllocationHandle handle);
uint64_t vmm_allocation_at(CUdeviceptr address);

/* The first `bytes` of the allocation are used: an imported one is charged by the most of it that is.
 * False, with a line on stderr, if that does not fit; true for any other. */
bool vmm_charge_import(uint64_t number, uint64_t bytes);

/* Nothing holds the multicast object `number` any more: let go of what is bound to it. */
void vmm_multicast_ended(uint64_t number);

/* Take out, one after the other, all records of `kind` that `match`, and let go of what they held. Slow:
 * looks at every record. */
void vmm_let_go_all(enum record_kind kind, bool (*match)(const struct record *, const void *),
                    const void *argument);
