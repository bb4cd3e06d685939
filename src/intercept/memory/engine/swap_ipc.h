/* swap_ipc.h - legacy IPC (cuIpcGetMemHandle) of memory that lies in extents.
 *
 * The driver gives no such handle for memory of cuMemCreate. So the handle is one of ours: it says where another process
 * fetches a descriptor (descriptors.h) by which the driver lets it map the extent. What was handed out stays on the card.
 *
 * Called without the engine's lock, but where it says so. */
#pragma once

#include "intercept/memory/engine/engine.h"

/* Of struct engine; cuIpcOpenMemHandle, and its close: what is not ours is the driver's. */
CUresult swap_ipc_handle(CUipcMemHandle *handle, CUdeviceptr address);
CUresult swap_ipc_open(const struct allocation *wanted);
CUresult swap_ipc_close(CUdeviceptr address);

/* Under the lock: what was opened around an address. */
struct ipc_place {
    uint64_t base, bytes;
    CUcontext context;
    CUdevice device;
};
bool swap_ipc_find(CUdeviceptr address, struct ipc_place *place);

/* Under the lock: what was opened in a context goes with it. */
void swap_ipc_forget_context(CUcontext context);
