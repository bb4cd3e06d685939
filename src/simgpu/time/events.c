/* events.c - events: marks of a stream at some moment, and when they were reached. */
#include "simgpu/time/events.h"

#include <stdlib.h>

#include "simgpu/device/faults.h"
#include "simgpu/device/shared.h"
#include "simgpu/graph/capture.h"
#include "simgpu/memory/memory.h"
#include "simgpu/time/execution.h"
#include "simgpu/time/interprocess.h"

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

/* Recorded and not yet settled, by GPU. Under execution_lock(). */
static LIST_HEAD(, CUevent_st) pending[DEVICE_GPUS];

static struct kept_handles destroyed = KEPT_HANDLES_INITIALIZER(destroyed);

static void pending_add(CUevent event)
{
    LIST_INSERT_HEAD(&pending[event->context->gpu], event, entry);
    event->pending = true;
}

static void pending_remove(CUevent event)
{
    if (!event->pending)
        return;
    LIST_REMOVE(event, entry);
    event->pending = false;
}

static void settle(CUevent event)
{
    uint64_t done_ns = execution_done_ns(event->context->gpu, &event->marks);
    event->done_ns = done_ns > event->recorded_ns ? done_ns : event->recorded_ns;
}

void events_settle(unsigned gpu)
{
    for (CUevent event = LIST_FIRST(&pending[gpu]), next; event; event = next) {
        next = LIST_NEXT(event, entry);
        /* The look that called us has told all it knows; asking again would call us again. */
        if (!execution_is_known_reached(gpu, &event->marks))
            continue;
        settle(event);
        pending_remove(event);
    }
}

/* The event that this thread recorded last in a stream that was idle. */
static _Thread_local struct {
    CUevent event;
    CUstream stream;
    uint64_t recorded_ns;
} before_work;

void event_spare(CUcontext context, CUstream stream, uint64_t spent_ns)
{
    CUevent event = before_work.stream == stream ? before_work.event : NULL;
    before_work.event = NULL;
    if (!event || atomic_load(&event->kind) != SIM_EVENT || event->context != context)
        return;
    execution_lock(context->gpu);
    if (event->done_ns == before_work.recorded_ns) /* it was not recorded again */
        event->recorded_ns = event->done_ns = event->done_ns + spent_ns;
    execution_unlock(context->gpu);
}

static CUresult event_check(CUevent event)
{
    sim_touch_handle();
    SIM_TRY(sim_ready());
    if (!event || atomic_load(&event->kind) != SIM_EVENT)
        return CUDA_ERROR_INVALID_HANDLE;
    return CUDA_SUCCESS;
}

/* The struct of an event that was destroyed long ago, or a new one; NULL without memory. */
static CUevent event_take(void)
{
    CUevent event = kept_handles_take(&destroyed);
    return event ? event : calloc(1, sizeof(*event));
}

static CUresult event_make(CUevent *event_out, CUcontext context, unsigned flags, struct event_place *place)
{
    CUevent event = event_take();
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->context = context;
    event->flags = flags;
    event->recorded = event->pending = false;
    event->place = place;
    atomic_store(&event->kind, SIM_EVENT);
    *event_out = event;
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    CUcontext context;
    struct event_place *place = NULL;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(event && (flags & ~(unsigned)EVENT_FLAGS) == 0);
    SIM_REQUIRE(!(flags & CU_EVENT_INTERPROCESS) || (flags & CU_EVENT_DISABLE_TIMING));
    SIM_TRY(context_current(&context));
    if (flags & CU_EVENT_INTERPROCESS && !(place = interprocess_make()))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = event_make(event, context, flags, place);
    if (result != CUDA_SUCCESS && place)
        interprocess_end(place);
    return result;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
    SIM_TRY(event_check(event));
    SIM_REQUIRE(handle);
    return event->place && interprocess_name(event->place, event->context->gpu, handle)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_HANDLE; /* not made for it, or another process's */
}

/* The event is the current context's, which must be on the GPU of the event's maker. */
CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
    CUcontext context;
    struct event_place *place;
    unsigned gpu;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(event);
    SIM_TRY(context_current(&context));
    SIM_TRY(interprocess_open(&handle, &gpu, &place));
    if (gpu != context->gpu)
        return CUDA_ERROR_INVALID_CONTEXT;
    return event_make(event, context, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, place);
}

static CUresult event_destroy(CUevent event)
{
    SIM_TRY(event_check(event));
    unsigned kind = SIM_EVENT;
    if (!atomic_compare_exchange_strong(&event->kind, &kind, SIM_DESTROYED))
        return CUDA_ERROR_INVALID_HANDLE;
    execution_lock(event->context->gpu);
    pending_remove(event);
    execution_unlock(event->context->gpu);
    if (event->capture)
        capture_event_forget(event);
    if (event->place)
        interprocess_end(event->place);
    kept_handles_add(&destroyed, event, &event->kept);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    return event_destroy(event);
}

CUresult cuEventDestroy_v2(CUevent event)
{
    return event_destroy(event);
}

/* An event on an idle stream: where the constant says so, it waits for the GPU as a kernel of no length does. */
static void wait_for_time(CUcontext context, CUstream stream)
{
    if (!constant_whole(SIM_EVENT_WAITS))
        return;
    execution_lock(context->gpu);
    struct timeline_marks marks = stream_marks(context, stream);
    bool is_idle = execution_is_reached(context->gpu, &marks);
    execution_unlock(context->gpu);
    if (is_idle)
        stream_submit_marked(context, stream, TIMELINE_COMPUTE, 0);
}

static CUresult event_record(CUevent event, CUstream handle, bool per_thread, unsigned flags)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(event_check(event));
    SIM_REQUIRE((flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) == 0);
    CUresult result;
    if (capture_is_possible() && capture_event_record(event, handle, per_thread, flags, &result))
        return result;
    if (flags & CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE; /* for captures only */
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    if (event->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (fault_of_record())
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (event->capture)
        capture_event_forget(event);
    cost_pay(event->flags & CU_EVENT_DISABLE_TIMING ? SIM_EVENT_NS : SIM_EVENT_TIMED_NS);
    stream_take_last_kernel(context, stream);
    wait_for_time(context, stream);
    if (event->place)
        return interprocess_record(event->place, context, stream);
    execution_lock(context->gpu);
    pending_remove(event);
    event->marks = stream_marks(context, stream);
    event->recorded = true;
    event->recorded_ns = monotonic_ns();
    event->done_ns = 0;
    bool is_idle = execution_is_reached(context->gpu, &event->marks);
    if (is_idle)
        event->done_ns = event->recorded_ns;
    else
        pending_add(event);
    before_work.event = is_idle ? event : NULL;
    before_work.stream = stream;
    before_work.recorded_ns = event->recorded_ns;
    execution_unlock(context->gpu);
    return CUDA_SUCCESS;
}

SIM_FORMS(cuEventRecord, _ptsz, (CUevent event, CUstream stream), event_record(event, stream, per_thread, 0))

SIM_FORMS(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned int flags),
          event_record(event, stream, per_thread, flags))

/* An event that was never recorded is done (driver API reference). */
CUresult cuEventQuery(CUevent event)
{
    SIM_TRY(event_check(event));
    SIM_TRY(context_check(event->context));
    SIM_TRY(capture_event_use(event));
    cost_pay(SIM_QUERY_NS);
    if (event->place)
        return interprocess_query(event->place) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    execution_lock(event->context->gpu);
    bool done = !event->recorded || execution_is_reached(event->context->gpu, &event->marks);
    execution_unlock(event->context->gpu);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event)
{
    SIM_TRY(event_check(event));
    SIM_TRY(context_check(event->context));
    SIM_TRY(capture_event_use(event));
    if (event->place)
        interprocess_synchronize(event->place);
    execution_lock(event->context->gpu);
    bool recorded = event->recorded;
    struct timeline_marks marks = event->marks;
    execution_unlock(event->context->gpu);
    if (recorded)
        execution_wait(event->context->gpu, &marks);
    pool_settle(event->context->gpu);
    return context_check(event->context);
}

/* The clock of events goes in steps. */
static uint64_t in_steps(uint64_t time_ns)
{
    uint64_t step_ns = constant_whole(SIM_EVENT_STEP_NS);
    return step_ns > 0 ? time_ns - time_ns % step_ns : time_ns;
}

/* When a recorded event happened; false if it has not. */
static bool event_time(CUevent event, uint64_t *time_ns)
{
    unsigned gpu = event->context->gpu;
    execution_lock(gpu);
    bool done = event->done_ns > 0 || execution_is_reached(gpu, &event->marks);
    *time_ns = in_steps(event->done_ns);
    execution_unlock(gpu);
    return done && *time_ns > 0;
}

static CUresult event_elapsed(float *milliseconds, CUevent start, CUevent end)
{
    SIM_TRY(event_check(start));
    SIM_TRY(event_check(end));
    SIM_REQUIRE(milliseconds);
    if (start->capture || end->capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (!start->recorded || !end->recorded || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) ||
        start->context->gpu != end->context->gpu)
        return CUDA_ERROR_INVALID_HANDLE;
    uint64_t start_ns, end_ns;
    if (!event_time(start, &start_ns) || !event_time(end, &end_ns))
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)((int64_t)(end_ns - start_ns)) / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    return event_elapsed(milliseconds, start, end);
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    return event_elapsed(milliseconds, start, end);
}

/* --- Waiting on the device's side ------------------------------------------------------------------ */

static CUresult stream_wait_event(CUstream handle, CUevent event, bool per_thread, unsigned flags)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(event_check(event));
    SIM_REQUIRE((flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) == 0);
    CUresult result;
    if (capture_is_possible() && capture_event_wait(event, handle, per_thread, flags, &result))
        return result;
    SIM_REQUIRE(flags == CU_EVENT_WAIT_DEFAULT); /* the other is for captures */
    if (event->capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    if (event->place)
        return interprocess_wait(event->place, context, stream);
    unsigned event_gpu = event->context->gpu;
    execution_lock(event_gpu);
    bool recorded = event->recorded;
    struct timeline_marks marks = event->marks;
    execution_unlock(event_gpu);
    if (!recorded)
        return CUDA_SUCCESS;
    if (event_gpu != context->gpu) {
        /* Marks are of one device: across devices the host waits in the stream's place. */
        execution_wait(event_gpu, &marks);
        return CUDA_SUCCESS;
    }
    execution_lock(context->gpu);
    stream_join(context, stream, &marks);
    execution_unlock(context->gpu);
    return CUDA_SUCCESS;
}

SIM_FORMS(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned int flags),
          stream_wait_event(stream, event, per_thread, flags))

CUresult cuCtxRecordEvent(CUcontext context, CUevent event)
{
    SIM_TRY(event_check(event));
    SIM_TRY(context_check(context));
    if (event->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    SIM_TRY(capture_refuse_context(context));
    if (event->capture)
        capture_event_forget(event);
    execution_lock(context->gpu);
    if (event->place) {
        stream_join(context, NULL, &context->all);
        execution_unlock(context->gpu);
        return interprocess_record(event->place, context, NULL);
    }
    pending_remove(event);
    event->marks = context->all;
    event->recorded = true;
    event->recorded_ns = monotonic_ns();
    event->done_ns = 0;
    if (execution_is_reached(context->gpu, &event->marks))
        event->done_ns = event->recorded_ns;
    else
        pending_add(event);
    execution_unlock(context->gpu);
    return CUDA_SUCCESS;
}
