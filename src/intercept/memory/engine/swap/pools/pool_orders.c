#include "intercept/memory/engine/swap/pools/pool_orders.h"

#include "intercept/memory/engine/swap/state.h"
#include "intercept/resolve/guard.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/in_flight.h"

static struct swap_pools *state(void)
{
    return &swap_state()->pools;
}

void orders_keep_event(const struct order *order)
{
    struct swap_pools *pools = state();
    if (pools->event_count < SWAP_EVENTS)
        pools->events[pools->event_count++] = (struct swap_event){order->context, order->event};
    else
        real(cuEventDestroy_v2)(order->event);
}

static CUevent kept_event(CUcontext context)
{
    struct swap_pools *pools = state();
    for (uint32_t i = pools->event_count; i-- > 0;) {
        struct swap_event kept = pools->events[i];
        if (kept.context != context)
            continue;
        pools->events[i] = pools->events[--pools->event_count];
        return kept.event;
    }
    return NULL;
}

static CUevent new_event(CUcontext context)
{
    struct own_calls calls;
    CUevent event = NULL;
    if (!own_calls_begin(&calls, context))
        return NULL;
    if (real(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        event = NULL;
    own_calls_end(&calls);
    return event;
}

bool orders_is_over(const struct order *order)
{
    return real(cuEventQuery)(order->event) != CUDA_ERROR_NOT_READY;
}

bool orders_is_surely_over(const struct order *order)
{
    return order->event != NULL;
}

CUresult orders_find_stream(struct stream *stream, CUstream handle, bool is_per_thread)
{
    unsigned long long number = 0;
    CUresult (*get_id)(CUstream, unsigned long long *) =
        is_per_thread ? real(cuStreamGetId_ptsz) : real(cuStreamGetId);
    CUresult result = real(cuCtxGetCurrent)(&stream->context);
    if (result == CUDA_SUCCESS && get_id)
        result = get_id(handle, &number);
    if (result == CUDA_SUCCESS && handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD &&
        real(cuStreamGetCtx))
        result = real(cuStreamGetCtx)(handle, &stream->context);
    stream->handle = handle;
    stream->is_per_thread = is_per_thread;
    stream->number = number;
    return result;
}

static CUresult record(const struct stream *stream, CUevent event)
{
    return stream->is_per_thread ? real(cuEventRecord_ptsz)(event, stream->handle)
                                 : real(cuEventRecord)(event, stream->handle);
}

/* An order that has an event, behind which nothing stands yet. `stream`: the number of the stream; 0: none. */
static CUresult make(CUcontext context, uint64_t stream, struct order *order)
{
    guard_lock(&swap_state()->lock);
    CUevent event = kept_event(context);
    *order = (struct order){.context = context, .stream = stream, .number = ++state()->orders};
    guard_unlock(&swap_state()->lock);
    if (!event && !(event = new_event(context)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    order->event = event;
    return CUDA_SUCCESS;
}

CUresult orders_begin(const struct stream *stream, struct order *order)
{
    CUresult result = make(stream->context, stream->number, order);
    return result == CUDA_SUCCESS ? record(stream, order->event) : result;
}

CUresult orders_begin_all(CUcontext context, orders_recorder *record_all, struct order *order)
{
    CUresult result = make(context, 0, order);
    if (result == CUDA_SUCCESS)
        result = in_flight_follow_context(context, order->event, record_all);
    if (result != CUDA_SUCCESS) {
        orders_drop(order);
        order->event = NULL;
    }
    return result;
}

void orders_drop(const struct order *order)
{
    guard_lock(&swap_state()->lock);
    if (order->event)
        orders_keep_event(order);
    guard_unlock(&swap_state()->lock);
}

CUresult orders_wait(const struct stream *stream, const struct order *order)
{
    return stream->is_per_thread ? real(cuStreamWaitEvent_ptsz)(stream->handle, order->event, 0)
                                 : real(cuStreamWaitEvent)(stream->handle, order->event, 0);
}

void orders_forget_context(CUcontext context)
{
    struct swap_pools *pools = state();
    uint32_t count = 0;
    for (uint32_t i = 0; i < pools->event_count; i++)
        if (pools->events[i].context != context)
            pools->events[count++] = pools->events[i];
    pools->event_count = count;
}
