/* swap_program.h - physical memory that the program makes and maps itself (cuMemCreate), made so that it can leave
 * the card.
 *
 * handle      what the program has of such memory: a number of ours, which stays the same when the driver's handle does not
 *
 * Such memory is an extent without an address, mapped where the program wants it (mappings.h). What was exported,
 * imported, bound to a multicast object or mapped into an array stays on the card: it is pinned, and calls that need
 * the driver's handle get that. */
#pragma once

#include "intercept/memory/engine/engine.h"

extern const struct engine_vmm program_vmm;

/* For cuMemCreate and cuMemRelease. */
bool program_can_move(const struct allocation *wanted);
CUresult program_create(const struct allocation *wanted);
CUresult program_release(CUmemGenericAllocationHandle handle);
bool program_is_handle(CUmemGenericAllocationHandle handle);

/* Under the engine's lock: the driver's handle of memory that is on the card, where `handle` is one of ours; else
 * `handle`. */
CUmemGenericAllocationHandle program_drivers_handle(CUmemGenericAllocationHandle handle);

/* Take the engine's lock while all memory is on the card; if it is away, wait at the gate until it is back. The thread
 * need not have a context. */
void program_lock_when_back(void);
