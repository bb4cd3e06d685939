/* copy_box.c - copies in two and three dimensions, and those of arrays: all are boxes. */
#include <string.h>

#include "simgpu/arrays/arrays.h"
#include "simgpu/arrays/tiles.h"
#include "simgpu/copy/copy.h"
#include "simgpu/graph/capture.h"

/* One end of a box. */
struct end {
    CUmemorytype type;
    uint64_t address; /* host or device; in an array, the byte of it */
    CUarray array;    /* of CU_MEMORYTYPE_ARRAY only */
    CUcontext context;
    size_t x_bytes, y, z;
    size_t pitch, height;

    enum copy_side side;
    uint64_t row_bytes, slice_bytes;
};

/* Where an end's box begins, and the way from row to row and slice to slice. */
static CUresult end_in_array(struct end *end, const CUDA_MEMCPY3D_PEER *copy)
{
    if (array_check(end->array) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    const struct CUarray_st *array = end->array;
    SIM_REQUIRE(array->texel.bytes > 0); /* planes are copied one by one */
    SIM_REQUIRE(end->x_bytes % array->texel.bytes == 0 && copy->WidthInBytes % array->texel.bytes == 0);
    SIM_REQUIRE(end->x_bytes <= array->row_bytes && copy->WidthInBytes <= array->row_bytes - end->x_bytes);
    SIM_REQUIRE(end->y <= array->rows && copy->Height <= array->rows - end->y);
    SIM_REQUIRE(end->z <= array->slices && copy->Depth <= array->slices - end->z);
    end->side = COPY_DEVICE;
    end->row_bytes = array->row_bytes;
    end->slice_bytes = array->row_bytes * array->rows;
    end->address = 0; /* counted from the array's first byte */
    return CUDA_SUCCESS;
}

static CUresult end_in_memory(CUdevice device, struct end *end, const CUDA_MEMCPY3D_PEER *copy)
{
    uint64_t row_end, needed, slices;
    SIM_REQUIRE(!__builtin_add_overflow(end->x_bytes, copy->WidthInBytes, &row_end));
    end->row_bytes = end->pitch ? end->pitch : row_end;
    SIM_REQUIRE((copy->Height <= 1 && copy->Depth <= 1) || end->row_bytes >= row_end);
    uint64_t rows = end->height ? end->height : end->y + copy->Height;
    SIM_REQUIRE(copy->Depth <= 1 || rows >= end->y + copy->Height);
    SIM_REQUIRE(!__builtin_mul_overflow(end->row_bytes, rows, &end->slice_bytes));
    SIM_REQUIRE(!__builtin_mul_overflow(end->slice_bytes, end->z + copy->Depth - 1, &slices));
    SIM_REQUIRE(!__builtin_mul_overflow(end->row_bytes, end->y + copy->Height - 1, &needed));
    SIM_REQUIRE(!__builtin_add_overflow(needed, row_end, &needed));
    SIM_REQUIRE(!__builtin_add_overflow(needed, slices, &needed));
    uint64_t first = end->z * end->slice_bytes + end->y * end->row_bytes + end->x_bytes;
    return copy_side_check(device, &end->side, end->address + first, needed - first);
}

/* `device` copies, unless the end has a context. */
static CUresult end_find(CUdevice device, struct end *end, const CUDA_MEMCPY3D_PEER *copy)
{
    if (end->context)
        SIM_TRY(context_check(end->context));
    switch (end->type) {
    case CU_MEMORYTYPE_HOST:
        end->side = COPY_HOST;
        SIM_REQUIRE(end->address);
        SIM_TRY(end_in_memory(end->context ? end->context->device : device, end, copy));
        break;
    case CU_MEMORYTYPE_DEVICE:
        end->side = COPY_DEVICE;
        SIM_TRY(end_in_memory(end->context ? end->context->device : device, end, copy));
        break;
    case CU_MEMORYTYPE_UNIFIED:
        end->side = COPY_ANY;
        SIM_TRY(end_in_memory(end->context ? end->context->device : device, end, copy));
        break;
    case CU_MEMORYTYPE_ARRAY:
        SIM_TRY(end_in_array(end, copy));
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    end->address += end->z * end->slice_bytes + end->y * end->row_bytes + end->x_bytes;
    return CUDA_SUCCESS;
}

static struct copy_range end_range(const struct end *end, const CUDA_MEMCPY3D_PEER *copy)
{
    return (struct copy_range){end->side, end->address,
                               (copy->Depth - 1) * end->slice_bytes + (copy->Height - 1) * end->row_bytes +
                                   copy->WidthInBytes};
}

static uint64_t end_address(CUmemorytype type, const void *host, CUdeviceptr device)
{
    return type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)host : device;
}

bool copy_box_capture(const CUDA_MEMCPY3D_PEER *copy, CUstream handle, bool per_thread, CUresult *result)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    memcpy(&params.memcpy.copyParams, copy, sizeof(params.memcpy.copyParams));
    bool is_empty = copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0;
    return capture_node(handle, per_thread, is_empty ? NULL : &params, result);
}

CUresult copy_box(const CUDA_MEMCPY3D_PEER *copy, CUstream handle, bool per_thread, bool is_async)
{
    CUcontext context;
    CUstream stream;
    CUresult result;
    if (is_async && capture_is_possible() && copy_box_capture(copy, handle, per_thread, &result))
        return result;
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    SIM_REQUIRE(copy->srcLOD == 0 && copy->dstLOD == 0);
    if (copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0)
        return CUDA_SUCCESS;
    struct end to = {.type = copy->dstMemoryType,
                     .address = end_address(copy->dstMemoryType, copy->dstHost, copy->dstDevice),
                     .array = copy->dstMemoryType == CU_MEMORYTYPE_ARRAY ? copy->dstArray : NULL,
                     .context = copy->dstContext,
                     .x_bytes = copy->dstXInBytes,
                     .y = copy->dstY,
                     .z = copy->dstZ,
                     .pitch = copy->dstPitch,
                     .height = copy->dstHeight};
    struct end from = {.type = copy->srcMemoryType,
                       .address = end_address(copy->srcMemoryType, copy->srcHost, copy->srcDevice),
                       .array = copy->srcMemoryType == CU_MEMORYTYPE_ARRAY ? copy->srcArray : NULL,
                       .context = copy->srcContext,
                       .x_bytes = copy->srcXInBytes,
                       .y = copy->srcY,
                       .z = copy->srcZ,
                       .pitch = copy->srcPitch,
                       .height = copy->srcHeight};
    SIM_TRY(end_find(context->device, &to, copy));
    SIM_TRY(end_find(context->device, &from, copy));
    copy_submit(context, stream, end_range(&to, copy), end_range(&from, copy),
                (uint64_t)copy->WidthInBytes * copy->Height * copy->Depth);
    for (size_t slice = 0; slice < copy->Depth; slice++)
        for (size_t row = 0; row < copy->Height; row++)
            array_move(to.array, to.address + slice * to.slice_bytes + row * to.row_bytes, from.array,
                       from.address + slice * from.slice_bytes + row * from.row_bytes, copy->WidthInBytes);
    if (!is_async && copy_waits(context, to.side, to.address, from.side, from.address))
        stream_wait(context, stream);
    return CUDA_SUCCESS;
}

/* --- Two dimensions -------------------------------------------------------------------------------- */

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream, bool per_thread, bool is_async)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(copy);
    return copy_box(&(CUDA_MEMCPY3D_PEER){.srcXInBytes = copy->srcXInBytes,
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
                    stream, per_thread, is_async);
}

SIM_FORMS(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D *copy), copy_2d(copy, NULL, per_thread, false))

SIM_FORMS(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D *copy), copy_2d(copy, NULL, per_thread, false))

SIM_FORMS(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D *copy, CUstream stream),
          copy_2d(copy, stream, per_thread, true))

/* --- Three dimensions ------------------------------------------------------------------------------ */

static CUresult copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream, bool per_thread, bool is_async)
{
    _Static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER),
                   "contexts where reserved pointers are");
    CUDA_MEMCPY3D_PEER same;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(copy);
    memcpy(&same, copy, sizeof(same));
    same.srcContext = same.dstContext = NULL;
    return copy_box(&same, stream, per_thread, is_async);
}

SIM_FORMS(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D *copy), copy_3d(copy, NULL, per_thread, false))

SIM_FORMS(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D *copy, CUstream stream),
          copy_3d(copy, stream, per_thread, true))

/* --- Arrays: bytes from an offset on, in all their rows as one line -------------------------------- */

/* In a stream that is being captured, a copy inside one row becomes a node. The one-dimensional arrays that
 * these calls are for have one row. What reaches beyond it is not a box, and is left to be refused. */
static bool line_capture(CUarray to_array, uint64_t to, CUarray from_array, uint64_t from, uint64_t bytes,
                         CUstream handle, bool per_thread, CUresult *result)
{
    CUarray array = to_array ? to_array : from_array;
    uint64_t offset = to_array ? to : from;
    if (array_check(array) != CUDA_SUCCESS || offset >= array->row_bytes || bytes > array->row_bytes - offset)
        return false;
    return copy_box_capture(
        &(CUDA_MEMCPY3D_PEER){.srcXInBytes = to_array ? 0 : from,
                              .srcMemoryType = to_array ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY,
                              .srcHost = to_array ? (const void *)(uintptr_t)from : NULL,
                              .srcArray = from_array,
                              .dstXInBytes = to_array ? to : 0,
                              .dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST,
                              .dstHost = to_array ? NULL : (void *)(uintptr_t)to,
                              .dstArray = to_array,
                              .WidthInBytes = bytes,
                              .Height = 1,
                              .Depth = 1},
        handle, per_thread, result);
}

static CUresult copy_array_line(CUarray to_array, uint64_t to, CUarray from_array, uint64_t from,
                                uint64_t bytes, enum copy_side host_or_device, CUstream handle,
                                bool per_thread, bool is_async)
{
    CUcontext context;
    CUstream stream;
    CUresult result;
    if (is_async && capture_is_possible() &&
        line_capture(to_array, to, from_array, from, bytes, handle, per_thread, &result))
        return result;
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    enum copy_side to_side = to_array ? COPY_DEVICE : host_or_device;
    enum copy_side from_side = from_array ? COPY_DEVICE : host_or_device;
    CUarray ends[] = {to_array, from_array};
    uint64_t *offsets[] = {&to, &from};
    for (unsigned i = 0; i < 2; i++) {
        if (!ends[i])
            continue;
        if (array_check(ends[i]) != CUDA_SUCCESS)
            return CUDA_ERROR_INVALID_VALUE;
        uint64_t size = ends[i]->row_bytes * ends[i]->rows * ends[i]->slices;
        SIM_REQUIRE(ends[i]->texel.bytes > 0 && *offsets[i] <= size && bytes <= size - *offsets[i]);
        SIM_REQUIRE(*offsets[i] % ends[i]->texel.bytes == 0 && bytes % ends[i]->texel.bytes == 0);
    }
    if (bytes == 0)
        return CUDA_SUCCESS;
    if (!to_array)
        SIM_TRY(copy_side_check(context->device, &to_side, to, bytes));
    if (!from_array)
        SIM_TRY(copy_side_check(context->device, &from_side, from, bytes));
    copy_submit(context, stream, (struct copy_range){to_side, to, bytes},
                (struct copy_range){from_side, from, bytes}, bytes);
    array_move(to_array, to, from_array, from, bytes);
    if (!is_async && copy_waits(context, to_side, to, from_side, from))
        stream_wait(context, stream);
    return CUDA_SUCCESS;
}

/* Refuse NULL, which copy_array_line() would take for an end in memory. */
static CUresult array_named(CUarray array)
{
    SIM_TRY(sim_ready());
    return array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#define TO_DEVICE_FROM_ARRAY(name, per_thread)                                                               \
    CUresult name(CUdeviceptr to, CUarray from, size_t offset, size_t bytes)                                 \
    {                                                                                                        \
        SIM_TRY(array_named(from));                                                                          \
        return copy_array_line(NULL, to, from, offset, bytes, COPY_DEVICE, NULL, per_thread, false);         \
    }
#define TO_ARRAY_FROM_DEVICE(name, per_thread)                                                               \
    CUresult name(CUarray to, size_t offset, CUdeviceptr from, size_t bytes)                                 \
    {                                                                                                        \
        SIM_TRY(array_named(to));                                                                            \
        return copy_array_line(to, offset, NULL, from, bytes, COPY_DEVICE, NULL, per_thread, false);         \
    }
#define TO_ARRAY_FROM_ARRAY(name, size_type, per_thread)                                                     \
    CUresult name(CUarray to, size_type to_offset, CUarray from, size_type from_offset, size_type bytes)     \
    {                                                                                                        \
        SIM_TRY(array_named(to));                                                                            \
        SIM_TRY(array_named(from));                                                                          \
        return copy_array_line(to, to_offset, from, from_offset, bytes, COPY_DEVICE, NULL, per_thread,       \
                               false);                                                                       \
    }
#define TO_HOST_FROM_ARRAY(name, size_type, per_thread)                                                      \
    CUresult name(void *to, CUarray from, size_type offset, size_type bytes)                                 \
    {                                                                                                        \
        SIM_TRY(array_named(from));                                                                          \
        return copy_array_line(NULL, (uint64_t)(uintptr_t)to, from, offset, bytes, COPY_HOST, NULL,          \
                               per_thread, false);                                                           \
    }
#define TO_HOST_FROM_ARRAY_ASYNC(name, size_type, per_thread)                                                \
    CUresult name(void *to, CUarray from, size_type offset, size_type bytes, CUstream stream)                \
    {                                                                                                        \
        SIM_TRY(array_named(from));                                                                          \
        return copy_array_line(NULL, (uint64_t)(uintptr_t)to, from, offset, bytes, COPY_HOST, stream,        \
                               per_thread, true);                                                            \
    }
#define TO_ARRAY_FROM_HOST(name, size_type, per_thread)                                                      \
    CUresult name(CUarray to, size_type offset, const void *from, size_type bytes)                           \
    {                                                                                                        \
        SIM_TRY(array_named(to));                                                                            \
        return copy_array_line(to, offset, NULL, (uint64_t)(uintptr_t)from, bytes, COPY_HOST, NULL,          \
                               per_thread, false);                                                           \
    }
#define TO_ARRAY_FROM_HOST_ASYNC(name, size_type, per_thread)                                                \
    CUresult name(CUarray to, size_type offset, const void *from, size_type bytes, CUstream stream)          \
    {                                                                                                        \
        SIM_TRY(array_named(to));                                                                            \
        return copy_array_line(to, offset, NULL, (uint64_t)(uintptr_t)from, bytes, COPY_HOST, stream,        \
                               per_thread, true);                                                            \
    }

TO_DEVICE_FROM_ARRAY(cuMemcpyAtoD_v2, false)
TO_DEVICE_FROM_ARRAY(cuMemcpyAtoD_v2_ptds, true)
TO_ARRAY_FROM_DEVICE(cuMemcpyDtoA_v2, false)
TO_ARRAY_FROM_DEVICE(cuMemcpyDtoA_v2_ptds, true)
TO_ARRAY_FROM_ARRAY(cuMemcpyAtoA_v2, size_t, false)
TO_ARRAY_FROM_ARRAY(cuMemcpyAtoA_v2_ptds, size_t, true)
TO_HOST_FROM_ARRAY(cuMemcpyAtoH_v2, size_t, false)
TO_HOST_FROM_ARRAY(cuMemcpyAtoH_v2_ptds, size_t, true)
TO_HOST_FROM_ARRAY_ASYNC(cuMemcpyAtoHAsync_v2, size_t, false)
TO_HOST_FROM_ARRAY_ASYNC(cuMemcpyAtoHAsync_v2_ptsz, size_t, true)
TO_ARRAY_FROM_HOST(cuMemcpyHtoA_v2, size_t, false)
TO_ARRAY_FROM_HOST(cuMemcpyHtoA_v2_ptds, size_t, true)
TO_ARRAY_FROM_HOST_ASYNC(cuMemcpyHtoAAsync_v2, size_t, false)
TO_ARRAY_FROM_HOST_ASYNC(cuMemcpyHtoAAsync_v2_ptsz, size_t, true)
/* The forms from before CUDA 3.2 without a device address do the same. Those with one cannot hold 64 bits of
 * it, and are refused (narrow_forms.c). */
TO_ARRAY_FROM_ARRAY(cuMemcpyAtoA, unsigned int, false)
TO_HOST_FROM_ARRAY(cuMemcpyAtoH, unsigned int, false)
TO_HOST_FROM_ARRAY_ASYNC(cuMemcpyAtoHAsync, unsigned int, false)
TO_ARRAY_FROM_HOST(cuMemcpyHtoA, unsigned int, false)
TO_ARRAY_FROM_HOST_ASYNC(cuMemcpyHtoAAsync, unsigned int, false)
