/* copy.c - memcpy in its linear and two-dimensional forms. Bytes move at the call; the stream takes the time.
 */
#include <string.h>

#include "simgpu/capture.h"
#include "simgpu/execution.h"
#include "simgpu/memory.h"

enum side { SIDE_HOST, SIDE_DEVICE, SIDE_ANY };

/* One end of a copy: what it is, or INVALID_VALUE if the device's address is not all there. */
static CUresult side_check(enum side *side, uint64_t address, uint64_t bytes)
{
    struct memory_allocation allocation;
    if (*side == SIDE_HOST)
        return address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    bool known = memory_find(address, &allocation);
    if (!known && *side == SIDE_ANY) {
        *side = SIDE_HOST; /* memory that is the program's own */
        return address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (!known || !memory_is_accessible(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    *side = allocation.kind == MEMORY_HOST || allocation.kind == MEMORY_REGISTERED ? SIDE_HOST : SIDE_DEVICE;
    return CUDA_SUCCESS;
}

/* Let the stream take the time that the bytes need. */
static void copy_submit(CUcontext context, CUstream stream, enum side to, enum side from, uint64_t bytes)
{
    if (to == SIDE_DEVICE && from == SIDE_DEVICE)
        stream_submit(context, stream, TIMELINE_COMPUTE, execution_device_ns(bytes));
    else if (to == SIDE_DEVICE)
        stream_submit(context, stream, TIMELINE_COPY_IN, execution_link_ns(bytes));
    else if (from == SIDE_DEVICE)
        stream_submit(context, stream, TIMELINE_COPY_OUT, execution_link_ns(bytes));
}

struct copy {
    enum side to_side, from_side;
    uint64_t to, from;
    uint64_t bytes;
    CUstream stream;
    bool per_thread;
    bool is_async;
};

static CUmemorytype side_type(enum side side)
{
    return side == SIDE_HOST ? CU_MEMORYTYPE_HOST : side == SIDE_DEVICE ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED;
}

/* An asynchronous copy in a stream that is being captured becomes a node. */
static bool copy_capture(const struct copy *copy, CUresult *result)
{
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_MEMCPY,
        .memcpy.copyParams = {.srcMemoryType = side_type(copy->from_side),
                              .srcHost = (const void *)(uintptr_t)copy->from,
                              .srcDevice = copy->from,
                              .dstMemoryType = side_type(copy->to_side),
                              .dstHost = (void *)(uintptr_t)copy->to,
                              .dstDevice = copy->to,
                              .WidthInBytes = copy->bytes,
                              .Height = 1,
                              .Depth = 1},
    };
    return capture_node(copy->stream, copy->per_thread, copy->bytes ? &params : NULL, result);
}

static CUresult copy_linear(struct copy copy)
{
    CUcontext context;
    CUstream stream;
    CUresult result;
    if (copy.is_async && capture_is_possible() && copy_capture(&copy, &result))
        return result;
    SIM_TRY(stream_resolve(copy.stream, copy.per_thread, &context, &stream));
    if (copy.bytes == 0)
        return CUDA_SUCCESS;
    SIM_TRY(side_check(&copy.to_side, copy.to, copy.bytes));
    SIM_TRY(side_check(&copy.from_side, copy.from, copy.bytes));
    copy_submit(context, stream, copy.to_side, copy.from_side, copy.bytes);
    memmove((void *)(uintptr_t)copy.to, (const void *)(uintptr_t)copy.from, copy.bytes);
    /* Within the device even cuMemcpy returns at once (CUDA: API synchronisation behaviour). */
    if (!copy.is_async && (copy.to_side == SIDE_HOST || copy.from_side == SIDE_HOST))
        stream_wait(context, stream);
    return CUDA_SUCCESS;
}

#define HOST_ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))

/* Each form four times: as it is and for per-thread streams, synchronous and not. */
#define COPY(name, name_async, per_thread_suffix, per_thread_async_suffix, to_type, to_kind, from_type,      \
             from_kind)                                                                                      \
    CUresult name(to_type to, from_type from, size_t bytes)                                                  \
    {                                                                                                        \
        return copy_linear((struct copy){.to_side = to_kind,                                                 \
                                         .from_side = from_kind,                                             \
                                         .to = HOST_ADDRESS(to),                                             \
                                         .from = HOST_ADDRESS(from),                                         \
                                         .bytes = bytes});                                                   \
    }                                                                                                        \
    CUresult name##per_thread_suffix(to_type to, from_type from, size_t bytes)                               \
    {                                                                                                        \
        return copy_linear((struct copy){.to_side = to_kind,                                                 \
                                         .from_side = from_kind,                                             \
                                         .to = HOST_ADDRESS(to),                                             \
                                         .from = HOST_ADDRESS(from),                                         \
                                         .bytes = bytes,                                                     \
                                         .per_thread = true});                                               \
    }                                                                                                        \
    CUresult name_async(to_type to, from_type from, size_t bytes, CUstream stream)                           \
    {                                                                                                        \
        return copy_linear((struct copy){.to_side = to_kind,                                                 \
                                         .from_side = from_kind,                                             \
                                         .to = HOST_ADDRESS(to),                                             \
                                         .from = HOST_ADDRESS(from),                                         \
                                         .bytes = bytes,                                                     \
                                         .stream = stream,                                                   \
                                         .is_async = true});                                                 \
    }                                                                                                        \
    CUresult name_async##per_thread_async_suffix(to_type to, from_type from, size_t bytes, CUstream stream)  \
    {                                                                                                        \
        return copy_linear((struct copy){.to_side = to_kind,                                                 \
                                         .from_side = from_kind,                                             \
                                         .to = HOST_ADDRESS(to),                                             \
                                         .from = HOST_ADDRESS(from),                                         \
                                         .bytes = bytes,                                                     \
                                         .stream = stream,                                                   \
                                         .per_thread = true,                                                 \
                                         .is_async = true});                                                 \
    }

COPY(cuMemcpy, cuMemcpyAsync, _ptds, _ptsz, CUdeviceptr, SIDE_ANY, CUdeviceptr, SIDE_ANY)
COPY(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, _ptds, _ptsz, CUdeviceptr, SIDE_DEVICE, const void *, SIDE_HOST)
COPY(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, _ptds, _ptsz, void *, SIDE_HOST, CUdeviceptr, SIDE_DEVICE)
COPY(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, _ptds, _ptsz, CUdeviceptr, SIDE_DEVICE, CUdeviceptr, SIDE_DEVICE)

/* --- Two dimensions
 * ----------------------------------------------------------------------------------------- */

/* Where a side of a 2D copy begins, and its pitch. Arrays are not here yet. */
static CUresult side_2d(CUmemorytype type, const void *host, CUdeviceptr device, size_t x_bytes, size_t y,
                        size_t pitch, const CUDA_MEMCPY2D *copy, enum side *side, uint64_t *address,
                        size_t *row_bytes)
{
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        *side = SIDE_HOST;
        *address = HOST_ADDRESS(host);
        break;
    case CU_MEMORYTYPE_DEVICE:
        *side = SIDE_DEVICE;
        *address = device;
        break;
    case CU_MEMORYTYPE_UNIFIED:
        *side = SIDE_ANY;
        *address = device;
        break;
    case CU_MEMORYTYPE_ARRAY:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    *row_bytes = pitch ? pitch : x_bytes + copy->WidthInBytes;
    SIM_REQUIRE(copy->Height <= 1 || *row_bytes >= x_bytes + copy->WidthInBytes);
    *address += y * *row_bytes + x_bytes;
    return side_check(side, *address, *row_bytes * (copy->Height - 1) + copy->WidthInBytes);
}

static bool copy_capture_2d(const CUDA_MEMCPY2D *copy, CUstream handle, bool per_thread, CUresult *result)
{
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_MEMCPY,
        .memcpy.copyParams = {.srcXInBytes = copy->srcXInBytes,
                              .srcY = copy->srcY,
                              .srcMemoryType = copy->srcMemoryType,
                              .srcHost = copy->srcHost,
                              .srcDevice = copy->srcDevice,
                              .srcArray = copy->srcArray,
                              .srcPitch = copy->srcPitch,
                              .dstXInBytes = copy->dstXInBytes,
                              .dstY = copy->dstY,
                              .dstMemoryType = copy->dstMemoryType,
                              .dstHost = copy->dstHost,
                              .dstDevice = copy->dstDevice,
                              .dstArray = copy->dstArray,
                              .dstPitch = copy->dstPitch,
                              .WidthInBytes = copy->WidthInBytes,
                              .Height = copy->Height,
                              .Depth = 1},
    };
    bool is_empty = copy->WidthInBytes == 0 || copy->Height == 0;
    return capture_node(handle, per_thread, is_empty ? NULL : &params, result);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, CUstream handle, bool per_thread, bool is_async)
{
    CUcontext context;
    CUstream stream;
    CUresult result;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(copy);
    if (is_async && capture_is_possible() && copy_capture_2d(copy, handle, per_thread, &result))
        return result;
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    if (copy->WidthInBytes == 0 || copy->Height == 0)
        return CUDA_SUCCESS;
    enum side to_side, from_side;
    uint64_t to, from;
    size_t to_row, from_row;
    SIM_TRY(side_2d(copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstXInBytes, copy->dstY,
                    copy->dstPitch, copy, &to_side, &to, &to_row));
    SIM_TRY(side_2d(copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcXInBytes, copy->srcY,
                    copy->srcPitch, copy, &from_side, &from, &from_row));
    copy_submit(context, stream, to_side, from_side, (uint64_t)copy->WidthInBytes * copy->Height);
    for (size_t row = 0; row < copy->Height; row++)
        memmove((void *)(uintptr_t)(to + row * to_row), (const void *)(uintptr_t)(from + row * from_row),
                copy->WidthInBytes);
    if (!is_async && (to_side == SIDE_HOST || from_side == SIDE_HOST))
        stream_wait(context, stream);
    return CUDA_SUCCESS;
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy)
{
    return copy_2d(copy, NULL, false, false);
}

CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *copy)
{
    return copy_2d(copy, NULL, true, false);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy)
{
    return copy_2d(copy, NULL, false, false);
}

CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *copy)
{
    return copy_2d(copy, NULL, true, false);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    return copy_2d(copy, stream, false, true);
}

CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    return copy_2d(copy, stream, true, true);
}
