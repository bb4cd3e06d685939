/* swap_program.h - physical memory that the program makes and maps itself (cuMemCreate), so that it can leave the card.
 *
 * handle      what the program has of such memory: a number of ours, which stays when the driver's handle does not
 *
 * Moving, it is an extent without an address, mapped where the program wants it (mappings.h). What was exported, imported, bound to a multicast object or mapped into an
 * array stays on the card: it is pinned, and what needs the driver's handle gets that. */
#pragma once

#include "intercept/memory/engine/engine.h"

extern const struct engine_vmm program_vmm;

/* cuMemCreate and cuMemRelease. */
bool program_can_move(const struct allocation *wanted);
CUresult program_create(const struct allocation *wanted);
CUresult program_release(CUmemGenericAllocationHandle handle);
bool program_is_handle(CUmemGenericAllocationHandle handle);

/* Take the engine's lock while all is on the card: where it is not, wait at the gate until it is. */
void program_lock_when_back(void);
