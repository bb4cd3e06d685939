/* copy.h - what all forms of copies share. Bytes move at the call; the stream takes the time. */
#pragma once

#include "simgpu/memory/memory.h"
#include "simgpu/time/execution.h"

enum copy_side { COPY_HOST, COPY_DEVICE, COPY_ANY };

/* Check one end of a copy. COPY_ANY becomes the side that the address is on; managed memory is then used
 * where its first page is ("Unified Memory" in the CUDA programming guide: behaviour of cudaMemcpyDefault).
 * INVALID_VALUE if a device address does not have all the bytes, or the device that copies does not reach them. */
CUresult copy_side_check(CUdevice device, enum copy_side *side, uint64_t address, uint64_t bytes);

/* Whether a synchronous copy between these ends returns only when it is done; within the device it usually returns at once
 * (CUDA: API synchronisation behaviour). */
bool copy_waits(CUcontext context, enum copy_side to_side, uint64_t to, enum copy_side from_side,
                uint64_t from);

struct copy_range {
    enum copy_side side;     /* not COPY_ANY */
    uint64_t address, bytes; /* from the first to the last that is copied */
};

/* Let the stream take the time that the bytes need. The side of each range touches its managed memory. */
void copy_submit(CUcontext context, CUstream stream, struct copy_range to, struct copy_range from,
                 uint64_t bytes);

/* An asynchronous copy in a stream that is being captured becomes a node: false, or `*result` (capture.h). */
bool copy_capture(enum copy_side to_side, uint64_t to, enum copy_side from_side, uint64_t from,
                  uint64_t bytes, CUstream stream, bool per_thread, CUresult *result);

/* The same for a box. Contexts that it names stay with the node, where the node's parameters have reserved pointers. */
bool copy_box_capture(const CUDA_MEMCPY3D_PEER *copy, CUstream stream, bool per_thread, CUresult *result);

/* A box of bytes between memory or arrays, in the words of CUDA_MEMCPY3D_PEER; contexts may be NULL. */
CUresult copy_box(const CUDA_MEMCPY3D_PEER *copy, CUstream stream, bool per_thread, bool is_async);
