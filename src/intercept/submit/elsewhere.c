#include "intercept/submit/elsewhere.h"

#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/copy_work.h"
#include "intercept/submit/in_flight_entry.h"

/* --- The work itself, in the current context -------------------------------------------------------- */

static CUresult copy_line(const CUDA_MEMCPY3D *line, CUstream stream)
{
    if (line->srcMemoryType == CU_MEMORYTYPE_HOST)
        return real(cuMemcpyHtoDAsync_v2)(line->dstDevice, line->srcHost, line->WidthInBytes, stream);
    if (line->dstMemoryType == CU_MEMORYTYPE_HOST)
        return real(cuMemcpyDtoHAsync_v2)(line->dstHost, line->srcDevice, line->WidthInBytes, stream);
    return real(cuMemcpyAsync)(line->dstDevice, line->srcDevice, line->WidthInBytes, stream);
}

static CUresult set_line(const CUDA_MEMSET_NODE_PARAMS_v2 *fill, CUstream stream)
{
    if (fill->elementSize == 1)
        return real(cuMemsetD8Async)(fill->dst, (unsigned char)fill->value, fill->width, stream);
    if (fill->elementSize == 2)
        return real(cuMemsetD16Async)(fill->dst, (unsigned short)fill->value, fill->width, stream);
    return real(cuMemsetD32Async)(fill->dst, fill->value, fill->width, stream);
}

static CUresult set_rows(const CUDA_MEMSET_NODE_PARAMS_v2 *fill, CUstream stream)
{
    if (fill->elementSize == 1)
        return real(cuMemsetD2D8Async)(fill->dst, fill->pitch, (unsigned char)fill->value, fill->width,
                                       fill->height, stream);
    if (fill->elementSize == 2)
        return real(cuMemsetD2D16Async)(fill->dst, fill->pitch, (unsigned short)fill->value, fill->width,
                                        fill->height, stream);
    return real(cuMemsetD2D32Async)(fill->dst, fill->pitch, fill->value, fill->width, fill->height, stream);
}

static CUresult submit(const CUgraphNodeParams *work, CUstream stream)
{
    if (work->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        return copy_work_is_line(work) ? copy_line(&work->memcpy.copyParams, stream)
                                       : real(cuMemcpy3DAsync_v2)(&work->memcpy.copyParams, stream);
    return work->memset.height == 1 ? set_line(&work->memset, stream) : set_rows(&work->memset, stream);
}

/* --- In the order of a stream ------------------------------------------------------------------------ */

struct place {
    CUcontext context;
    CUstream stream; /* a default stream is its thread's, or its context's */
};

static CUresult record(CUevent *event, const struct place *place)
{
    *event = NULL;
    if (!own_calls_push(place->context))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = real(cuEventCreate)(event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = real(cuEventRecord)(*event, place->stream);
    own_calls_pop();
    return result;
}

static CUresult wait(const struct place *place, CUevent event)
{
    if (!own_calls_push(place->context))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = real(cuStreamWaitEvent)(place->stream, event, CU_EVENT_WAIT_DEFAULT);
    own_calls_pop();
    return result;
}

/* What is put in `second` from now on waits for what is in `first`. */
static CUresult follow(const struct place *first, const struct place *second)
{
    CUevent event;
    CUresult result = record(&event, first);
    if (result == CUDA_SUCCESS)
        result = wait(second, event);
    if (event)
        real(cuEventDestroy_v2)(event); /* a wait that was submitted goes on */
    return result;
}

static CUresult make(struct place *place)
{
    if (!own_calls_push(place->context))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = real(cuStreamCreate)(&place->stream, CU_STREAM_NON_BLOCKING);
    own_calls_pop();
    return result;
}

static CUresult submit_at(const struct place *place, const CUgraphNodeParams *work)
{
    if (!own_calls_push(place->context))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = submit(work, place->stream);
    own_calls_pop();
    return result;
}

/* Where the program's stream cannot be made to wait for it, the program does. */
static CUresult do_between(const struct place *asked, const struct place *own, const CUgraphNodeParams *work)
{
    CUresult result = follow(asked, own);
    if (result == CUDA_SUCCESS)
        result = submit_at(own, work);
    if (result != CUDA_SUCCESS || follow(own, asked) == CUDA_SUCCESS)
        return result;
    return real(cuStreamSynchronize)(own->stream);
}

CUresult elsewhere_do(const CUgraphNodeParams *work, CUcontext context, CUstream stream, bool waits)
{
    struct own_calls calls;
    struct place asked = {in_flight_stream_context(stream), stream}, own = {.context = context};
    own_calls_begin(&calls, NULL);
    CUresult result = make(&own);
    if (result == CUDA_SUCCESS) {
        result = do_between(&asked, &own, work);
        if (result == CUDA_SUCCESS && waits)
            result = real(cuStreamSynchronize)(own.stream);
        real(cuStreamDestroy_v2)(own.stream); /* its work goes on */
    }
    own_calls_end(&calls);
    return result;
}

/* --- In captures ------------------------------------------------------------------------------------- */

static CUresult add_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,
                         const CUgraphNodeParams *work, CUcontext context)
{
    if (work->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        return real(cuGraphAddMemcpyNode)(node, graph, before, count, &work->memcpy.copyParams, context);
    const CUDA_MEMSET_NODE_PARAMS fill = copy_work_fill_of(work);
    return real(cuGraphAddMemsetNode)(node, graph, before, count, &fill, context);
}

CUresult elsewhere_capture(const CUgraphNodeParams *work, CUcontext context, CUstream stream)
{
    struct own_calls calls;
    CUstreamCaptureStatus status;
    CUgraph graph;
    const CUgraphNode *before;
    CUgraphNode node;
    size_t count;
    if (!real(cuStreamGetCaptureInfo_v2) || !real(cuStreamUpdateCaptureDependencies))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    own_calls_begin(&calls, NULL);
    CUresult result = real(cuStreamGetCaptureInfo_v2)(stream, &status, NULL, &graph, &before, &count);
    if (result == CUDA_SUCCESS)
        result = add_node(&node, graph, before, count, work, context);
    if (result == CUDA_SUCCESS)
        result =
            real(cuStreamUpdateCaptureDependencies)(stream, &node, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    own_calls_end(&calls);
    return result;
}
