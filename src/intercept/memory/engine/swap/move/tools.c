#include "intercept/memory/engine/swap/move/tools.h"

#include "intercept/memory/engine/swap/state.h"
#include "intercept/resolve/real.h"

/* A program that destroys a stream or an event twice may have destroyed ours the second time, and may have got the
 * handle for one of its own since. Then the handle is left to the program. */
static bool is_stream_ours(CUstream stream)
{
    CUstreamCaptureStatus status;
    return stream && real(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_NONE;
}

static bool is_event_ours(CUevent event)
{
    CUresult result = event ? real(cuEventQuery)(event) : CUDA_ERROR_INVALID_HANDLE;
    return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY;
}

/* Make what does not exist. What was made is kept, whatever fails. */
static CUresult make(struct swap_tools *tools)
{
    CUstream *streams[] = {&tools->copies, &tools->digests};
    CUevent *events[] = {&tools->begun[0], &tools->begun[1],      &tools->done[0],
                         &tools->done[1],  &tools->digests_begun, &tools->digests_done};
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < sizeof(streams) / sizeof(streams[0]) && result == CUDA_SUCCESS; i++)
        if (!is_stream_ours(*streams[i]))
            result = real(cuStreamCreate)(streams[i], CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < sizeof(events) / sizeof(events[0]) && result == CUDA_SUCCESS; i++)
        if (!is_event_ours(*events[i]))
            result = real(cuEventCreate)(events[i], CU_EVENT_DEFAULT);
    return result;
}

CUresult tools_find(CUcontext current, struct swap_tools **tools)
{
    struct swap *swap = swap_state();
    struct swap_tools *place = NULL;
    if (!swap->tools)
        swap->tools = extents_make_table(SWAP_CONTEXTS_MAX * sizeof(struct swap_tools));
    for (unsigned i = 0; swap->tools && i < SWAP_CONTEXTS_MAX; i++) {
        struct swap_tools *known = &swap->tools[i];
        if (known->context == current || (!known->context && !place))
            place = known;
        if (known->context == current)
            break;
    }
    if (!place)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!place->context && real(cuCtxGetDevice)(&place->device) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_CONTEXT;
    place->context = current;
    *tools = place;
    return make(place);
}

void tools_forget_context(CUcontext context)
{
    struct swap_tools *table = swap_state()->tools;
    for (unsigned i = 0; table && i < SWAP_CONTEXTS_MAX; i++)
        if (table[i].context == context)
            table[i] = (struct swap_tools){0};
}
