/* fill.c - memset in all its forms. On device memory even those without a stream return at once, unless SYNC_MEMOPS is set. */
#include <string.h>

#include "simgpu/graph/capture.h"
#include "simgpu/memory/in_use.h"
#include "simgpu/memory/managed.h"
#include "simgpu/memory/memory.h"
#include "simgpu/time/execution.h"

struct fill {
    uint64_t address;
    size_t pitch; /* bytes from row to row */
    uint32_t value;
    unsigned element_bytes;
    size_t width, height; /* elements, rows */
    CUstream stream;
    bool per_thread;
    bool is_async;
};

static void fill_row(char *at, const struct fill *fill)
{
    if (fill->element_bytes == 1) {
        memset(at, (int)fill->value, fill->width);
    } else if (fill->element_bytes == 2) {
        uint16_t value = (uint16_t)fill->value;
        for (size_t i = 0; i < fill->width; i++)
            memcpy(at + i * sizeof(value), &value, sizeof(value));
    } else {
        for (size_t i = 0; i < fill->width; i++)
            memcpy(at + i * sizeof(fill->value), &fill->value, sizeof(fill->value));
    }
}

/* An asynchronous fill in a stream that is being captured becomes a node. */
static bool fill_capture(const struct fill *fill, CUresult *result)
{
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_MEMSET,
        .memset = {.dst = fill->address,
                   .pitch = fill->pitch,
                   .value = fill->value,
                   .elementSize = fill->element_bytes,
                   .width = fill->width,
                   .height = fill->height},
    };
    bool is_empty = fill->width == 0 || fill->height == 0;
    return capture_node(fill->stream, fill->per_thread, is_empty ? NULL : &params, result);
}

static CUresult fill_run(struct fill fill)
{
    CUcontext context;
    CUstream stream;
    CUresult result;
    if (fill.is_async && capture_is_possible() && fill_capture(&fill, &result))
        return result;
    SIM_TRY(stream_resolve(fill.stream, fill.per_thread, &context, &stream));
    size_t row_bytes, last;
    SIM_REQUIRE(!__builtin_mul_overflow(fill.width, fill.element_bytes, &row_bytes));
    if (row_bytes == 0 || fill.height == 0)
        return CUDA_SUCCESS;
    SIM_REQUIRE(fill.address % fill.element_bytes == 0 && fill.pitch % fill.element_bytes == 0);
    SIM_REQUIRE(fill.height == 1 || fill.pitch >= row_bytes);
    SIM_REQUIRE(!__builtin_mul_overflow(fill.pitch, fill.height - 1, &last));
    SIM_REQUIRE(memory_is_reachable(context->device, fill.address, last + row_bytes));
    struct managed_faults faults = {0};
    managed_touch(fill.address, last + row_bytes, context->device, true, &faults);
    managed_submit(context, stream, &faults);
    stream_submit(context, stream, TIMELINE_COMPUTE, execution_device_ns((uint64_t)row_bytes * fill.height));
    in_use_add(context, stream, fill.address, last + row_bytes);
    for (size_t row = 0; row < fill.height; row++)
        fill_row((char *)(uintptr_t)(fill.address + row * fill.pitch), &fill);
    if (!fill.is_async && memory_is_synchronous(context, fill.address))
        stream_wait(context, stream);
    return CUDA_SUCCESS;
}

static CUresult fill_form(CUstream stream, bool per_thread, bool is_async, CUdeviceptr to, size_t pitch,
                          unsigned value, unsigned element_bytes, size_t width, size_t height)
{
    return fill_run((struct fill){.address = to,
                                  .pitch = pitch,
                                  .value = value,
                                  .element_bytes = element_bytes,
                                  .width = width,
                                  .height = height,
                                  .stream = stream,
                                  .per_thread = per_thread,
                                  .is_async = is_async});
}

/* Lines and rectangles, synchronous and not. */
#define FILL_FORMS(name, suffix, is_async, stream, type, ...)                                                \
    SIM_FORMS(cuMemsetD##name, suffix, (CUdeviceptr to, type value, size_t count __VA_ARGS__),               \
              fill_form(stream, per_thread, is_async, to, 0, value, sizeof(type), count, 1))                 \
    SIM_FORMS(cuMemsetD2D##name, suffix,                                                                     \
              (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height __VA_ARGS__),           \
              fill_form(stream, per_thread, is_async, to, pitch, value, sizeof(type), width, height))
#define FILL(bits, type)                                                                                     \
    FILL_FORMS(bits##_v2, _ptds, false, NULL, type)                                                          \
    FILL_FORMS(bits##Async, _ptsz, true, stream, type, , CUstream stream)

FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned int)
