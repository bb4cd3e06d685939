/* peer_copies.c - which copies and memsets the card that is asked cannot carry out, and the calls for one of them each. */
#include "intercept/submit/peer_copies.h"

#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/copy_work.h"
#include "intercept/submit/elsewhere.h"
#include "intercept/submit/in_flight_entry.h"

peer_places_finder *_Atomic peer_places_find;

/* --- Deciding -------------------------------------------------------------------------------------- */

/* One end of a copy, or what a memset sets. */
struct end {
    CUdeviceptr address; /* 0: it is the host's, or an array */
    bool is_array, is_ours;
    struct peer_place place; /* if it is ours */
};

static struct end end_of(CUmemorytype type, CUdeviceptr device, size_t offset)
{
    struct end end = {.is_array = type == CU_MEMORYTYPE_ARRAY};
    if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED)
        end.address = device + offset;
    peer_places_finder *find = atomic_load_explicit(&peer_places_find, memory_order_relaxed);
    end.is_ours = end.address && find && find(end.address, &end.place);
    return end;
}

static void find_ends(const CUgraphNodeParams *work, struct end *to, struct end *from)
{
    const CUDA_MEMCPY3D *copy = &work->memcpy.copyParams;
    *to = *from = (struct end){0};
    if (work->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        *to = end_of(CU_MEMORYTYPE_DEVICE, work->memset.dst, 0);
    } else if (work->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        *to = end_of(copy->dstMemoryType, copy->dstDevice,
                     (copy->dstZ * copy->dstHeight + copy->dstY) * copy->dstPitch + copy->dstXInBytes);
        *from = end_of(copy->srcMemoryType, copy->srcDevice,
                       (copy->srcZ * copy->srcHeight + copy->srcY) * copy->srcPitch + copy->srcXInBytes);
    }
}

static bool is_reached(const struct end *end, CUdevice device)
{
    return end->place.reachable >> device & 1;
}

/* Both ends are ours. */
static bool is_between(const struct end *to, const struct end *from, CUdevice device)
{
    bool is_apart = to->place.device != from->place.device && !is_reached(to, from->place.device) &&
                    !is_reached(from, to->place.device);
    return is_apart || !is_reached(to, device) || !is_reached(from, device);
}

/* Whether it is memory of a card, though not ours. The context that it goes with; `asked` if it goes with none. */
static bool is_on_card(const struct end *end, CUcontext asked, CUcontext *context)
{
    unsigned type = 0, is_managed = 0;
    *context = asked;
    if (end->is_array)
        return true; /* the copy ignores its context */
    if (!end->address ||
        real(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, end->address) != CUDA_SUCCESS ||
        type != CU_MEMORYTYPE_DEVICE ||
        real(cuPointerGetAttribute)(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, end->address) !=
            CUDA_SUCCESS ||
        is_managed)
        return false;
    if (real(cuPointerGetAttribute)(context, CU_POINTER_ATTRIBUTE_CONTEXT, end->address) != CUDA_SUCCESS ||
        !*context)
        *context = asked;
    return true;
}

enum peer_way peer_copies_way(const CUgraphNodeParams *work, CUcontext asked, struct peer_contexts *contexts)
{
    struct end to, from;
    CUcontext other;
    CUdevice device;
    *contexts = (struct peer_contexts){NULL, NULL};
    find_ends(work, &to, &from);
    if ((!to.is_ours && !from.is_ours) || !own_calls_device(asked, &device))
        return PEER_AS_GIVEN;
    if (to.is_ours && from.is_ours) {
        *contexts = (struct peer_contexts){to.place.context, from.place.context};
        return is_between(&to, &from, device) ? PEER_BETWEEN : PEER_AS_GIVEN;
    }
    const struct end *ours = to.is_ours ? &to : &from;
    bool is_between_cards = is_on_card(to.is_ours ? &from : &to, asked, &other);
    CUcontext rest = is_between_cards ? other : ours->place.context;
    contexts->to = to.is_ours ? to.place.context : rest;
    contexts->from = from.is_ours ? from.place.context : rest;
    if (is_reached(ours, device))
        return PEER_AS_GIVEN;
    return is_between_cards ? PEER_BETWEEN : PEER_ELSEWHERE;
}

/* For an end of a copy that names contexts: the one that the program named, unless its card cannot reach the memory. */
static CUcontext name(CUmemorytype type, CUdeviceptr address, CUcontext named)
{
    CUdevice device;
    struct end end = end_of(type, address, 0);
    bool is_another = end.is_ours && named && own_calls_device(named, &device) && !is_reached(&end, device);
    return is_another ? end.place.context : named;
}

static CUcontext name_line(CUdeviceptr address, CUcontext named)
{
    return name(CU_MEMORYTYPE_DEVICE, address, named);
}

static CUDA_MEMCPY3D_PEER named_box(const CUDA_MEMCPY3D_PEER *given)
{
    CUDA_MEMCPY3D_PEER box = *given;
    box.srcContext = name(box.srcMemoryType, box.srcDevice, box.srcContext);
    box.dstContext = name(box.dstMemoryType, box.dstDevice, box.dstContext);
    return box;
}

/* --- Doing ----------------------------------------------------------------------------------------- */

static CUmemorytype type_of(CUmemorytype given)
{
    return given == CU_MEMORYTYPE_UNIFIED ? CU_MEMORYTYPE_DEVICE : given;
}

CUDA_MEMCPY3D_PEER peer_copies_box(const CUgraphNodeParams *work, const struct peer_contexts *contexts)
{
    const CUDA_MEMCPY3D *copy = &work->memcpy.copyParams;
    return (CUDA_MEMCPY3D_PEER){.srcXInBytes = copy->srcXInBytes,
                                .srcY = copy->srcY,
                                .srcZ = copy->srcZ,
                                .srcLOD = copy->srcLOD,
                                .srcMemoryType = type_of(copy->srcMemoryType),
                                .srcDevice = copy->srcDevice,
                                .srcArray = copy->srcArray,
                                .srcContext = contexts->from,
                                .srcPitch = copy->srcPitch,
                                .srcHeight = copy->srcHeight,
                                .dstXInBytes = copy->dstXInBytes,
                                .dstY = copy->dstY,
                                .dstZ = copy->dstZ,
                                .dstLOD = copy->dstLOD,
                                .dstMemoryType = type_of(copy->dstMemoryType),
                                .dstDevice = copy->dstDevice,
                                .dstArray = copy->dstArray,
                                .dstContext = contexts->to,
                                .dstPitch = copy->dstPitch,
                                .dstHeight = copy->dstHeight,
                                .WidthInBytes = copy->WidthInBytes,
                                .Height = copy->Height,
                                .Depth = copy->Depth};
}

static CUresult copy_box(const CUDA_MEMCPY3D_PEER *box, CUstream stream, bool waits)
{
    if (!waits)
        return real(cuMemcpy3DPeerAsync)(box, stream);
    return stream == CU_STREAM_PER_THREAD ? real(cuMemcpy3DPeer_ptds)(box) : real(cuMemcpy3DPeer)(box);
}

static CUresult copy_line(const CUDA_MEMCPY3D_PEER *line, CUstream stream, bool waits)
{
    if (!waits)
        return real(cuMemcpyPeerAsync)(line->dstDevice, line->dstContext, line->srcDevice, line->srcContext,
                                       line->WidthInBytes, stream);
    return (stream == CU_STREAM_PER_THREAD ? real(cuMemcpyPeer_ptds) : real(cuMemcpyPeer))(
        line->dstDevice, line->dstContext, line->srcDevice, line->srcContext, line->WidthInBytes);
}

static CUresult copy_between(const CUgraphNodeParams *work, const struct peer_contexts *contexts,
                             CUstream stream, bool waits)
{
    CUDA_MEMCPY3D_PEER box = peer_copies_box(work, contexts);
    return copy_work_is_line(work) ? copy_line(&box, stream, waits) : copy_box(&box, stream, waits);
}

/* How a capture in the stream has the call go on. The driver refuses synchronous calls, and what is in a stream that other captures
 * forbid: it is asked, since it also ends the capture. */
enum captured { CAPTURED_NOT, CAPTURED_AS_NODE, CAPTURED_REFUSED };

static enum captured look_for_capture(CUstream stream, bool is_sync)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!own_calls_has_captured() || !real(cuStreamIsCapturing))
        return CAPTURED_NOT;
    if (real(cuStreamIsCapturing)(stream, &status) != CUDA_SUCCESS)
        return CAPTURED_REFUSED;
    if (status == CU_STREAM_CAPTURE_STATUS_NONE)
        return CAPTURED_NOT;
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE && !is_sync ? CAPTURED_AS_NODE : CAPTURED_REFUSED;
}

bool peer_copies_do(const CUgraphNodeParams *work, CUstream stream, bool is_sync, CUresult *result)
{
    struct peer_contexts contexts;
    enum peer_way way = peer_copies_way(work, in_flight_stream_context(stream), &contexts);
    enum captured captured = way == PEER_AS_GIVEN ? CAPTURED_NOT : look_for_capture(stream, is_sync);
    if (way == PEER_AS_GIVEN || captured == CAPTURED_REFUSED)
        return false;
    if (way == PEER_BETWEEN)
        *result = copy_between(work, &contexts, stream, is_sync);
    else if (captured == CAPTURED_AS_NODE)
        *result = elsewhere_capture(work, contexts.to, stream);
    else
        *result = elsewhere_do(work, contexts.to, stream, is_sync);
    return true;
}

/* --- The calls ------------------------------------------------------------------------------------- */

/* A call with the legacy stream, or a named one; and its form with the thread's own. */
#define DOES(symbol, suffix, parameters, arguments, stream, per_thread, is_sync, work)                       \
    DOES_ONE(symbol, parameters, arguments, stream, is_sync, work)                                           \
    DOES_ONE(symbol##suffix, parameters, arguments, per_thread, is_sync, work)
#define DOES_ONE(symbol, parameters, arguments, stream, is_sync, work)                                       \
    CUresult peer_copies_##symbol parameters                                                                 \
    {                                                                                                        \
        CUgraphNodeParams described = work;                                                                  \
        CUresult result;                                                                                     \
        return peer_copies_do(&described, stream, is_sync, &result) ? result : real(symbol) arguments;       \
    }
#define SYNC(symbol, parameters, arguments, work)                                                            \
    DOES(symbol, _ptds, parameters, arguments, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, true, work)
#define ASYNC(symbol, parameters, arguments, work)                                                           \
    DOES(symbol, _ptsz, parameters, arguments, stream ? stream : CU_STREAM_LEGACY,                           \
         stream ? stream : CU_STREAM_PER_THREAD, false, work)

/* A copy of a line, synchronous and not. */
#define END(type, address) ((struct copy_end){CU_MEMORYTYPE_##type, (CUdeviceptr)(address)})
#define LINE(symbol, symbol_async, to_type, to_kind, from_type, from_kind)                                   \
    SYNC(symbol, (to_type to, from_type from, size_t bytes), (to, from, bytes),                              \
         copy_work_line(END(to_kind, to), END(from_kind, from), bytes))                                      \
    ASYNC(symbol_async, (to_type to, from_type from, size_t bytes, CUstream stream),                         \
          (to, from, bytes, stream), copy_work_line(END(to_kind, to), END(from_kind, from), bytes))
LINE(cuMemcpy, cuMemcpyAsync, CUdeviceptr, UNIFIED, CUdeviceptr, UNIFIED)
LINE(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, CUdeviceptr, DEVICE, CUdeviceptr, DEVICE)
LINE(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, CUdeviceptr, DEVICE, const void *, HOST)
LINE(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, void *, HOST, CUdeviceptr, DEVICE)

SYNC(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *copy), (copy), copy_work_rows(copy))
SYNC(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *copy), (copy), copy_work_rows(copy))
SYNC(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *copy), (copy), copy_work_box(copy))
ASYNC(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *copy, CUstream stream), (copy, stream), copy_work_rows(copy))
ASYNC(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *copy, CUstream stream), (copy, stream), copy_work_box(copy))

/* Copies that name contexts: a driver takes memory of cuMemAlloc for what it is, whichever context is named with it. */
#define NAMED(symbol, parameters, ...)                                                                       \
    CUresult peer_copies_##symbol parameters                                                                 \
    {                                                                                                        \
        return real(symbol)(to, name_line(to, to_context), from, name_line(from, from_context),              \
                            bytes __VA_ARGS__);                                                              \
    }
#define NAMED_BOX(symbol, parameters, ...)                                                                   \
    CUresult peer_copies_##symbol parameters                                                                 \
    {                                                                                                        \
        CUDA_MEMCPY3D_PEER box;                                                                              \
        return real(symbol)(copy ? (box = named_box(copy), &box) : NULL __VA_ARGS__);                        \
    }
#define NAMED_FORMS(suffix, suffix_async)                                                                    \
    NAMED(cuMemcpyPeer##suffix,                                                                              \
          (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes), )  \
    NAMED(cuMemcpyPeerAsync##suffix_async,                                                                   \
          (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,     \
           CUstream stream),                                                                                 \
          , stream)                                                                                          \
    NAMED_BOX(cuMemcpy3DPeer##suffix, (const CUDA_MEMCPY3D_PEER *copy), )                                    \
    NAMED_BOX(cuMemcpy3DPeerAsync##suffix_async, (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), , stream)
NAMED_FORMS(, )
NAMED_FORMS(_ptds, _ptsz)

/* An array has no context to name, and no card but its own can read or write it. */
#define LINE_OF_ARRAY(symbol, parameters, arguments, ...)                                                    \
    SYNC(symbol, parameters, arguments,                                                                      \
         copy_work_box(&(CUDA_MEMCPY3D){.WidthInBytes = bytes, .Height = 1, .Depth = 1, __VA_ARGS__}))
LINE_OF_ARRAY(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, size_t offset, size_t bytes),
              (to, from, offset, bytes), .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to,
              .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = from, .srcXInBytes = offset)
LINE_OF_ARRAY(cuMemcpyDtoA_v2, (CUarray to, size_t offset, CUdeviceptr from, size_t bytes),
              (to, offset, from, bytes), .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = to,
              .dstXInBytes = offset, .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from)

/* Lines and rows of one value, synchronous and not. */
#define FILL(bits, type)                                                                                     \
    SYNC(cuMemsetD##bits##_v2, (CUdeviceptr to, type value, size_t count), (to, value, count),               \
         copy_work_fill(to, 0, value, sizeof(type), count, 1))                                               \
    ASYNC(cuMemsetD##bits##Async, (CUdeviceptr to, type value, size_t count, CUstream stream),               \
          (to, value, count, stream), copy_work_fill(to, 0, value, sizeof(type), count, 1))                  \
    SYNC(cuMemsetD2D##bits##_v2, (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height),    \
         (to, pitch, value, width, height), copy_work_fill(to, pitch, value, sizeof(type), width, height))   \
    ASYNC(cuMemsetD2D##bits##Async,                                                                          \
          (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream),          \
          (to, pitch, value, width, height, stream),                                                         \
          copy_work_fill(to, pitch, value, sizeof(type), width, height))
FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned int)
