/* swap_ipc.h - legacy IPC (cuIpcGetMemHandle) of memory that lies in extents.
 *
 * The driver gives no such handle for memory of cuMemCreate. So the handle is one of ours: it says where another
 * process can fetch a descriptor (descriptors.h), with which the driver lets that process map the extent. What was
 * handed out stays on the card.
 *
 * Called without the engine's lock, except where it says so. */
#pragma once

#include "intercept/memory/engine/engine.h"

/* For struct engine; and cuIpcOpenMemHandle and its close, which pass on to the driver what is not ours. */
CUresult swap_ipc_handle(CUipcMemHandle *handle, CUdeviceptr address);
CUresult swap_ipc_open(const struct allocation *wanted);
CUresult swap_ipc_close(CUdeviceptr address);

/* Under the lock: find the opened memory around an address. */
struct ipc_place {
    uint64_t base, bytes;
    uint64_t number; /* struct swap_import: `allocation` */
    CUcontext context;
    CUdevice device;
};
bool swap_ipc_find(CUdeviceptr address, struct ipc_place *place);

/* Under the lock: close what was opened in a context that is gone. */
void swap_ipc_forget_context(CUcontext context);
