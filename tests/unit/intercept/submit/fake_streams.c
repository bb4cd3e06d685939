#include "fake_streams.h"

#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "intercept/resolve/real.h"

/* --- The clock ------------------------------------------------------------------------------------- */

_Atomic uint64_t stands_ns;
_Thread_local bool is_watched;
atomic_uint watched_looks;

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    uint64_t now_ns = stands_ns;
    if (is_watched)
        watched_looks++;
    if (!now_ns)
        return __real_clock_gettime(clock, time);
    *time =
        (struct timespec){.tv_sec = (time_t)(now_ns / (1000 * MS)), .tv_nsec = (long)(now_ns % (1000 * MS))};
    return 0;
}

void (*while_napping)(void);

int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    if (!while_napping)
        return __real_nanosleep(time, left);
    stands_ns += (uint64_t)time->tv_sec * 1000 * MS + (uint64_t)time->tv_nsec;
    while_napping();
    return 0;
}

void stop_the_clock(void)
{
    stands_ns = monotonic_ns();
}

void let_the_clock_run(void)
{
    stands_ns = 0;
}

/* --- The driver ------------------------------------------------------------------------------------ */

atomic_uint calls, touched_while_capturing, pokes, context_questions;
_Atomic uint64_t put[STREAMS], done[STREAMS];
atomic_bool capturing[STREAMS], blocks_legacy, blocked;
uint64_t way_ns;
bool ends_meanwhile;
uint64_t reach_ns;
static _Thread_local CUcontext current;
struct fake_event events[8192];
static atomic_uint event_count = 1;
atomic_uint timed_records, untimed_records, untimed_events, stream_questions, legacy_questions;
atomic_uint legacy_records, foreign_records, refusals, ended_overlaps;
_Thread_local bool jumps_out;
sigjmp_buf way_out;
struct gate *gate;

unsigned number(CUstream stream)
{
    uintptr_t value = (uintptr_t)stream;
    return (unsigned)(value >= 0x1000 ? (value - 0x1000) % STREAMS : 32 + value);
}

CUresult submit_any(void)
{
    calls++;
    while (atomic_load(&blocked))
        sched_yield();
    return CUDA_SUCCESS;
}

static CUresult launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz, unsigned shared, CUstream stream, void **parameters, void **extra)
{
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared;
    (void)parameters, (void)extra;
    if (jumps_out) {
        jumps_out = false;
        siglongjmp(way_out, 1);
    }
    unsigned at = number(stream ? stream : CU_STREAM_LEGACY);
    if (way_ns)
        stands_ns += way_ns;
    if (ends_meanwhile)
        done[at] = put[at];
    put[at]++;
    return submit_any();
}

/* Where the last event of each stream stands. */
static _Atomic uint64_t recorded_at[STREAMS];

static CUresult launch_ex(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    (void)function, (void)parameters, (void)extra;
    if (!config)
        return submit_any();
    unsigned at = number(config->hStream);
    ended_overlaps += config->numAttrs && recorded_at[at] == put[at] && done[at] < put[at];
    put[at]++;
    return submit_any();
}

/* Its first kernels are done while the call lasts. */
static CUresult launch_graph(CUgraphExec graph, CUstream stream)
{
    (void)graph;
    put[number(stream ? stream : CU_STREAM_LEGACY)]++;
    if (way_ns)
        stands_ns += way_ns;
    return submit_any();
}

static CUresult get_current(CUcontext *context)
{
    context_questions++;
    *context = current;
    return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

static _Thread_local CUcontext pushed[8];
static _Thread_local unsigned depth;
static CUresult push(CUcontext context)
{
    pushed[depth++] = current;
    current = context;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *context)
{
    *context = current;
    current = pushed[--depth];
    return CUDA_SUCCESS;
}

static CUresult stream_context(CUstream stream, CUcontext *context)
{
    (void)stream;
    context_questions++;
    *context = STREAMS_CONTEXT;
    return CUDA_SUCCESS;
}

/* Each thread has a default stream of its own in each context, under one handle. */
static atomic_bool *capture_flag(CUstream stream)
{
    static _Thread_local atomic_bool own[8];
    return stream == CU_STREAM_PER_THREAD ? &own[(uintptr_t)current / (uintptr_t)CONTEXT(1)]
                                          : &capturing[number(stream)];
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    if (stream == CU_STREAM_LEGACY && blocks_legacy)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status = *capture_flag(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode)
{
    (void)mode;
    *capture_flag(stream) = true;
    return CUDA_SUCCESS;
}

static CUresult end_capture(CUstream stream, CUgraph *graph)
{
    (void)graph;
    return atomic_exchange(capture_flag(stream), false) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

static CUresult destroy_stream(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}

/* The legacy stream waits for threads' own. */
static CUresult query_stream(CUstream stream)
{
    touched_while_capturing += capturing[number(stream)] || (stream == CU_STREAM_LEGACY && blocks_legacy);
    stream_questions++;
    legacy_questions += stream == CU_STREAM_LEGACY;
    bool is_done = done[number(stream)] >= put[number(stream)];
    if (stream == CU_STREAM_LEGACY)
        is_done &= done[number(CU_STREAM_PER_THREAD)] >= put[number(CU_STREAM_PER_THREAD)];
    return is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult create_event(CUevent *event, unsigned flags)
{
    unsigned made = atomic_fetch_add(&event_count, 1);
    events[made].has_timing = !(flags & CU_EVENT_DISABLE_TIMING);
    events[made].context = current;
    untimed_events += !events[made].has_timing;
    *event = (CUevent)(uintptr_t)made;
    return CUDA_SUCCESS;
}

static CUresult destroy_event(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

static CUresult record_event(CUevent event, CUstream stream)
{
    bool is_default = stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    if (events[(uintptr_t)event].context != (is_default ? current : STREAMS_CONTEXT)) {
        foreign_records++;
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (refusals) {
        refusals--;
        return CUDA_ERROR_UNKNOWN;
    }
    touched_while_capturing += capturing[number(stream)] || (stream == CU_STREAM_LEGACY && blocks_legacy);
    legacy_records += stream == CU_STREAM_LEGACY;
    events[(uintptr_t)event].stream = stream;
    events[(uintptr_t)event].at = recorded_at[number(stream)] = put[number(stream)];
    events[(uintptr_t)event].recorded_ns = monotonic_ns();
    events[(uintptr_t)event].was_idle = done[number(stream)] >= put[number(stream)];
    if (events[(uintptr_t)event].has_timing)
        timed_records++;
    else
        untimed_records++;
    return CUDA_SUCCESS;
}

static CUresult query_event(CUevent event)
{
    const struct fake_event *fake = &events[(uintptr_t)event];
    bool is_reached = done[number(fake->stream)] >= fake->at;
    if (reach_ns)
        is_reached &= stands_ns >= fake->recorded_ns + reach_ns;
    return is_reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

void install(int id, void *function)
{
    atomic_store(&real_functions[id], function);
}

/* --- The gate -------------------------------------------------------------------------------------- */

static void no_agent(void)
{
    pokes++;
}

int make_gate(void **state)
{
    (void)state;
#define SUBMITS(symbol, ...) install(CUDA_ID_##symbol, (void *)submit_any);
#include "intercept/submit/submit.def"
    install(CUDA_ID_cuGraphLaunch, (void *)launch_graph);
    install(CUDA_ID_cuGraphLaunch_ptsz, (void *)submit_any);
    install(CUDA_ID_cuGraphUpload, (void *)submit_any);
    install(CUDA_ID_cuGraphUpload_ptsz, (void *)submit_any);
    install(CUDA_ID_cuMemMapArrayAsync, (void *)submit_any);
    install(CUDA_ID_cuMemMapArrayAsync_ptsz, (void *)submit_any);
    install(CUDA_ID_cuMemPrefetchAsync, (void *)submit_any);
    install(CUDA_ID_cuMemPrefetchAsync_ptsz, (void *)submit_any);
    install(CUDA_ID_cuMemPrefetchAsync_v2, (void *)submit_any);
    install(CUDA_ID_cuMemPrefetchAsync_v2_ptsz, (void *)submit_any);
    install(CUDA_ID_cuMemPrefetchBatchAsync, (void *)submit_any);
    install(CUDA_ID_cuMemPrefetchBatchAsync_ptsz, (void *)submit_any);
    install(CUDA_ID_cuMemDiscardAndPrefetchBatchAsync, (void *)submit_any);
    install(CUDA_ID_cuMemDiscardAndPrefetchBatchAsync_ptsz, (void *)submit_any);
    install(CUDA_ID_cuLaunchKernel, (void *)launch);
    install(CUDA_ID_cuLaunchKernelEx, (void *)launch_ex);
    install(CUDA_ID_cuCtxGetCurrent, (void *)get_current);
    install(CUDA_ID_cuCtxSetCurrent, (void *)set_current);
    install(CUDA_ID_cuCtxPushCurrent_v2, (void *)push);
    install(CUDA_ID_cuCtxPopCurrent_v2, (void *)pop);
    install(CUDA_ID_cuStreamGetCtx, (void *)stream_context);
    install(CUDA_ID_cuStreamIsCapturing, (void *)is_capturing);
    install(CUDA_ID_cuStreamBeginCapture_v2, (void *)begin_capture);
    install(CUDA_ID_cuStreamBeginCaptureToCig, (void *)begin_capture);
    install(CUDA_ID_cuStreamBeginRecaptureToGraph, (void *)begin_capture);
    install(CUDA_ID_cuStreamEndCaptureToCig, (void *)end_capture);
    install(CUDA_ID_cuStreamEndCapture, (void *)end_capture);
    install(CUDA_ID_cuStreamDestroy_v2, (void *)destroy_stream);
    install(CUDA_ID_cuStreamQuery, (void *)query_stream);
    install(CUDA_ID_cuEventCreate, (void *)create_event);
    install(CUDA_ID_cuEventDestroy_v2, (void *)destroy_event);
    install(CUDA_ID_cuEventRecord, (void *)record_event);
    install(CUDA_ID_cuEventQuery, (void *)query_event);
    real_found = true;
    gate = gate_in(private_get());
    return gate_make(gate, no_agent) ? 0 : -1;
}

int open_gate(void **state)
{
    (void)state;
    for (unsigned i = 0; i < STREAMS; i++)
        done[i] = UINT64_MAX;
    cuCtxSetCurrent(CONTEXT(1));
    gate_open(gate, GATE_FREE);
    gate->has_host_functions = false;
    foreign_records = 0;
    return in_flight_is_finished(gate) ? 0 : -1;
}

void work_stays(void)
{
    for (unsigned i = 0; i < STREAMS; i++)
        done[i] = put[i];
}

CUresult launch_on(CUstream stream)
{
    return cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

CUresult launch_overlapping(CUstream stream)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    return cuLaunchKernelEx(
        &(CUlaunchConfig){1, 1, 1, 1, 1, 1, .hStream = stream, .attrs = &attribute, .numAttrs = 1}, NULL,
        NULL, NULL);
}

static uint64_t real_ns(void)
{
    struct timespec now;
    __real_clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}

bool comes_true(bool (*condition)(void))
{
    uint64_t deadline_ns = real_ns() + PATIENCE_NS;
    while (!condition()) {
        if (real_ns() > deadline_ns)
            return false;
        sched_yield();
    }
    return true;
}

bool nobody_is_inside(void)
{
    return gate_is_left(gate);
}

void close_gate(void)
{
    gate_close(gate);
    assert_true(comes_true(nobody_is_inside));
    gate_drained(gate);
}
