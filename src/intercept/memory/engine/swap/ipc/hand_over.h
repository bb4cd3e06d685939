/* hand_over.h - extents that go to other processes as descriptors, and the memory that came from others in this way.
 * Legacy IPC (swap_ipc.h) and pointers into pools (swap_pool_share.h) use it. Under the engine's lock, except where it
 * says otherwise. */
#pragma once

#include <stdbool.h>

#include "intercept/memory/engine/swap/ipc/descriptors.h"
#include "intercept/memory/engine/swap/state.h"

/* Have the descriptor of an extent's memory served, under a number that the extent remembers, until the extent ends. Nothing
 * changes for one that is handed out already. Returns what the driver answers. */
CUresult extent_hand_out(struct extent *extent);

/* What this process has mapped around an address; NULL: nothing. */
struct swap_import *import_find(CUdeviceptr address);

/* Fetch a descriptor and map its memory, open to `*device`; if that is negative, to the device that has the memory, and
 * `*device` becomes that. INVALID_VALUE, as the driver answers, for memory that is gone. Without the lock. */
CUresult import_map_piece(const struct descriptor_place *place, CUdeviceptr address, uint64_t bytes,
                          CUdevice *device);

/* Room for the sizes of so many pieces. False without memory. */
bool import_make_pieces(struct swap_import *import, uint64_t count);

/* Unmap the pieces in the first `bytes` of it, and give its addresses back. */
void import_unmap(const struct swap_import *import, uint64_t bytes);

/* Enter what was mapped. False: there is no room for more, and it is unmapped. Takes the lock. */
bool import_enter(const struct swap_import *made);

/* The devices that reach it: a bit for each, by ordinal. */
static inline uint64_t import_devices(const struct swap_import *import)
{
    return UINT64_C(1) << import->device;
}

/* Nobody here has it open any more, and no work uses it. */
void import_end(struct swap_import *import);
