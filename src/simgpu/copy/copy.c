/* copy.c - memcpy in its linear forms. */
#include "simgpu/copy/copy.h"

#include <string.h>

#include "simgpu/graph/capture.h"
#include "simgpu/memory/in_use.h"
#include "simgpu/memory/managed.h"

CUresult copy_side_check(CUdevice device, enum copy_side *side, uint64_t address, uint64_t bytes)
{
    struct memory_allocation allocation;
    if (*side == COPY_HOST)
        return address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    bool known = memory_find(address, &allocation);
    if (!known && *side == COPY_ANY) {
        *side = COPY_HOST; /* memory that is the program's own */
        return address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (!known || !memory_is_reachable(device, address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    bool on_host = allocation.kind == MEMORY_HOST || allocation.kind == MEMORY_REGISTERED ||
                   (*side == COPY_ANY && managed_is_on_host(address));
    *side = on_host ? COPY_HOST : COPY_DEVICE;
    return CUDA_SUCCESS;
}

bool copy_waits(CUcontext context, enum copy_side to_side, uint64_t to, enum copy_side from_side,
                uint64_t from)
{
    return to_side == COPY_HOST || from_side == COPY_HOST || memory_is_synchronous(context, to) ||
           memory_is_synchronous(context, from);
}

static void range_touch(CUcontext context, struct copy_range range, bool writes,
                        struct managed_faults *faults)
{
    managed_touch(range.address, range.bytes, range.side == COPY_HOST ? MANAGED_CPU : context->device, writes,
                  faults);
}

void copy_submit(CUcontext context, CUstream stream, struct copy_range to, struct copy_range from,
                 uint64_t bytes)
{
    struct managed_faults faults = {0};
    range_touch(context, from, false, &faults);
    range_touch(context, to, true, &faults);
    managed_submit(context, stream, &faults);
    if (to.side == COPY_DEVICE && from.side == COPY_DEVICE)
        stream_submit(context, stream, TIMELINE_COMPUTE, execution_device_ns(bytes));
    else if (to.side == COPY_DEVICE)
        stream_submit(context, stream, TIMELINE_COPY_IN, execution_link_ns(bytes));
    else if (from.side == COPY_DEVICE)
        stream_submit(context, stream, TIMELINE_COPY_OUT, execution_link_ns(bytes));
    const struct copy_range *ends[] = {&to, &from};
    for (unsigned i = 0; i < 2; i++)
        if (ends[i]->side == COPY_DEVICE)
            in_use_add(context, stream, ends[i]->address, ends[i]->bytes);
}

struct copy {
    enum copy_side to_side, from_side;
    uint64_t to, from;
    uint64_t bytes;
    CUstream stream;
    bool per_thread;
    bool is_async;
};

static CUmemorytype side_type(enum copy_side side)
{
    return side == COPY_HOST     ? CU_MEMORYTYPE_HOST
           : side == COPY_DEVICE ? CU_MEMORYTYPE_DEVICE
                                 : CU_MEMORYTYPE_UNIFIED;
}

bool copy_capture(enum copy_side to_side, uint64_t to, enum copy_side from_side, uint64_t from,
                  uint64_t bytes, CUstream stream, bool per_thread, CUresult *result)
{
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_MEMCPY,
        .memcpy.copyParams = {.srcMemoryType = side_type(from_side),
                              .srcHost = (const void *)(uintptr_t)from,
                              .srcDevice = from,
                              .dstMemoryType = side_type(to_side),
                              .dstHost = (void *)(uintptr_t)to,
                              .dstDevice = to,
                              .WidthInBytes = bytes,
                              .Height = 1,
                              .Depth = 1},
    };
    return capture_node(stream, per_thread, bytes ? &params : NULL, result);
}

static CUresult copy_linear(struct copy copy)
{
    CUcontext context;
    CUstream stream;
    CUresult result;
    if (copy.is_async && capture_is_possible() &&
        copy_capture(copy.to_side, copy.to, copy.from_side, copy.from, copy.bytes, copy.stream,
                     copy.per_thread, &result))
        return result;
    SIM_TRY(stream_resolve(copy.stream, copy.per_thread, &context, &stream));
    if (copy.bytes == 0)
        return CUDA_SUCCESS;
    SIM_TRY(copy_side_check(context->device, &copy.to_side, copy.to, copy.bytes));
    SIM_TRY(copy_side_check(context->device, &copy.from_side, copy.from, copy.bytes));
    copy_submit(context, stream, (struct copy_range){copy.to_side, copy.to, copy.bytes},
                (struct copy_range){copy.from_side, copy.from, copy.bytes}, copy.bytes);
    memmove((void *)(uintptr_t)copy.to, (const void *)(uintptr_t)copy.from, copy.bytes);
    if (!copy.is_async && copy_waits(context, copy.to_side, copy.to, copy.from_side, copy.from))
        stream_wait(context, stream);
    return CUDA_SUCCESS;
}

#define HOST_ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))

static CUresult copy_form(CUstream stream, bool per_thread, bool is_async, enum copy_side to_side,
                          uint64_t to, enum copy_side from_side, uint64_t from, size_t bytes)
{
    return copy_linear((struct copy){.to_side = to_side,
                                     .from_side = from_side,
                                     .to = to,
                                     .from = from,
                                     .bytes = bytes,
                                     .stream = stream,
                                     .per_thread = per_thread,
                                     .is_async = is_async});
}

/* Synchronous and not. */
#define COPY(name, name_async, to_type, to_side, from_type, from_side)                                       \
    SIM_FORMS(                                                                                               \
        name, _ptds, (to_type to, from_type from, size_t bytes),                                             \
        copy_form(NULL, per_thread, false, to_side, HOST_ADDRESS(to), from_side, HOST_ADDRESS(from), bytes)) \
    SIM_FORMS(name_async, _ptsz, (to_type to, from_type from, size_t bytes, CUstream stream),                \
              copy_form(stream, per_thread, true, to_side, HOST_ADDRESS(to), from_side, HOST_ADDRESS(from),  \
                        bytes))

COPY(cuMemcpy, cuMemcpyAsync, CUdeviceptr, COPY_ANY, CUdeviceptr, COPY_ANY)
COPY(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, CUdeviceptr, COPY_DEVICE, const void *, COPY_HOST)
COPY(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, void *, COPY_HOST, CUdeviceptr, COPY_DEVICE)
COPY(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, CUdeviceptr, COPY_DEVICE, CUdeviceptr, COPY_DEVICE)
