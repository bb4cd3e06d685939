/* copy_peer.c - copies between contexts, and batches of copies. */
#include <string.h>

#include "simgpu/arrays/arrays.h"
#include "simgpu/copy/copy.h"
#include "simgpu/graph/capture.h"
#include "simgpu/memory/in_use.h"
#include "simgpu/memory/managed.h"

/* --- Between contexts ------------------------------------------------------------------------------ */

static CUresult copy_peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                          size_t bytes, CUstream handle, bool per_thread, bool is_async)
{
    CUcontext context;
    CUstream stream;
    CUresult result;
    SIM_TRY(sim_ready());
    SIM_TRY(context_check(to_context));
    SIM_TRY(context_check(from_context));
    const CUDA_MEMCPY3D_PEER line = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                     .srcHost = (const void *)(uintptr_t)from,
                                     .srcDevice = from,
                                     .srcContext = from_context,
                                     .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                     .dstHost = (void *)(uintptr_t)to,
                                     .dstDevice = to,
                                     .dstContext = to_context,
                                     .WidthInBytes = bytes,
                                     .Height = 1,
                                     .Depth = 1};
    if (is_async && capture_is_possible() && copy_box_capture(&line, handle, per_thread, &result))
        return result;
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    if (bytes == 0)
        return CUDA_SUCCESS;
    enum copy_side to_side = COPY_DEVICE, from_side = COPY_DEVICE;
    SIM_TRY(copy_side_check(to_context->device, &to_side, to, bytes));
    SIM_TRY(copy_side_check(from_context->device, &from_side, from, bytes));
    if (!is_async) {
        /* The copy comes after all that was pending in both (driver API reference). */
        context_wait(to_context);
        context_wait(from_context);
    }
    if (to_context->gpu == from_context->gpu) {
        copy_submit(context, stream, (struct copy_range){to_side, to, bytes},
                    (struct copy_range){from_side, from, bytes}, bytes);
    } else {
        struct managed_faults faults = {0};
        managed_touch(from, bytes, from_context->device, false, &faults);
        managed_touch(to, bytes, to_context->device, true, &faults);
        managed_submit(context, stream, &faults);
        stream_submit(context, stream, TIMELINE_COPY_OUT, execution_link_ns(bytes));
        in_use_add(context, stream, from, bytes);
        in_use_add(context, stream, to, bytes);
    }
    memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    if (!is_async && copy_waits(context, to_side, to, from_side, from))
        stream_wait(context, stream);
    return CUDA_SUCCESS;
}

SIM_FORMS(cuMemcpyPeer, _ptds,
          (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes),
          copy_peer(to, to_context, from, from_context, bytes, NULL, per_thread, false))

SIM_FORMS(cuMemcpyPeerAsync, _ptsz,
          (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
           CUstream stream),
          copy_peer(to, to_context, from, from_context, bytes, stream, per_thread, true))

static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *copy, CUstream stream, bool per_thread, bool is_async)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(copy);
    SIM_TRY(context_check(copy->srcContext));
    SIM_TRY(context_check(copy->dstContext));
    return copy_box(copy, stream, per_thread, is_async);
}

SIM_FORMS(cuMemcpy3DPeer, _ptds, (const CUDA_MEMCPY3D_PEER *copy),
          copy_3d_peer(copy, NULL, per_thread, false))

SIM_FORMS(cuMemcpy3DPeerAsync, _ptsz, (const CUDA_MEMCPY3D_PEER *copy, CUstream stream),
          copy_3d_peer(copy, stream, per_thread, true))

/* --- Batches --------------------------------------------------------------------------------------- */

static bool is_order(CUmemcpySrcAccessOrder order)
{
    return order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
           order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL || order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

/* Each attribute says how a range of operations is done; the first range begins at the first operation. */
static CUresult attributes_check(const CUmemcpyAttributes *attributes, const size_t *first, size_t count,
                                 size_t operations)
{
    SIM_REQUIRE(attributes && first && count > 0 && count <= operations && first[0] == 0);
    for (size_t i = 0; i < count; i++) {
        SIM_REQUIRE(first[i] < operations && (i == 0 || first[i] > first[i - 1]));
        SIM_REQUIRE(is_order(attributes[i].srcAccessOrder));
    }
    return CUDA_SUCCESS;
}

/* Batches go to streams that a program made, or to a thread's own default stream, never to the legacy one.
 * The reference does not say so, but no batch can be captured; and unlike other refused calls, the attempt
 * does not end the capture (seen of cuMemcpyBatchAsync on CUDA 13: github.com/rapidsai/rmm issue 2518; taken
 * to be the same for boxes). */
static CUresult batch_stream(CUstream handle, bool per_thread, CUcontext *context, CUstream *stream)
{
    struct capture_info capture;
    SIM_TRY(stream_find(handle, per_thread, context, stream));
    SIM_REQUIRE(*stream);
    if (!capture_is_possible())
        return CUDA_SUCCESS;
    SIM_TRY(capture_ask(*context, *stream, &capture));
    return capture.status == CU_STREAM_CAPTURE_STATUS_NONE     ? CUDA_SUCCESS
           : capture.status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                                               : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

static CUresult copy_batch(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                           CUmemcpyAttributes *attributes, size_t *first, size_t attribute_count,
                           size_t *failed, CUstream handle, bool per_thread)
{
    CUcontext context;
    CUstream stream;
    if (failed)
        *failed = SIZE_MAX; /* no single operation failed */
    SIM_TRY(sim_ready());
    SIM_REQUIRE(to && from && bytes && count > 0);
    SIM_TRY(attributes_check(attributes, first, attribute_count, count));
    SIM_TRY(batch_stream(handle, per_thread, &context, &stream));
    for (size_t i = 0; i < count; i++) {
        enum copy_side to_side = COPY_ANY, from_side = COPY_ANY;
        CUresult result =
            bytes[i] ? copy_side_check(context->device, &to_side, to[i], bytes[i]) : CUDA_ERROR_INVALID_VALUE;
        if (result == CUDA_SUCCESS)
            result = copy_side_check(context->device, &from_side, from[i], bytes[i]);
        if (result != CUDA_SUCCESS) {
            if (failed)
                *failed = i;
            return result;
        }
    }
    for (size_t i = 0; i < count; i++) {
        enum copy_side to_side = COPY_ANY, from_side = COPY_ANY;
        SIM_TRY(copy_side_check(context->device, &to_side, to[i], bytes[i]));
        SIM_TRY(copy_side_check(context->device, &from_side, from[i], bytes[i]));
        copy_submit(context, stream, (struct copy_range){to_side, to[i], bytes[i]},
                    (struct copy_range){from_side, from[i], bytes[i]}, bytes[i]);
        memmove((void *)(uintptr_t)to[i], (const void *)(uintptr_t)from[i], bytes[i]);
    }
    return CUDA_SUCCESS;
}

SIM_FORMS(cuMemcpyBatchAsync, _ptsz,
          (CUdeviceptr * to, CUdeviceptr *from, size_t *bytes, size_t count, CUmemcpyAttributes *attributes,
           size_t *first, size_t attribute_count, size_t *failed, CUstream stream),
          copy_batch(to, from, bytes, count, attributes, first, attribute_count, failed, stream, per_thread))

SIM_FORMS(cuMemcpyBatchAsync_v2, _ptsz,
          (CUdeviceptr * to, CUdeviceptr *from, size_t *bytes, size_t count, CUmemcpyAttributes *attributes,
           size_t *first, size_t attribute_count, CUstream stream),
          copy_batch(to, from, bytes, count, attributes, first, attribute_count, NULL, stream, per_thread))

/* A batch of one (driver API reference 13.2: the same attributes, and no legacy stream). */
static CUresult copy_with(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes *attributes,
                          CUstream stream, bool per_thread)
{
    size_t first = 0;
    return copy_batch(&to, &from, &bytes, 1, attributes, &first, 1, NULL, stream, per_thread);
}

SIM_FORMS(cuMemcpyWithAttributesAsync, _ptsz,
          (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes *attributes, CUstream stream),
          copy_with(to, from, bytes, attributes, stream, per_thread))

/* One operand of a box in a batch. Its unit is the array's texel, or a byte where no array takes part. */
struct operand {
    CUmemorytype type;
    CUdeviceptr device;
    CUarray array;
    size_t x_bytes, y, z, pitch, height;
};

static CUresult operand_unit(const CUmemcpy3DOperand *operand, size_t *unit)
{
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER)
        return CUDA_SUCCESS;
    SIM_REQUIRE(operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY);
    if (array_check(operand->op.array.array) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_REQUIRE(operand->op.array.array->texel.bytes > 0);
    *unit = operand->op.array.array->texel.bytes;
    return CUDA_SUCCESS;
}

static struct operand operand_read(const CUmemcpy3DOperand *operand, size_t unit)
{
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER)
        return (struct operand){.type = CU_MEMORYTYPE_UNIFIED,
                                .device = operand->op.ptr.ptr,
                                .pitch = operand->op.ptr.rowLength * unit,
                                .height = operand->op.ptr.layerHeight};
    return (struct operand){.type = CU_MEMORYTYPE_ARRAY,
                            .array = operand->op.array.array,
                            .x_bytes = operand->op.array.offset.x * unit,
                            .y = operand->op.array.offset.y,
                            .z = operand->op.array.offset.z};
}

static CUresult copy_operation(const CUDA_MEMCPY3D_BATCH_OP *operation, CUstream stream, bool per_thread)
{
    size_t unit = 1;
    SIM_REQUIRE(is_order(operation->srcAccessOrder));
    SIM_REQUIRE(operation->extent.width && operation->extent.height && operation->extent.depth);
    SIM_TRY(operand_unit(&operation->src, &unit));
    SIM_TRY(operand_unit(&operation->dst, &unit));
    struct operand from = operand_read(&operation->src, unit), to = operand_read(&operation->dst, unit);
    return copy_box(&(CUDA_MEMCPY3D_PEER){.srcXInBytes = from.x_bytes,
                                          .srcY = from.y,
                                          .srcZ = from.z,
                                          .srcMemoryType = from.type,
                                          .srcDevice = from.device,
                                          .srcArray = from.array,
                                          .srcPitch = from.pitch,
                                          .srcHeight = from.height,
                                          .dstXInBytes = to.x_bytes,
                                          .dstY = to.y,
                                          .dstZ = to.z,
                                          .dstMemoryType = to.type,
                                          .dstDevice = to.device,
                                          .dstArray = to.array,
                                          .dstPitch = to.pitch,
                                          .dstHeight = to.height,
                                          .WidthInBytes = operation->extent.width * unit,
                                          .Height = operation->extent.height,
                                          .Depth = operation->extent.depth},
                    stream, per_thread, true);
}

static CUresult copy_3d_batch(size_t count, CUDA_MEMCPY3D_BATCH_OP *operations, size_t *failed,
                              unsigned long long flags, CUstream handle, bool per_thread)
{
    CUcontext context;
    CUstream stream;
    if (failed)
        *failed = SIZE_MAX;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(count > 0 && operations && flags == 0);
    SIM_TRY(batch_stream(handle, per_thread, &context, &stream));
    for (size_t i = 0; i < count; i++) {
        CUresult result = copy_operation(&operations[i], handle, per_thread);
        if (result != CUDA_SUCCESS) {
            if (failed)
                *failed = i;
            return result;
        }
    }
    return CUDA_SUCCESS;
}

SIM_FORMS(cuMemcpy3DBatchAsync, _ptsz,
          (size_t count, CUDA_MEMCPY3D_BATCH_OP *operations, size_t *failed, unsigned long long flags,
           CUstream stream),
          copy_3d_batch(count, operations, failed, flags, stream, per_thread))

SIM_FORMS(cuMemcpy3DBatchAsync_v2, _ptsz,
          (size_t count, CUDA_MEMCPY3D_BATCH_OP *operations, unsigned long long flags, CUstream stream),
          copy_3d_batch(count, operations, NULL, flags, stream, per_thread))

SIM_FORMS(cuMemcpy3DWithAttributesAsync, _ptsz,
          (CUDA_MEMCPY3D_BATCH_OP * operation, unsigned long long flags, CUstream stream),
          copy_3d_batch(1, operation, NULL, flags, stream, per_thread))
