/* peer_copies.c - copies of boxes, and batches of copies, some of which are between cards that cannot reach each other. */
#include "intercept/submit/peer_copies.h"

#include "intercept/resolve/real.h"

peer_copies_finder *_Atomic peer_copies_find;

/* --- Boxes ----------------------------------------------------------------------------------------- */

static bool is_memory(CUmemorytype type)
{
    return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
}

static CUdeviceptr to_of(const CUDA_MEMCPY3D_PEER *box)
{
    return box->dstDevice + (box->dstZ * box->dstHeight + box->dstY) * box->dstPitch + box->dstXInBytes;
}

static CUdeviceptr from_of(const CUDA_MEMCPY3D_PEER *box)
{
    return box->srcDevice + (box->srcZ * box->srcHeight + box->srcY) * box->srcPitch + box->srcXInBytes;
}

/* Whether the box is such a copy; it gets its contexts. */
static bool is_between(CUDA_MEMCPY3D_PEER *box)
{
    struct peer_copy between;
    if (!is_memory(box->srcMemoryType) || !is_memory(box->dstMemoryType) ||
        !peer_copies_is_one(to_of(box), from_of(box), &between))
        return false;
    box->srcMemoryType = box->dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box->srcContext = between.from;
    box->dstContext = between.to;
    return true;
}

bool peer_copies_name_contexts(const CUDA_MEMCPY3D *copy, CUDA_MEMCPY3D_PEER *box)
{
    if (!copy)
        return false;
    *box = (CUDA_MEMCPY3D_PEER){.srcXInBytes = copy->srcXInBytes,
                                .srcY = copy->srcY,
                                .srcZ = copy->srcZ,
                                .srcLOD = copy->srcLOD,
                                .srcMemoryType = copy->srcMemoryType,
                                .srcDevice = copy->srcDevice,
                                .srcPitch = copy->srcPitch,
                                .srcHeight = copy->srcHeight,
                                .dstXInBytes = copy->dstXInBytes,
                                .dstY = copy->dstY,
                                .dstZ = copy->dstZ,
                                .dstLOD = copy->dstLOD,
                                .dstMemoryType = copy->dstMemoryType,
                                .dstDevice = copy->dstDevice,
                                .dstPitch = copy->dstPitch,
                                .dstHeight = copy->dstHeight,
                                .WidthInBytes = copy->WidthInBytes,
                                .Height = copy->Height,
                                .Depth = copy->Depth};
    return is_between(box);
}

static bool is_2d_between(const CUDA_MEMCPY2D *copy, CUDA_MEMCPY3D_PEER *box)
{
    if (!copy)
        return false;
    *box = (CUDA_MEMCPY3D_PEER){.srcXInBytes = copy->srcXInBytes,
                                .srcY = copy->srcY,
                                .srcMemoryType = copy->srcMemoryType,
                                .srcDevice = copy->srcDevice,
                                .srcPitch = copy->srcPitch,
                                .dstXInBytes = copy->dstXInBytes,
                                .dstY = copy->dstY,
                                .dstMemoryType = copy->dstMemoryType,
                                .dstDevice = copy->dstDevice,
                                .dstPitch = copy->dstPitch,
                                .WidthInBytes = copy->WidthInBytes,
                                .Height = copy->Height,
                                .Depth = 1};
    return is_between(box);
}

#define BOX(symbol, is_one, peer, type)                                                                      \
    CUresult peer_copies_##symbol(const type *copy)                                                          \
    {                                                                                                        \
        CUDA_MEMCPY3D_PEER box;                                                                              \
        return is_one(copy, &box) && real(peer) ? real(peer)(&box) : real(symbol)(copy);                     \
    }
#define BOX_ASYNC(symbol, is_one, peer, type)                                                                \
    CUresult peer_copies_##symbol(const type *copy, CUstream stream)                                         \
    {                                                                                                        \
        CUDA_MEMCPY3D_PEER box;                                                                              \
        return is_one(copy, &box) && real(peer) ? real(peer)(&box, stream) : real(symbol)(copy, stream);     \
    }
BOX(cuMemcpy2D_v2, is_2d_between, cuMemcpy3DPeer, CUDA_MEMCPY2D)
BOX(cuMemcpy2D_v2_ptds, is_2d_between, cuMemcpy3DPeer_ptds, CUDA_MEMCPY2D)
BOX(cuMemcpy2DUnaligned_v2, is_2d_between, cuMemcpy3DPeer, CUDA_MEMCPY2D)
BOX(cuMemcpy2DUnaligned_v2_ptds, is_2d_between, cuMemcpy3DPeer_ptds, CUDA_MEMCPY2D)
BOX(cuMemcpy3D_v2, peer_copies_name_contexts, cuMemcpy3DPeer, CUDA_MEMCPY3D)
BOX(cuMemcpy3D_v2_ptds, peer_copies_name_contexts, cuMemcpy3DPeer_ptds, CUDA_MEMCPY3D)
BOX_ASYNC(cuMemcpy2DAsync_v2, is_2d_between, cuMemcpy3DPeerAsync, CUDA_MEMCPY2D)
BOX_ASYNC(cuMemcpy2DAsync_v2_ptsz, is_2d_between, cuMemcpy3DPeerAsync_ptsz, CUDA_MEMCPY2D)
BOX_ASYNC(cuMemcpy3DAsync_v2, peer_copies_name_contexts, cuMemcpy3DPeerAsync, CUDA_MEMCPY3D)
BOX_ASYNC(cuMemcpy3DAsync_v2_ptsz, peer_copies_name_contexts, cuMemcpy3DPeerAsync_ptsz, CUDA_MEMCPY3D)

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

/* A copy between cards reads in the order of the stream. Whoever lets the source go after the call has it read by then. */
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

static bool has_between(const struct batch *batch)
{
    struct peer_copy between;
    for (size_t i = 0; i < batch->count; i++)
        if (peer_copies_is_one(batch->to[i], batch->from[i], &between))
            return true;
    return false;
}

static CUresult copy_one(const struct batch *batch, size_t i, CUmemcpyAttributes *attributes,
                         plain_batch *plain)
{
    struct peer_copy between;
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
    if (!peer_copies_is_one(*one.to, *one.from, &between))
        return plain(&one);
    CUresult result =
        real(cuMemcpyPeerAsync)(*one.to, between.to, *one.from, between.from, *one.bytes, one.stream);
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
    if (!is_well_formed(batch) || !real(cuMemcpyPeerAsync) || !has_between(batch) ||
        is_for_driver(batch->stream))
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

#define WITH_ATTRIBUTES(symbol, of)                                                                          \
    CUresult peer_copies_##symbol(CUdeviceptr to, CUdeviceptr from, size_t bytes,                            \
                                  CUmemcpyAttributes *attributes, CUstream stream)                           \
    {                                                                                                        \
        struct peer_copy between;                                                                            \
        if (!attributes || !is_order(attributes->srcAccessOrder) || !bytes || !real(cuMemcpyPeerAsync) ||    \
            !peer_copies_is_one(to, from, &between) || is_for_driver(of(stream)))                            \
            return real(symbol)(to, from, bytes, attributes, stream);                                        \
        CUresult result = real(cuMemcpyPeerAsync)(to, between.to, from, between.from, bytes, of(stream));    \
        return end_read(result, attributes->srcAccessOrder, of(stream));                                     \
    }
WITH_ATTRIBUTES(cuMemcpyWithAttributesAsync, )
WITH_ATTRIBUTES(cuMemcpyWithAttributesAsync_ptsz, per_thread)

/* --- Boxes with attributes, alone and in batches --------------------------------------------------- */

/* Rows and layers of no length of their own follow each other without gaps. */
static bool is_operation_between(const CUDA_MEMCPY3D_BATCH_OP *operation, CUDA_MEMCPY3D_PEER *box)
{
    const CUmemcpy3DOperand *to = &operation->dst, *from = &operation->src;
    const CUextent3D *extent = &operation->extent;
    if (to->type != CU_MEMCPY_OPERAND_TYPE_POINTER || from->type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
        !is_order(operation->srcAccessOrder) || !extent->width || !extent->height || !extent->depth)
        return false;
    *box = (CUDA_MEMCPY3D_PEER){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = from->op.ptr.ptr,
                                .srcPitch = from->op.ptr.rowLength ? from->op.ptr.rowLength : extent->width,
                                .srcHeight =
                                    from->op.ptr.layerHeight ? from->op.ptr.layerHeight : extent->height,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = to->op.ptr.ptr,
                                .dstPitch = to->op.ptr.rowLength ? to->op.ptr.rowLength : extent->width,
                                .dstHeight = to->op.ptr.layerHeight ? to->op.ptr.layerHeight : extent->height,
                                .WidthInBytes = extent->width,
                                .Height = extent->height,
                                .Depth = extent->depth};
    return is_between(box);
}

struct boxes {
    size_t count;
    CUDA_MEMCPY3D_BATCH_OP *operations;
    size_t *failed; /* NULL: the call does not tell */
    unsigned long long flags;
    CUstream stream;
};
typedef CUresult plain_boxes(const struct boxes *boxes);

static bool has_box_between(const struct boxes *boxes)
{
    CUDA_MEMCPY3D_PEER box;
    for (size_t i = 0; boxes->operations && i < boxes->count; i++)
        if (is_operation_between(&boxes->operations[i], &box))
            return true;
    return false;
}

static CUresult copy_box(const struct boxes *boxes, size_t i, plain_boxes *plain)
{
    CUDA_MEMCPY3D_PEER box;
    size_t failed;
    CUDA_MEMCPY3D_BATCH_OP *operation = &boxes->operations[i];
    if (!is_operation_between(operation, &box))
        return plain(&(struct boxes){1, operation, boxes->failed ? &failed : NULL, 0, boxes->stream});
    return end_read(real(cuMemcpy3DPeerAsync)(&box, boxes->stream), operation->srcAccessOrder, boxes->stream);
}

static CUresult copy_boxes(const struct boxes *boxes, plain_boxes *plain)
{
    CUresult result = CUDA_SUCCESS;
    if (boxes->flags || !real(cuMemcpy3DPeerAsync) || !has_box_between(boxes) || is_for_driver(boxes->stream))
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
