/* peer_batches.c - copies with attributes, alone and in batches, some of which a card cannot carry out (peer_copies.h). */
#include "intercept/resolve/real.h"
#include "intercept/submit/copy_work.h"
#include "intercept/submit/in_flight_entry.h"
#include "intercept/submit/peer_copies.h"

/* --- Copies with attributes, alone and in batches -------------------------------------------------- */

/* A driver carries out none of these in the legacy stream, or in one that is being captured: then it is to say so. */
static bool is_for_driver(CUstream stream)
{
    CUstreamCaptureStatus status;
    return !stream || stream == CU_STREAM_LEGACY || !real(cuStreamIsCapturing) ||
           real(cuStreamIsCapturing)(stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUstream per_thread(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

static bool is_order(CUmemcpySrcAccessOrder order)
{
    return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

static bool is_needed(const CUgraphNodeParams *work, CUstream stream)
{
    struct peer_contexts contexts;
    return peer_copies_way(work, in_flight_stream_context(stream), &contexts) != PEER_AS_GIVEN;
}

/* What is done in place of the driver reads in the order of the stream. Whoever lets the source go after the call has it read by then. */
static CUresult end_read(CUresult result, CUmemcpySrcAccessOrder order, CUstream stream)
{
    return result == CUDA_SUCCESS && order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL
               ? real(cuStreamSynchronize)(stream)
               : result;
}

/* What the driver's calls for it are given, whatever their form. */
struct batch {
    CUdeviceptr *to, *from;
    size_t *bytes, count;
    CUmemcpyAttributes *attributes;
    size_t *first, attribute_count; /* first[k]: to which copy attributes[k] apply first */
    size_t *failed;                 /* NULL: the call does not tell */
    CUstream stream;
};
typedef CUresult plain_batch(const struct batch *batch);

static bool is_well_formed(const struct batch *batch)
{
    size_t count = batch->attribute_count;
    bool is_so = batch->to && batch->from && batch->bytes && batch->attributes && batch->first && count &&
                 count <= batch->count && batch->first[0] == 0;
    for (size_t k = 0; is_so && k < count; k++)
        is_so = is_order(batch->attributes[k].srcAccessOrder) &&
                (k == 0 || batch->first[k] > batch->first[k - 1]);
    for (size_t i = 0; is_so && i < batch->count; i++)
        is_so = batch->bytes[i] > 0;
    return is_so;
}

static CUgraphNodeParams line_of(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_work_line((struct copy_end){CU_MEMORYTYPE_UNIFIED, to},
                          (struct copy_end){CU_MEMORYTYPE_UNIFIED, from}, bytes);
}

static bool is_any_needed(const struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        CUgraphNodeParams work = line_of(batch->to[i], batch->from[i], batch->bytes[i]);
        if (is_needed(&work, batch->stream))
            return true;
    }
    return false;
}

static CUresult copy_one(const struct batch *batch, size_t i, CUmemcpyAttributes *attributes,
                         plain_batch *plain)
{
    CUresult result;
    CUgraphNodeParams work = line_of(batch->to[i], batch->from[i], batch->bytes[i]);
    size_t first = 0;
    struct batch one = {.to = &batch->to[i],
                        .from = &batch->from[i],
                        .bytes = &batch->bytes[i],
                        .count = 1,
                        .attributes = attributes,
                        .first = &first,
                        .attribute_count = 1,
                        .stream = batch->stream};
    size_t failed;
    one.failed = batch->failed ? &failed : NULL;
    if (!peer_copies_do(&work, one.stream, false, &result))
        return plain(&one);
    return end_read(result, attributes->srcAccessOrder, one.stream);
}

/* Tell which copy failed, if the call is to: the last one of `begun`. */
static void tell_failed(size_t *failed, CUresult result, size_t begun)
{
    if (failed)
        *failed = result == CUDA_SUCCESS ? SIZE_MAX : begun - 1;
}

/* One by one, if any is such a copy: copies of a batch have no order among themselves. */
static CUresult copy_batch(const struct batch *batch, plain_batch *plain)
{
    CUresult result = CUDA_SUCCESS;
    if (!is_well_formed(batch) || !is_any_needed(batch) || is_for_driver(batch->stream))
        return plain(batch);
    size_t at = 0, k = 0;
    for (; at < batch->count && result == CUDA_SUCCESS; at++) {
        while (k + 1 < batch->attribute_count && batch->first[k + 1] <= at)
            k++;
        result = copy_one(batch, at, &batch->attributes[k], plain);
    }
    tell_failed(batch->failed, result, at);
    return result;
}

static CUresult plain_first(const struct batch *batch)
{
    return real(cuMemcpyBatchAsync)(batch->to, batch->from, batch->bytes, batch->count, batch->attributes,
                                    batch->first, batch->attribute_count, batch->failed, batch->stream);
}

static CUresult plain_second(const struct batch *batch)
{
    return real(cuMemcpyBatchAsync_v2)(batch->to, batch->from, batch->bytes, batch->count, batch->attributes,
                                       batch->first, batch->attribute_count, batch->stream);
}

#define BATCH_FIRST(symbol, of)                                                                              \
    CUresult peer_copies_##symbol(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,           \
                                  CUmemcpyAttributes *attributes, size_t *first, size_t attribute_count,     \
                                  size_t *failed, CUstream stream)                                           \
    {                                                                                                        \
        return copy_batch(                                                                                   \
            &(struct batch){to, from, bytes, count, attributes, first, attribute_count, failed, of(stream)}, \
            plain_first);                                                                                    \
    }
#define BATCH_SECOND(symbol, of)                                                                             \
    CUresult peer_copies_##symbol(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,           \
                                  CUmemcpyAttributes *attributes, size_t *first, size_t attribute_count,     \
                                  CUstream stream)                                                           \
    {                                                                                                        \
        return copy_batch(                                                                                   \
            &(struct batch){to, from, bytes, count, attributes, first, attribute_count, NULL, of(stream)},   \
            plain_second);                                                                                   \
    }
BATCH_FIRST(cuMemcpyBatchAsync, )
BATCH_FIRST(cuMemcpyBatchAsync_ptsz, per_thread)
BATCH_SECOND(cuMemcpyBatchAsync_v2, )
BATCH_SECOND(cuMemcpyBatchAsync_v2_ptsz, per_thread)

/* False: the driver is to answer. */
static bool copy_with(CUdeviceptr to, CUdeviceptr from, size_t bytes, const CUmemcpyAttributes *attributes,
                      CUstream stream, CUresult *result)
{
    CUgraphNodeParams work = line_of(to, from, bytes);
    if (!attributes || !is_order(attributes->srcAccessOrder) || !bytes || is_for_driver(stream) ||
        !peer_copies_do(&work, stream, false, result))
        return false;
    *result = end_read(*result, attributes->srcAccessOrder, stream);
    return true;
}

#define WITH_ATTRIBUTES(symbol, of)                                                                          \
    CUresult peer_copies_##symbol(CUdeviceptr to, CUdeviceptr from, size_t bytes,                            \
                                  CUmemcpyAttributes *attributes, CUstream stream)                           \
    {                                                                                                        \
        CUresult result;                                                                                     \
        return copy_with(to, from, bytes, attributes, of(stream), &result)                                   \
                   ? result                                                                                  \
                   : real(symbol)(to, from, bytes, attributes, stream);                                      \
    }
WITH_ATTRIBUTES(cuMemcpyWithAttributesAsync, )
WITH_ATTRIBUTES(cuMemcpyWithAttributesAsync_ptsz, per_thread)

/* --- Boxes with attributes, alone and in batches --------------------------------------------------- */

/* Rows and layers of no length of their own follow each other without gaps. What has an array in it counts its extent in texels,
 * which only the driver knows: it is nothing here. */
static CUgraphNodeParams box_of(const CUDA_MEMCPY3D_BATCH_OP *operation)
{
    const CUmemcpy3DOperand *to = &operation->dst, *from = &operation->src;
    const CUextent3D *extent = &operation->extent;
    if (to->type != CU_MEMCPY_OPERAND_TYPE_POINTER || from->type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
        !is_order(operation->srcAccessOrder) || !extent->width || !extent->height || !extent->depth)
        return copy_work_box(NULL);
    return copy_work_box(
        &(CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                         .srcDevice = from->op.ptr.ptr,
                         .srcPitch = from->op.ptr.rowLength ? from->op.ptr.rowLength : extent->width,
                         .srcHeight = from->op.ptr.layerHeight ? from->op.ptr.layerHeight : extent->height,
                         .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                         .dstDevice = to->op.ptr.ptr,
                         .dstPitch = to->op.ptr.rowLength ? to->op.ptr.rowLength : extent->width,
                         .dstHeight = to->op.ptr.layerHeight ? to->op.ptr.layerHeight : extent->height,
                         .WidthInBytes = extent->width,
                         .Height = extent->height,
                         .Depth = extent->depth});
}

struct boxes {
    size_t count;
    CUDA_MEMCPY3D_BATCH_OP *operations;
    size_t *failed; /* NULL: the call does not tell */
    unsigned long long flags;
    CUstream stream;
};
typedef CUresult plain_boxes(const struct boxes *boxes);

static bool is_any_box_needed(const struct boxes *boxes)
{
    for (size_t i = 0; boxes->operations && i < boxes->count; i++) {
        CUgraphNodeParams work = box_of(&boxes->operations[i]);
        if (is_needed(&work, boxes->stream))
            return true;
    }
    return false;
}

static CUresult copy_box(const struct boxes *boxes, size_t i, plain_boxes *plain)
{
    CUresult result;
    size_t failed;
    CUDA_MEMCPY3D_BATCH_OP *operation = &boxes->operations[i];
    CUgraphNodeParams work = box_of(operation);
    if (!peer_copies_do(&work, boxes->stream, false, &result))
        return plain(&(struct boxes){1, operation, boxes->failed ? &failed : NULL, 0, boxes->stream});
    return end_read(result, operation->srcAccessOrder, boxes->stream);
}

static CUresult copy_boxes(const struct boxes *boxes, plain_boxes *plain)
{
    CUresult result = CUDA_SUCCESS;
    if (boxes->flags || !is_any_box_needed(boxes) || is_for_driver(boxes->stream))
        return plain(boxes);
    size_t at = 0;
    for (; at < boxes->count && result == CUDA_SUCCESS; at++)
        result = copy_box(boxes, at, plain);
    tell_failed(boxes->failed, result, at);
    return result;
}

static CUresult plain_boxes_first(const struct boxes *boxes)
{
    return real(cuMemcpy3DBatchAsync)(boxes->count, boxes->operations, boxes->failed, boxes->flags,
                                      boxes->stream);
}

static CUresult plain_boxes_second(const struct boxes *boxes)
{
    return real(cuMemcpy3DBatchAsync_v2)(boxes->count, boxes->operations, boxes->flags, boxes->stream);
}

static CUresult plain_box(const struct boxes *boxes)
{
    return real(cuMemcpy3DWithAttributesAsync)(boxes->operations, boxes->flags, boxes->stream);
}

#define BOXES_FIRST(symbol, of)                                                                              \
    CUresult peer_copies_##symbol(size_t count, CUDA_MEMCPY3D_BATCH_OP *operations, size_t *failed,          \
                                  unsigned long long flags, CUstream stream)                                 \
    {                                                                                                        \
        return copy_boxes(&(struct boxes){count, operations, failed, flags, of(stream)}, plain_boxes_first); \
    }
#define BOXES_SECOND(symbol, of)                                                                             \
    CUresult peer_copies_##symbol(size_t count, CUDA_MEMCPY3D_BATCH_OP *operations,                          \
                                  unsigned long long flags, CUstream stream)                                 \
    {                                                                                                        \
        return copy_boxes(&(struct boxes){count, operations, NULL, flags, of(stream)}, plain_boxes_second);  \
    }
#define BOX_WITH_ATTRIBUTES(symbol, of)                                                                      \
    CUresult peer_copies_##symbol(CUDA_MEMCPY3D_BATCH_OP *operation, unsigned long long flags,               \
                                  CUstream stream)                                                           \
    {                                                                                                        \
        return copy_boxes(&(struct boxes){1, operation, NULL, flags, of(stream)}, plain_box);                \
    }
BOXES_FIRST(cuMemcpy3DBatchAsync, )
BOXES_FIRST(cuMemcpy3DBatchAsync_ptsz, per_thread)
BOXES_SECOND(cuMemcpy3DBatchAsync_v2, )
BOXES_SECOND(cuMemcpy3DBatchAsync_v2_ptsz, per_thread)
BOX_WITH_ATTRIBUTES(cuMemcpy3DWithAttributesAsync, )
BOX_WITH_ATTRIBUTES(cuMemcpy3DWithAttributesAsync_ptsz, per_thread)
