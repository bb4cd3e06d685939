/* fill.c - memset in all its forms. On device memory even those without a stream return at once. */
#include <string.h>

#include "simgpu/execution.h"
#include "simgpu/memory.h"

struct fill {
    uint64_t address;
    size_t pitch; /* bytes from row to row */
    uint32_t value;
    unsigned element_bytes;
    size_t width, height; /* elements, rows */
    CUstream stream;
    bool per_thread;
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

static CUresult fill_run(struct fill fill)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(stream_resolve(fill.stream, fill.per_thread, &context, &stream));
    size_t row_bytes, last;
    SIM_REQUIRE(!__builtin_mul_overflow(fill.width, fill.element_bytes, &row_bytes));
    if (row_bytes == 0 || fill.height == 0)
        return CUDA_SUCCESS;
    SIM_REQUIRE(fill.address % fill.element_bytes == 0 && fill.pitch % fill.element_bytes == 0);
    SIM_REQUIRE(fill.height == 1 || fill.pitch >= row_bytes);
    SIM_REQUIRE(!__builtin_mul_overflow(fill.pitch, fill.height - 1, &last));
    SIM_REQUIRE(memory_is_accessible(fill.address, last + row_bytes));
    stream_submit(context, stream, TIMELINE_COMPUTE, execution_device_ns((uint64_t)row_bytes * fill.height));
    for (size_t row = 0; row < fill.height; row++)
        fill_row((char *)(uintptr_t)(fill.address + row * fill.pitch), &fill);
    return CUDA_SUCCESS;
}

#define FILL(suffix, type)                                                                                   \
    static CUresult fill_##suffix(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height,     \
                                  CUstream stream, bool per_thread)                                          \
    {                                                                                                        \
        return fill_run((struct fill){.address = to,                                                         \
                                      .pitch = pitch,                                                        \
                                      .value = value,                                                        \
                                      .element_bytes = sizeof(type),                                         \
                                      .width = width,                                                        \
                                      .height = height,                                                      \
                                      .stream = stream,                                                      \
                                      .per_thread = per_thread});                                            \
    }                                                                                                        \
    CUresult cuMemsetD##suffix##_v2(CUdeviceptr to, type value, size_t count)                                \
    {                                                                                                        \
        return fill_##suffix(to, 0, value, count, 1, NULL, false);                                           \
    }                                                                                                        \
    CUresult cuMemsetD##suffix##_v2_ptds(CUdeviceptr to, type value, size_t count)                           \
    {                                                                                                        \
        return fill_##suffix(to, 0, value, count, 1, NULL, true);                                            \
    }                                                                                                        \
    CUresult cuMemsetD##suffix##Async(CUdeviceptr to, type value, size_t count, CUstream stream)             \
    {                                                                                                        \
        return fill_##suffix(to, 0, value, count, 1, stream, false);                                         \
    }                                                                                                        \
    CUresult cuMemsetD##suffix##Async_ptsz(CUdeviceptr to, type value, size_t count, CUstream stream)        \
    {                                                                                                        \
        return fill_##suffix(to, 0, value, count, 1, stream, true);                                          \
    }                                                                                                        \
    CUresult cuMemsetD2D##suffix##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) \
    {                                                                                                        \
        return fill_##suffix(to, pitch, value, width, height, NULL, false);                                  \
    }                                                                                                        \
    CUresult cuMemsetD2D##suffix##_v2_ptds(CUdeviceptr to, size_t pitch, type value, size_t width,           \
                                           size_t height)                                                    \
    {                                                                                                        \
        return fill_##suffix(to, pitch, value, width, height, NULL, true);                                   \
    }                                                                                                        \
    CUresult cuMemsetD2D##suffix##Async(CUdeviceptr to, size_t pitch, type value, size_t width,              \
                                        size_t height, CUstream stream)                                      \
    {                                                                                                        \
        return fill_##suffix(to, pitch, value, width, height, stream, false);                                \
    }                                                                                                        \
    CUresult cuMemsetD2D##suffix##Async_ptsz(CUdeviceptr to, size_t pitch, type value, size_t width,         \
                                             size_t height, CUstream stream)                                 \
    {                                                                                                        \
        return fill_##suffix(to, pitch, value, width, height, stream, true);                                 \
    }

FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned int)
