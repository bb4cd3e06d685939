/* The gate and the pace, on a driver of a few functions: streams that the test finishes, and calls that are
 * counted. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/driver_more.h"
#include "intercept/agent/agent.h"
#include "intercept/agent/agent_state.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

#define STREAMS 64u
#define PATIENCE_NS UINT64_C(20000000000)
#define MS UINT64_C(1000000)

/* --- The clock ------------------------------------------------------------------------------------- */

/* What it says while it stands, so that a thread that is not run for a moment takes no time; 0: it runs. */
static uint64_t stands_ns;

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    if (!stands_ns)
        return __real_clock_gettime(clock, time);
    *time = (struct timespec){.tv_sec = (time_t)(stands_ns / (1000 * MS)),
                              .tv_nsec = (long)(stands_ns % (1000 * MS))};
    return 0;
}

static void stop_the_clock(void)
{
    stands_ns = monotonic_ns();
}

static void let_the_clock_run(void)
{
    stands_ns = 0;
}

/* --- The driver ------------------------------------------------------------------------------------ */

static atomic_uint calls;              /* that submit */
static _Atomic uint64_t put[STREAMS];  /* calls on a stream */
static _Atomic uint64_t done[STREAMS]; /* of these, finished */
static atomic_bool capturing[STREAMS];
static atomic_bool blocks_legacy;           /* one of those is a blocking stream */
static atomic_uint touched_while_capturing; /* events recorded on, or questions about, a captured stream */
static atomic_bool blocked;                 /* calls that submit do not return */
static uint64_t way_ns; /* how long launches are under way to the GPU, by the clock that stands */
static _Thread_local CUcontext current;
static struct {
    CUstream stream;
    bool has_timing;
    _Atomic uint64_t at;
    _Atomic uint64_t recorded_ns;
    atomic_bool was_idle; /* the stream had nothing to do then */
} events[8192];
static atomic_uint event_count = 1;
/* Of both kinds; and questions about streams, and of these about the legacy one. */
static atomic_uint timed_records, untimed_records, untimed_events, stream_questions, legacy_questions;

#define STREAM(n) ((CUstream)(uintptr_t)(0x1000 + (n)))
#define CONTEXT(n) ((CUcontext)(uintptr_t)(0x100000 * (n)))

static unsigned number(CUstream stream)
{
    uintptr_t value = (uintptr_t)stream;
    return (unsigned)(value >= 0x1000 ? value - 0x1000 : 32 + value);
}

static CUresult submit_any(void)
{
    calls++;
    while (atomic_load(&blocked))
        sched_yield();
    return CUDA_SUCCESS;
}

/* The next launch of this thread is jumped out of, as by a handler of a signal. */
static _Thread_local bool jumps_out;
static sigjmp_buf way_out;

static CUresult launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz, unsigned shared, CUstream stream, void **parameters, void **extra)
{
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared;
    (void)parameters, (void)extra;
    if (jumps_out) {
        jumps_out = false;
        siglongjmp(way_out, 1);
    }
    if (way_ns)
        stands_ns += way_ns;
    put[number(stream ? stream : CU_STREAM_LEGACY)]++;
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

/* Questions that a launch can do without. */
static atomic_uint context_questions;

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
    *context = CONTEXT(1);
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
    touched_while_capturing += capturing[number(stream)] || (stream == CU_STREAM_LEGACY && blocks_legacy);
    events[(uintptr_t)event].stream = stream;
    events[(uintptr_t)event].at = put[number(stream)];
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
    return done[number(events[(uintptr_t)event].stream)] >= events[(uintptr_t)event].at
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_READY;
}

static void install(int id, void *function)
{
    atomic_store(&real_functions[id], function);
}

static struct gate *gate;

static atomic_uint pokes;

static void no_agent(void)
{
    pokes++;
}

static int make_gate(void **state)
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
    install(CUDA_ID_cuLaunchKernel, (void *)launch);
    install(CUDA_ID_cuCtxGetCurrent, (void *)get_current);
    install(CUDA_ID_cuCtxSetCurrent, (void *)set_current);
    install(CUDA_ID_cuCtxPushCurrent_v2, (void *)push);
    install(CUDA_ID_cuCtxPopCurrent_v2, (void *)pop);
    install(CUDA_ID_cuStreamGetCtx, (void *)stream_context);
    install(CUDA_ID_cuStreamIsCapturing, (void *)is_capturing);
    install(CUDA_ID_cuStreamBeginCapture_v2, (void *)begin_capture);
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

/* Each test begins with an open gate, nothing before the GPU, and a current context. */
static int open_gate(void **state)
{
    (void)state;
    for (unsigned i = 0; i < STREAMS; i++)
        done[i] = UINT64_MAX;
    cuCtxSetCurrent(CONTEXT(1));
    gate_open(gate, GATE_FREE);
    return in_flight_is_finished(gate) ? 0 : -1;
}

static void work_stays(void)
{
    for (unsigned i = 0; i < STREAMS; i++)
        done[i] = put[i];
}

static CUresult launch_on(CUstream stream)
{
    return cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

/* Whether it was seen true; a thread that turns back at the gate is inside for a moment. */
static bool comes_true(bool (*condition)(void))
{
    uint64_t deadline_ns = monotonic_ns() + PATIENCE_NS;
    while (!condition()) {
        if (monotonic_ns() > deadline_ns)
            return false;
        sched_yield();
    }
    return true;
}

static bool one_waits(void)
{
    return atomic_load(&gate->waiters) == 1;
}

static bool nobody_is_inside(void)
{
    return gate_is_left(gate);
}

static void close_gate(void)
{
    gate_close(gate);
    assert_true(comes_true(nobody_is_inside));
    gate_drained(gate);
}

/* --- The gate -------------------------------------------------------------------------------------- */

#define ZEROS_1(A)                                                                                           \
    (A)                                                                                                      \
    {                                                                                                        \
        0                                                                                                    \
    }
#define ZEROS_2(A, ...) (A){0}, ZEROS_1(__VA_ARGS__)
#define ZEROS_3(A, ...) (A){0}, ZEROS_2(__VA_ARGS__)
#define ZEROS_4(A, ...) (A){0}, ZEROS_3(__VA_ARGS__)
#define ZEROS_5(A, ...) (A){0}, ZEROS_4(__VA_ARGS__)
#define ZEROS_6(A, ...) (A){0}, ZEROS_5(__VA_ARGS__)
#define ZEROS_7(A, ...) (A){0}, ZEROS_6(__VA_ARGS__)
#define ZEROS_8(A, ...) (A){0}, ZEROS_7(__VA_ARGS__)
#define ZEROS_9(A, ...) (A){0}, ZEROS_8(__VA_ARGS__)
#define ZEROS_10(A, ...) (A){0}, ZEROS_9(__VA_ARGS__)
#define ZEROS_11(A, ...) (A){0}, ZEROS_10(__VA_ARGS__)
#define COUNT(...) COUNT_OF(__VA_ARGS__, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define COUNT_OF(A, B, C, D, E, F, G, H, I, J, K, n, ...) n
#define JOIN(a, b) JOINED(a, b)
#define JOINED(a, b) a##b

#define SUBMITS(symbol, form, stream, ...)                                                                   \
    static void call_##symbol(void)                                                                          \
    {                                                                                                        \
        symbol(JOIN(ZEROS_, COUNT(__VA_ARGS__))(__VA_ARGS__));                                               \
    }
#define ALL_SUBMITTING                                                                                       \
    SUBMITS(cuGraphLaunch, LEGACY, AT(2), CUgraphExec, CUstream)                                             \
    SUBMITS(cuGraphLaunch_ptsz, PER_THREAD, AT(2), CUgraphExec, CUstream)                                    \
    SUBMITS(cuGraphUpload, LEGACY, AT(2), CUgraphExec, CUstream)                                             \
    SUBMITS(cuGraphUpload_ptsz, PER_THREAD, AT(2), CUgraphExec, CUstream)                                    \
    SUBMITS(cuMemMapArrayAsync, LEGACY, AT(3), CUarrayMapInfo *, unsigned int, CUstream)                     \
    SUBMITS(cuMemMapArrayAsync_ptsz, PER_THREAD, AT(3), CUarrayMapInfo *, unsigned int, CUstream)
ALL_SUBMITTING
#include "intercept/submit/submit.def"

static const struct {
    int id;
    void (*call)(void);
} submitting[] = {
#define SUBMITS(symbol, ...) {CUDA_ID_##symbol, call_##symbol},
    ALL_SUBMITTING
#include "intercept/submit/submit.def"
};
#define SUBMITTING_COUNT (sizeof(submitting) / sizeof(*submitting))

static void *in_a_thread(void *call)
{
    cuCtxSetCurrent(CONTEXT(1));
    (*(void (**)(void))call)();
    return NULL;
}

static void every_submitting_call_waits_at_a_closed_gate(void **state)
{
    unsigned rows = 0;
    (void)state;
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++)
        rows += cuda_entries[id].class == CUDA_SUBMITS;
    assert_int_equal(SUBMITTING_COUNT, rows);
    for (unsigned i = 0; i < SUBMITTING_COUNT; i++) {
        pthread_t thread;
        void (*call)(void) = submitting[i].call;
        close_gate();
        unsigned before = calls;
        assert_int_equal(pthread_create(&thread, NULL, in_a_thread, &call), 0);
        if (!comes_true(one_waits))
            fail_msg("%s does not wait", cuda_entries[submitting[i].id].symbol);
        assert_int_equal(calls, before);
        gate_open(gate, i % 2 ? GATE_FREE : GATE_PACED);
        pthread_join(thread, NULL);
        assert_int_equal(calls, before + 1);
    }
}

static atomic_bool jumped_out, closed;

static void call_launch(void)
{
    launch_on(STREAM(1));
}

static void a_call_under_way_is_waited_for(void **state)
{
    pthread_t thread;
    void (*call)(void) = call_launch;
    (void)state;
    blocked = true;
    unsigned before = calls;
    pthread_create(&thread, NULL, in_a_thread, &call);
    while (calls == before)
        sched_yield();
    gate_close(gate);
    assert_false(gate_is_left(gate));
    blocked = false;
    assert_true(comes_true(nobody_is_inside));
    gate_open(gate, GATE_FREE);
    pthread_join(thread, NULL);
}

#define FUNCTION ((CUfunction)(uintptr_t)0x5000)

static void call_function(void)
{
    cuLaunchKernel(FUNCTION, 1, 1, 1, 1, 1, 1, 0, STREAM(1), NULL, NULL);
}

static void call_copy(void)
{
    cuMemcpy(1, 2, 3);
}

/* A thread is in the middle of it; the gate closes. */
static void begin_call(pthread_t *thread, void (**call)(void))
{
    blocked = true;
    unsigned before = calls;
    assert_int_equal(pthread_create(thread, NULL, in_a_thread, call), 0);
    while (calls == before)
        sched_yield();
}

static void end_call(pthread_t thread)
{
    blocked = false;
    pthread_join(thread, NULL);
}

/* The first launch of a function may load its code for long: it is inside, and does not keep the next one waiting. */
static void a_first_launch_keeps_nobody_waiting_while_it_loads(void **state)
{
    pthread_t thread, other;
    void (*call)(void) = call_function, (*copy)(void) = call_copy;
    (void)state;
    gate_open(gate, GATE_PACED);
    begin_call(&thread, &call);
    gate_close(gate);
    assert_true(gate_is_loading(gate));
    assert_false(gate_is_left(gate));
    assert_true(gate_is_left_but_for_loads(gate));
    end_call(thread);
    assert_true(gate_is_left(gate));
    /* The second: whatever takes long now is no load. */
    gate_open(gate, GATE_PACED);
    begin_call(&thread, &call);
    gate_close(gate);
    assert_false(gate_is_loading(gate));
    assert_false(gate_is_left_but_for_loads(gate));
    end_call(thread);
    /* Nor is a copy, which may be at it. */
    gate_forget_functions(gate);
    gate_open(gate, GATE_PACED);
    begin_call(&thread, &call);
    begin_call(&other, &copy);
    gate_close(gate);
    assert_true(gate_is_loading(gate));
    assert_false(gate_is_left_but_for_loads(gate));
    blocked = false;
    pthread_join(other, NULL);
    end_call(thread);
    gate_open(gate, GATE_FREE);
}

static atomic_bool loads;
static CUresult load(CUmodule *module, const void *image)
{
    (void)module, (void)image;
    atomic_store(&loads, true);
    return submit_any();
}

static void call_load(void)
{
    CUmodule module;
    cuModuleLoadData(&module, "");
}

/* Who asks the driver meanwhile may wait for its lock. */
static void nobody_asks_the_driver_while_a_module_is_loaded(void **state)
{
    pthread_t thread;
    void (*call)(void) = call_load;
    (void)state;
    install(CUDA_ID_cuModuleLoadData, (void *)load);
    work_stays();
    gate_open(gate, GATE_PACED);
    launch_on(STREAM(8));
    begin_call(&thread, &call);
    done[8] = put[8];
    assert_false(in_flight_is_finished(gate)); /* it is, but nobody knows */
    gate_close(gate);
    assert_true(gate_is_left(gate));
    end_call(thread);
    assert_true(in_flight_is_finished(gate));
    gate_open(gate, GATE_FREE);
}

/* --- What the daemon is told ----------------------------------------------------------------------- */

static struct wire_message next_message(int socket)
{
    struct wire_message message = {.header.type = 0};
    int fds[WIRE_FDS_MAX];
    unsigned count;
    struct pollfd ready = {.fd = socket, .events = POLLIN};
    if (poll(&ready, 1, (int)(PATIENCE_NS / MS)) == 1)
        wire_receive(socket, &message, fds, &count);
    return message;
}

static void *give_back(void *outcome)
{
    agent_give_back(gate, 9, PATIENCE_NS, *(enum wire_outcome *)outcome);
    return NULL;
}

static void the_daemon_is_told_of_a_closed_gate_before_code_is_loaded(void **state)
{
    (void)state;
    for (enum wire_outcome outcome = WIRE_OUTCOME_DRAINED; outcome <= WIRE_OUTCOME_IDLE; outcome++) {
        int pair[2];
        pthread_t thread, drainer;
        void (*call)(void) = call_function;
        struct wire_grant grant = {.lease = 9, .flags = WIRE_LEASE_WANTED};
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        attach_keep(&agent.connection, pair[0]);
        agent.version = WIRE_VERSION;
        agent.held = false;
        agent_grant(gate, &grant);
        gate_forget_functions(gate);
        begin_call(&thread, &call);
        assert_int_equal(pthread_create(&drainer, NULL, give_back, &outcome), 0);
        struct wire_message message = next_message(pair[1]);
        assert_int_equal(message.header.type, WIRE_CLOSED);
        assert_int_equal(message.closed.lease, 9);
        assert_int_equal(message.closed.left_ns, 0);
        end_call(thread);
        message = next_message(pair[1]);
        assert_int_equal(message.header.type, WIRE_RETURNED);
        assert_int_equal(message.returned.outcome, outcome);
        pthread_join(drainer, NULL);
        attach_let_go(&agent.connection);
        close(pair[1]);
        gate_open(gate, GATE_FREE);
    }
}

static void call_launch_after_jumping_out_of_one(void)
{
    jumps_out = true;
    if (!sigsetjmp(way_out, 1))
        launch_on(STREAM(1));
    atomic_store(&jumped_out, true);
    while (!atomic_load(&closed))
        sched_yield();
    launch_on(STREAM(1));
}

static void a_thread_that_jumped_out_of_a_call_waits_like_others(void **state)
{
    pthread_t thread;
    void (*call)(void) = call_launch_after_jumping_out_of_one;
    (void)state;
    pthread_create(&thread, NULL, in_a_thread, &call);
    while (!atomic_load(&jumped_out))
        sched_yield();
    unsigned before = calls;
    gate_close(gate);
    atomic_store(&closed, true);
    assert_true(comes_true(one_waits));
    assert_true(comes_true(nobody_is_inside));
    assert_int_equal(calls, before);
    gate_open(gate, GATE_FREE);
    pthread_join(thread, NULL);
    assert_int_equal(calls, before + 1);
}

/* As the daemon's change of flags crosses with the agent's giving back. */
static void a_grant_of_what_was_given_back_opens_nothing(void **state)
{
    struct wire_grant grant = {.lease = 7};
    (void)state;
    agent_grant(gate, &grant);
    assert_int_equal(atomic_load(&gate->word), GATE_PACED);
    close_gate();
    agent.held = false; /* RETURNED */
    grant.flags = WIRE_LEASE_WANTED;
    agent_grant(gate, &grant);
    assert_int_equal(atomic_load(&gate->word), GATE_CLOSED);
    assert_false(agent.held);
    grant.lease = 8;
    agent_grant(gate, &grant);
    assert_int_equal(atomic_load(&gate->word), GATE_PACED);
    agent.held = false;
    grant = (struct wire_grant){.flags = WIRE_LEASE_FREE};
    agent_grant(gate, &grant);
    assert_int_equal(atomic_load(&gate->word), GATE_FREE);
    agent.held = false;
}

/* Each thread counts what it submits under an open gate; closed and left, the count stands still. */
static atomic_bool stop;
static void *submit_until_stopped(void *unused)
{
    (void)unused;
    cuCtxSetCurrent(CONTEXT(1));
    while (!atomic_load(&stop))
        launch_on(STREAM(2));
    return NULL;
}

static void a_closed_and_left_gate_lets_nothing_through(void **state)
{
    pthread_t threads[4];
    unsigned passed = 0;
    (void)state;
    stop = false;
    for (unsigned i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, submit_until_stopped, NULL);
    uint64_t enough_ns = monotonic_ns() + UINT64_C(3000000000); /* on busy CPUs each round takes long */
    for (unsigned round = 0; round < 300 && (round < 20 || monotonic_ns() < enough_ns); round++) {
        close_gate();
        unsigned before = calls;
        for (unsigned i = 0; i < 20; i++)
            sched_yield();
        assert_int_equal(calls, before);
        gate_open(gate, round % 2 ? GATE_FREE : GATE_PACED);
        sched_yield();
        passed += calls > before;
    }
    assert_true(passed > 0);
    stop = true;
    gate_open(gate, GATE_FREE);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

/* --- What is before the GPU ------------------------------------------------------------------------ */

static void unmarked_work_is_found_by_asking_its_stream(void **state)
{
    (void)state;
    work_stays();
    launch_on(STREAM(3));
    assert_false(in_flight_is_finished(gate));
    done[3] = put[3];
    assert_true(in_flight_is_finished(gate));
}

/* Each leaves a place and an event until its work is done, also while nobody looks. */
static void streams_that_come_and_go_take_no_more_places_than_there_are_at_once(void **state)
{
    (void)state;
    launch_on(STREAM(3));
    uint32_t entries = gate->entry_count;
    for (unsigned i = 0; i < 2 * IN_FLIGHT_ENTRIES; i++) {
        launch_on(STREAM(15 + i % 2));
        cuStreamDestroy_v2(STREAM(15 + i % 2));
    }
    assert_true(gate->entry_count <= entries + 2);
}

static void a_default_stream_belongs_to_the_current_context(void **state)
{
    CUcontext found[2] = {NULL};
    unsigned count = 0;
    (void)state;
    cuCtxSetCurrent(CONTEXT(2));
    launch_on(NULL);
    cuCtxSetCurrent(CONTEXT(3));
    launch_on(NULL);
    for (unsigned i = 0; i < gate->entry_count; i++) {
        CUcontext context = gate->entries[i].context;
        if (gate->entries[i].stream == CU_STREAM_LEGACY && (context == CONTEXT(2) || context == CONTEXT(3)))
            found[count++] = context;
    }
    assert_int_equal(count, 2);
    assert_ptr_not_equal(found[0], found[1]);
}

static void a_destroyed_streams_work_is_waited_for(void **state)
{
    (void)state;
    work_stays();
    launch_on(STREAM(4));
    cuStreamDestroy_v2(STREAM(4));
    assert_false(in_flight_is_finished(gate));
    done[4] = put[4];
    assert_true(in_flight_is_finished(gate));
}

static void a_destroyed_contexts_work_is_not_asked_about(void **state)
{
    (void)state;
    work_stays();
    launch_on(STREAM(5));
    assert_false(in_flight_is_finished(gate));
    agent_leave_context(CONTEXT(1));
    assert_true(in_flight_is_finished(gate));
}

static atomic_uint submitted;
static void *submit_ten(void *unused)
{
    (void)unused;
    cuCtxSetCurrent(CONTEXT(1));
    for (submitted = 0; submitted < 10; submitted++)
        launch_on(STREAM(6));
    return NULL;
}

static bool two_are_submitted(void)
{
    return submitted >= 2;
}

static bool three_are_submitted(void)
{
    return submitted >= 3;
}

static void pause_for(uint64_t ms)
{
    struct timespec time = {.tv_nsec = (long)(ms * MS)};
    nanosleep(&time, NULL);
}

static void a_paced_stream_has_two_pieces_before_it(void **state)
{
    pthread_t thread;
    (void)state;
    work_stays();
    gate_open(gate, GATE_PACED);
    pthread_create(&thread, NULL, submit_ten, NULL);
    assert_true(comes_true(two_are_submitted));
    /* In which a thread that is not held would have submitted all. What is late by so much that the thread
     * may have gone on tells nothing. */
    uint64_t from_ns = monotonic_ns();
    pause_for(40);
    bool in_time = monotonic_ns() - from_ns < 90 * MS;
    assert_true(submitted == 2 || !in_time);
    done[6]++;
    uint64_t ended_ns = monotonic_ns();
    pause_for(10);
    /* A piece takes 40 ms: the next is not before it is time. */
    in_time = in_time && monotonic_ns() - ended_ns < 35 * MS;
    assert_true(submitted == 2 || !in_time);
    /* As the second is expected to end, so that the GPU goes on at once. It does not: then nor will the
     * third. */
    assert_true(comes_true(three_are_submitted));
    pause_for(10);
    in_time = in_time && monotonic_ns() - ended_ns < 90 * MS;
    assert_true(submitted == 3 || !in_time);
    done[6] = UINT64_MAX;
    pthread_join(thread, NULL);
}

static atomic_bool ends_pieces;

/* Whenever a thread waits for room a piece ends, but never the last. */
static void *end_pieces(void *unused)
{
    while (ends_pieces) {
        if (gate->held && done[30] + 1 < put[30])
            done[30]++;
        pause_for(1);
    }
    return unused;
}

/* What the stream may have before it once the thread was held, did something else, and found the stream without work. */
static uint64_t ahead_after_a_gap(bool is_closed_meanwhile)
{
    pthread_t thread;
    atomic_store(&gate->ahead_ns, 0);
    work_stays();
    gate_open(gate, GATE_PACED);
    ends_pieces = true;
    pthread_create(&thread, NULL, end_pieces, NULL);
    do
        launch_on(STREAM(30));
    while (gate_self.entry->held_at != gate->closings + 1);
    ends_pieces = false;
    pthread_join(thread, NULL);
    done[30] = UINT64_MAX;
    if (is_closed_meanwhile) {
        close_gate();
        gate_open(gate, GATE_PACED);
    }
    do
        launch_on(STREAM(30));
    while (gate_self.entry->held_at);
    assert_true(in_flight_is_finished(gate));
    return atomic_load(&gate->ahead_ns);
}

static void who_is_held_and_late_for_it_may_run_ahead_further(void **state)
{
    (void)state;
    assert_int_equal(ahead_after_a_gap(false), AHEAD_LEAST_NS * 3 / 2);
    assert_int_equal(ahead_after_a_gap(true), AHEAD_LEAST_NS);
    atomic_store(&gate->ahead_least_ns, MS);
    assert_int_equal(ahead_after_a_gap(false), MS);
    atomic_store(&gate->ahead_least_ns, 0);
    atomic_store(&gate->ahead_ns, 0);
}

/* What the work waits for may come from the thread that is held. */
static void a_stream_that_does_not_move_is_not_waited_for_for_ever(void **state)
{
    (void)state;
    work_stays();
    gate_open(gate, GATE_PACED);
    uint64_t from_ns = monotonic_ns();
    for (unsigned i = 0; i < 200; i++)
        launch_on(STREAM(7));
    assert_true(monotonic_ns() - from_ns < UINT64_C(10000000000));
    assert_false(in_flight_is_finished(gate));
    done[7] = UINT64_MAX;
    assert_true(in_flight_is_finished(gate));
}

/* --- What is measured ------------------------------------------------------------------------------ */

static float piece_ms = 0.25f;
static bool begins_at_once;
static unsigned calls_in_burst; /* the first of so many takes next to nothing; 0: all are alike */
static float last_ms;           /* the last of so many takes this; 0: it is like the others */

static float takes_ms(uint64_t call)
{
    if (calls_in_burst && call % calls_in_burst == 0)
        return 0.001f;
    return calls_in_burst && last_ms > 0 && call % calls_in_burst == calls_in_burst - 1 ? last_ms : piece_ms;
}

/* By the calls between two events. An idle GPU waits for the first of them, unless that begins at once. */
static CUresult elapsed(float *ms, CUevent from, CUevent to)
{
    uint64_t from_ns = events[(uintptr_t)from].recorded_ns, to_ns = events[(uintptr_t)to].recorded_ns;
    *ms = 0;
    for (uint64_t call = events[(uintptr_t)from].at; call < events[(uintptr_t)to].at; call++)
        *ms += takes_ms(call);
    if (events[(uintptr_t)from].was_idle && !begins_at_once)
        *ms += (float)(to_ns - from_ns) / (float)MS;
    return CUDA_SUCCESS;
}

static CUresult wait_for_stream(CUstream stream)
{
    done[number(stream)] = put[number(stream)];
    return CUDA_SUCCESS;
}

static CUresult copy_back(void *to, CUdeviceptr from, size_t bytes)
{
    (void)to, (void)from, (void)bytes;
    put[number(CU_STREAM_LEGACY)]++;
    wait_for_stream(CU_STREAM_LEGACY);
    stands_ns += 2 * MS; /* the thread wakes up late */
    return submit_any();
}

static CUresult launch_host_function(CUstream stream, CUhostFn function, void *argument)
{
    (void)function, (void)argument;
    put[number(stream)]++;
    return CUDA_SUCCESS;
}

static int begin_measuring(void **state)
{
    install(CUDA_ID_cuEventElapsedTime, (void *)elapsed);
    install(CUDA_ID_cuStreamSynchronize, (void *)wait_for_stream);
    install(CUDA_ID_cuMemcpyDtoH_v2, (void *)copy_back);
    install(CUDA_ID_cuLaunchHostFunc, (void *)launch_host_function);
    if (open_gate(state) < 0)
        return -1;
    in_flight_take_done(gate);
    gate_open(gate, GATE_PACED);
    stop_the_clock();
    return 0;
}

static int end_measuring(void **state)
{
    (void)state;
    install(CUDA_ID_cuEventElapsedTime, NULL);
    let_the_clock_run();
    return 0;
}

static void calls_on_an_idle_stream_are_measured_one_by_one(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 400; i++)
        launch_on(STREAM(9));
    assert_true(in_flight_is_finished(gate));
    struct in_flight_done told = in_flight_take_done(gate);
    assert_int_equal(told.calls, 400);
    assert_int_equal(told.streams, 1);
    assert_in_range(told.ns, 400 * MS / 4 - MS, 400 * MS / 4 + MS);
    told = in_flight_take_done(gate);
    assert_int_equal(told.calls, 0);
    assert_int_equal(told.ns, 0);
}

/* Short ones, of which many would make half a millisecond of work. */
static void of_calls_that_come_seldom_each_report_tells_what_some_take(void **state)
{
    (void)state;
    piece_ms = 0.05f;
    for (unsigned report = 0; report < 50; report++) {
        for (unsigned i = 0; i < 5; i++) {
            stands_ns += 4 * MS;
            launch_on(STREAM(28));
        }
        assert_true(in_flight_is_finished(gate));
        struct in_flight_done told = in_flight_take_done(gate);
        assert_int_equal(told.calls, 5);
        assert_true(told.measured > 0);
    }
    piece_ms = 0.25f;
}

/* Of calls that come one after another some are measured, and all if the lease is to find out what they take. */
static void calls_are_measured_more_often_where_it_is_found_out_what_they_take(void **state)
{
    (void)state;
    unsigned told[2];
    piece_ms = 0.1f;
    for (unsigned measures = 0; measures < 2; measures++) {
        gate->measures = measures;
        for (unsigned i = 0; i < 200; i++) {
            stands_ns += MS / 10;
            launch_on(STREAM(27));
        }
        assert_true(in_flight_is_finished(gate));
        struct in_flight_done done_now = in_flight_take_done(gate);
        assert_int_equal(done_now.calls, 200);
        told[measures] = (unsigned)(done_now.calls - done_now.unmeasured);
    }
    gate->measures = false;
    piece_ms = 0.25f;
    assert_in_range(told[0], 1, 150);
    assert_int_equal(told[1], 200);
}

/* A guest's calls wait for those of others, and in its turn they do not. */
static void calls_that_are_not_measured_are_not_taken_to_be_like_those_of_another_lease(void **state)
{
    (void)state;
    piece_ms = 1;
    for (unsigned i = 0; i < 100; i++) {
        stands_ns += 2 * MS;
        launch_on(STREAM(25));
    }
    assert_true(in_flight_is_finished(gate));
    assert_true(in_flight_take_done(gate).ns >= 100 * MS);
    in_flight_forget_late(gate);
    piece_ms = 0.025f;
    for (unsigned i = 0; i < 400; i++) {
        stands_ns += MS / 10;
        launch_on(STREAM(25));
    }
    assert_true(in_flight_is_finished(gate));
    struct in_flight_done told = in_flight_take_done(gate);
    piece_ms = 0.25f;
    assert_int_equal(told.calls, 400);
    assert_true(told.unmeasured > 100);
    assert_in_range(told.ns, 9 * MS, 12 * MS);
}

/* As where a service copies what it is asked, computes, and rests until it is asked again. */
static void calls_that_differ_are_measured_wherever_they_stand_in_a_burst(void **state)
{
    (void)state;
    double told_ns = 0, bursts = 40;
    piece_ms = 0.05f;
    for (unsigned i = 0; i < 4; i++) /* until it is known about how long one takes */
        launch_on(STREAM(26));
    assert_true(in_flight_is_finished(gate));
    in_flight_take_done(gate);
    calls_in_burst = 6;
    put[26] = 0;
    for (unsigned burst = 0; burst < bursts; burst++) {
        stands_ns += 40 * MS;
        done[26] = put[26];
        for (unsigned i = 0; i < calls_in_burst; i++)
            launch_on(STREAM(26));
        done[26] = put[26];
        assert_true(in_flight_is_finished(gate));
        told_ns += (double)in_flight_take_done(gate).ns;
    }
    double took_ns = bursts * (calls_in_burst - 1) * piece_ms * (double)MS;
    calls_in_burst = 0;
    piece_ms = 0.25f;
    done[26] = UINT64_MAX;
    assert_in_range(told_ns, took_ns * 0.8, took_ns * 1.2);
}

/* Bursts of so many calls on a stream, of which the last one is `end`; what was told of them in all. `in_part` counts the bursts of
 * which some calls were measured and some not. */
static struct in_flight_done told_of_bursts(CUstream stream, unsigned calls_each, void (*end)(CUstream),
                                            unsigned *in_part)
{
    struct in_flight_done all = {0};
    piece_ms = 0.05f;
    for (unsigned i = 0; i < 4; i++) /* until it is known about how long one takes */
        launch_on(stream);
    assert_true(in_flight_is_finished(gate));
    in_flight_take_done(gate);
    put[number(stream)] = done[number(stream)] = 0;
    calls_in_burst = calls_each;
    for (unsigned burst = 0; burst < 400; burst++) {
        stands_ns += MS;
        while (put[number(stream)] % calls_each < calls_each - 1)
            launch_on(stream);
        end(stream);
        done[number(stream)] = put[number(stream)];
        assert_true(in_flight_is_finished(gate));
        struct in_flight_done told = in_flight_take_done(gate);
        if (burst < 20) /* until it is known about how long calls take, and how many there are */
            continue;
        all.calls += told.calls;
        all.ns += told.ns;
        all.unmeasured += told.unmeasured;
        *in_part += told.unmeasured > 0 && told.unmeasured < told.calls;
    }
    calls_in_burst = 0;
    last_ms = 0;
    piece_ms = 0.25f;
    done[number(stream)] = UINT64_MAX;
    return all;
}

static void launch_and_wait(CUstream stream)
{
    launch_on(stream);
    cuStreamSynchronize(stream);
}

static void launch_and_ask(CUstream stream)
{
    launch_on(stream);
    assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    done[number(stream)] = put[number(stream)];
    assert_int_equal(cuStreamQuery(stream), CUDA_SUCCESS);
}

/* The first of twelve is a short copy: who measures parts of bursts measures it more or less often than the others. */
static void calls_that_differ_are_measured_as_often_as_they_come(void **state)
{
    (void)state;
    static void (*const ends[])(CUstream) = {launch_and_wait, launch_and_ask};
    for (unsigned i = 0; i < 2; i++) {
        unsigned in_part = 0;
        struct in_flight_done told = told_of_bursts(STREAM(20 + i), 12, ends[i], &in_part);
        assert_int_equal(told.calls, 380 * 12);
        assert_int_equal(in_part, 0);
        assert_in_range(told.unmeasured, 380, 379 * 12);
        assert_in_range(told.ns, 380 * 549 * MS / 1000, 380 * 553 * MS / 1000);
    }
}

static void copy_and_wait(CUstream stream)
{
    (void)stream;
    cuMemcpyDtoH_v2(NULL, 0, 4);
}

/* It takes no GPU time from others, and what is measured of the calls before it ends before it. */
static void a_copy_that_is_waited_for_is_none_of_the_calls(void **state)
{
    (void)state;
    unsigned in_part = 0;
    last_ms = 5;
    struct in_flight_done told = told_of_bursts(CU_STREAM_LEGACY, 12, copy_and_wait, &in_part);
    assert_int_equal(told.calls, 380 * 11);
    assert_int_equal(in_part, 0);
    assert_in_range(told.ns, 380 * 499 * MS / 1000, 380 * 503 * MS / 1000);
}

/* One from the host's memory may return while the last of it is on its way. */
static void what_a_copy_left_under_way_is_waited_for(void **state)
{
    (void)state;
    let_the_clock_run();
    work_stays();
    cuMemcpyHtoD_v2(0, "", 1);
    put[number(CU_STREAM_LEGACY)]++;
    assert_false(in_flight_is_finished(gate));
    done[number(CU_STREAM_LEGACY)] = put[number(CU_STREAM_LEGACY)];
    assert_true(in_flight_is_finished(gate));
}

static void let_the_host_do_something(CUstream stream)
{
    cuLaunchHostFunc(stream, NULL, NULL);
}

/* The GPU has nothing to do until it returns. */
static void a_function_of_the_host_is_not_measured(void **state)
{
    (void)state;
    unsigned in_part = 0;
    last_ms = 5;
    struct in_flight_done told = told_of_bursts(STREAM(22), 12, let_the_host_do_something, &in_part);
    assert_int_equal(told.calls, 380 * 11);
    assert_in_range(told.ns, 380 * 499 * MS / 1000, 380 * 503 * MS / 1000);
}

/* The first of two events is reached before the call comes to the GPU. */
static void the_way_to_an_idle_gpu_is_not_counted(void **state)
{
    (void)state;
    way_ns = MS / 2;
    for (unsigned i = 0; i < 20; i++)
        launch_on(STREAM(29));
    way_ns = 0;
    assert_true(in_flight_is_finished(gate));
    struct in_flight_done told = in_flight_take_done(gate);
    assert_int_equal(told.calls, 20);
    assert_in_range(told.ns, 20 * MS / 4 - MS / 2, 20 * MS / 4 + MS / 2);
}

/* The first kernels of a graph are done before the call returns. */
static void a_graph_is_counted_from_the_call_on(void **state)
{
    (void)state;
    begins_at_once = true;
    way_ns = MS / 8;
    for (unsigned i = 0; i < 20; i++)
        cuGraphLaunch(NULL, STREAM(31));
    way_ns = 0;
    assert_true(in_flight_is_finished(gate));
    struct in_flight_done told = in_flight_take_done(gate);
    begins_at_once = false;
    assert_int_equal(told.calls, 20);
    assert_in_range(told.ns, 20 * MS / 4 - MS / 4, 20 * MS / 4 + MS / 4);
}

static void streams_that_work_side_by_side_are_told_of(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 10; i++) {
        launch_on(STREAM(10));
        launch_on(STREAM(11));
    }
    assert_true(in_flight_is_finished(gate));
    struct in_flight_done told = in_flight_take_done(gate);
    assert_int_equal(told.calls, 20);
    assert_int_equal(told.streams, 2);
}

static void what_is_not_done_is_not_told_of(void **state)
{
    (void)state;
    work_stays();
    launch_on(STREAM(12));
    assert_int_equal(in_flight_take_done(gate).calls, 0);
    done[12] = UINT64_MAX;
    struct in_flight_done later = in_flight_take_done(gate);
    assert_int_equal(later.calls, 1);
    assert_in_range(later.ns, MS / 4 - 1000, MS / 4 + 1000);
}

static void forget_records(void)
{
    timed_records = untimed_records = untimed_events = stream_questions = 0;
}

#define MANY 2000u
#define SEVERAL 8u

/* Short pieces, so that marks are due seldom. Returns how many timed events were recorded. */
static unsigned timed_for_many(CUstream stream)
{
    piece_ms = 0.001f;
    forget_records();
    for (unsigned i = 0; i < MANY; i++)
        launch_on(stream);
    piece_ms = 0.25f;
    return timed_records;
}

/* As where one of the few that are measured waited for another process's slice. */
static void a_few_calls_that_differ_make_a_guess_of_the_others(void **state)
{
    (void)state;
    piece_ms = 0.001f;
    for (unsigned i = 0; i < 2 * MANY; i++) {
        if (i == MANY)
            in_flight_take_done(gate);
        launch_on(STREAM(15));
    }
    struct in_flight_done alike = in_flight_take_done(gate);
    assert_true(alike.unmeasured > alike.calls / 2);
    assert_false(alike.is_guess);
    for (unsigned i = 0; i < MANY; i++)
        launch_on(STREAM(15));
    piece_ms = 1;
    while (gate_self.entry->counts.told_ns < MS / 2)
        launch_on(STREAM(15));
    piece_ms = 0.25f;
    assert_true(in_flight_take_done(gate).is_guess);
}

static void a_threads_own_stream_has_events_only_where_marks_are_due(void **state)
{
    (void)state;
    unsigned usual = timed_for_many(STREAM(17));
    assert_int_equal(untimed_records, 0);
    assert_in_range(usual, 1, MANY / 20);
    unsigned timed = timed_for_many(CU_STREAM_PER_THREAD);
    assert_in_range(timed, 1, 2 * usual);
    assert_int_equal(untimed_records, 0);
    assert_true(in_flight_is_finished(gate));
    assert_int_equal(in_flight_take_done(gate).calls, 2 * MANY);
}

static void what_follows_on_a_threads_own_stream_is_waited_for_without_asking_the_legacy_one(void **state)
{
    (void)state;
    timed_for_many(CU_STREAM_PER_THREAD);
    assert_true(in_flight_is_finished(gate));
    work_stays();
    legacy_questions = 0;
    uint64_t before = put[number(CU_STREAM_PER_THREAD)];
    for (unsigned i = 0; i < 3; i++)
        launch_on(CU_STREAM_PER_THREAD);
    for (unsigned i = 0; i < 3; i++) {
        assert_false(in_flight_is_finished(gate));
        done[number(CU_STREAM_PER_THREAD)]++;
    }
    assert_int_equal(done[number(CU_STREAM_PER_THREAD)], before + 3);
    assert_true(in_flight_is_finished(gate));
    assert_int_equal(legacy_questions, 0);
}

static atomic_int owners_step;

static void go_on_at(int step)
{
    atomic_store(&owners_step, step);
    while (atomic_load(&owners_step) == step)
        sched_yield();
}

static void *own_a_stream(void *unused)
{
    (void)unused;
    cuCtxSetCurrent(CONTEXT(1));
    timed_for_many(CU_STREAM_PER_THREAD);
    while (gate_self.entry->quick < 3)
        launch_on(CU_STREAM_PER_THREAD);
    go_on_at(1);
    for (unsigned i = 0; i < 3; i++)
        launch_on(CU_STREAM_PER_THREAD);
    go_on_at(2);
    return NULL;
}

static pthread_t owner;

static void let_owner_go_on_after(int step)
{
    while (atomic_load(&owners_step) != step)
        sched_yield();
    atomic_store(&owners_step, 0);
}

/* Another thread has three calls before its own stream, with no event behind them. */
static void start_owner(void)
{
    assert_int_equal(pthread_create(&owner, NULL, own_a_stream, NULL), 0);
    while (atomic_load(&owners_step) != 1)
        sched_yield();
    work_stays();
    let_the_clock_run();
    let_owner_go_on_after(1);
    while (atomic_load(&owners_step) != 2)
        sched_yield();
}

static void end_owner(void)
{
    let_owner_go_on_after(2);
    pthread_join(owner, NULL);
}

/* Another thread's default stream has no name, but the legacy one waits for it. */
static void what_another_thread_gave_its_own_stream_is_waited_for(void **state)
{
    (void)state;
    start_owner();
    assert_false(in_flight_is_finished(gate));
    done[number(CU_STREAM_PER_THREAD)] += 2;
    assert_false(in_flight_is_finished(gate));
    done[number(CU_STREAM_PER_THREAD)]++;
    assert_true(in_flight_is_finished(gate));
    end_owner();
}

static void *finish_soon(void *unused)
{
    (void)unused;
    usleep(500);
    done[number(CU_STREAM_PER_THREAD)] = put[number(CU_STREAM_PER_THREAD)];
    return NULL;
}

/* While the capture is open nobody could ask about it. */
static void a_capture_begins_when_that_is_done(void **state)
{
    CUgraph graph;
    pthread_t finisher;
    (void)state;
    touched_while_capturing = 0;
    start_owner();
    stop_the_clock(); /* however late the finisher is run, it is waited for */
    pthread_create(&finisher, NULL, finish_soon, NULL);
    assert_int_equal(cuStreamBeginCapture_v2(STREAM(11), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    blocks_legacy = true;
    pthread_join(finisher, NULL);
    assert_true(in_flight_is_finished(gate));
    assert_int_equal(touched_while_capturing, 0);
    blocks_legacy = false;
    cuStreamEndCapture(STREAM(11), &graph);
    end_owner();
}

static void nor_does_it_wait_for_long(void **state)
{
    CUgraph graph;
    (void)state;
    start_owner();
    assert_int_equal(cuStreamBeginCapture_v2(STREAM(11), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    assert_false(in_flight_is_finished(gate));
    done[number(CU_STREAM_PER_THREAD)] = put[number(CU_STREAM_PER_THREAD)];
    assert_false(in_flight_is_finished(gate));
    cuStreamEndCapture(STREAM(11), &graph);
    assert_true(in_flight_is_finished(gate));
    end_owner();
}

static void work_beside_a_capture_has_timed_events_only_where_marks_are_due(void **state)
{
    CUgraph graph;
    (void)state;
    touched_while_capturing = 0;
    unsigned usual = 0; /* where marks are due by chance, but for a capture */
    for (unsigned i = 0; i < SEVERAL; i++)
        usual += timed_for_many(STREAM(40 + i));
    cuStreamBeginCapture_v2(STREAM(11), CU_STREAM_CAPTURE_MODE_RELAXED);
    unsigned timed = timed_for_many(STREAM(19));
    assert_in_range(timed, 1, 2 * usual / SEVERAL);
    assert_int_equal(untimed_events, 1);
    assert_true(in_flight_is_finished(gate));
    assert_int_equal(stream_questions, 0);
    cuStreamEndCapture(STREAM(11), &graph);
    assert_int_equal(touched_while_capturing, 0);
}

/* Threads that use several streams in turn ask the driver whose each is when it is new to them. */
static void between_marks_the_driver_is_asked_nothing(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MANY; i++)
        launch_on(STREAM(20 + i % 2));
    context_questions = 0;
    forget_records();
    for (unsigned i = 0; i < MANY; i++)
        launch_on(STREAM(20 + i % 2));
    assert_true(context_questions <= timed_records);
    assert_int_equal(stream_questions, 0);
}

static void nor_where_the_default_stream_is_one_of_them(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MANY; i++)
        launch_on(i % 2 ? STREAM(20) : CU_STREAM_LEGACY);
    context_questions = 0;
    forget_records();
    for (unsigned i = 0; i < MANY; i++)
        launch_on(i % 2 ? STREAM(20) : CU_STREAM_LEGACY);
    assert_true(context_questions <= timed_records);
}

/* Launch until the next ones have nothing to do but to be counted. */
static void launch_until_quick(CUstream stream)
{
    timed_for_many(stream);
    for (unsigned i = 0; i < MANY && !gate_self.entry->quick; i++)
        launch_on(stream);
    assert_true(gate_self.entry->quick);
}

static void the_first_launch_after_a_rest_wakes_the_agent_between_marks_too(void **state)
{
    (void)state;
    launch_until_quick(STREAM(22));
    atomic_store(&gate->resting, true);
    unsigned before = pokes;
    launch_on(STREAM(22));
    assert_int_equal(pokes, before + 1);
    assert_false(gate->resting);
}

static void *launch_one_that_stays(void *unused)
{
    (void)unused;
    cuCtxSetCurrent(CONTEXT(1));
    launch_until_quick(STREAM(23));
    atomic_store(&blocked, true);
    launch_on(STREAM(23));
    return NULL;
}

static bool one_is_inside(void)
{
    return atomic_load(&blocked) && !gate_is_left(gate);
}

/* It passed the gate before the agent rested, and is counted when it has left the driver: nobody wakes the agent then. */
static void an_agent_does_not_rest_while_a_launch_is_under_way(void **state)
{
    pthread_t thread;
    (void)state;
    atomic_store(&gate->resting, false);
    pthread_create(&thread, NULL, launch_one_that_stays, NULL);
    bool inside = comes_true(one_is_inside), busy = agent_look(gate);
    atomic_store(&blocked, false);
    pthread_join(thread, NULL);
    assert_true(inside && busy);
    assert_true(in_flight_is_finished(gate));
    atomic_store(&gate->resting, false);
    assert_false(agent_look(gate));
    atomic_store(&gate->resting, false);
}

/* Two processes may wait for each other's kernels: what did not drain says nothing of how long pieces are, and patience
 * that grows with it would grow for ever. */
static void what_did_not_drain_makes_nobody_more_patient(void **state)
{
    (void)state;
    let_the_clock_run(); /* patience ends */
    launch_on(STREAM(13));
    in_flight_take_done(gate);
    uint64_t longest_ns = atomic_load(&gate->longest_ns);
    assert_int_not_equal(longest_ns, 0);
    work_stays();
    launch_on(STREAM(13));
    agent.alone = true;
    assert_false(agent_drain(gate, 1000000, AGENT_CLOSES));
    piece_ms = 400;
    done[13] = UINT64_MAX;
    in_flight_take_done(gate);
    assert_int_equal(atomic_load(&gate->longest_ns), longest_ns);
    piece_ms = 0.25f;
    atomic_store(&gate->longest_ns, 400 * MS);
    for (unsigned i = 0; i < 100; i++)
        assert_true(agent_drain(gate, 1000000, AGENT_CLOSES));
    assert_true(atomic_load(&gate->longest_ns) < MS); /* it is not remembered for ever */
    agent.alone = false;
}

/* --- Captures -------------------------------------------------------------------------------------- */

static void *capture(void *unused)
{
    CUgraph graph;
    (void)unused;
    cuCtxSetCurrent(CONTEXT(1));
    cuStreamBeginCapture_v2(STREAM(8), CU_STREAM_CAPTURE_MODE_GLOBAL);
    for (unsigned i = 0; i < 100; i++)
        launch_on(STREAM(8));
    cuStreamEndCapture(STREAM(8), &graph);
    return NULL;
}

static bool a_capture_waits(void)
{
    return atomic_load(&gate->capture_waiters) == 1;
}

static void a_capture_is_the_same_while_gates_close(void **state)
{
    pthread_t thread;
    (void)state;
    touched_while_capturing = 0;
    work_stays();
    launch_on(STREAM(8));
    done[8] = UINT64_MAX;
    gate_close(gate);
    pthread_create(&thread, NULL, capture, NULL);
    assert_true(comes_true(a_capture_waits));
    assert_false(capturing[8]);
    assert_true(in_flight_is_finished(gate));
    gate_drained(gate);
    pthread_join(thread, NULL); /* through a closed gate: a captured call gives the GPU nothing */
    assert_int_equal(gate->captures, 0);

    for (unsigned round = 0; round < 200; round++) {
        gate_open(gate, round % 2 ? GATE_FREE : GATE_PACED);
        pthread_create(&thread, NULL, capture, NULL);
        launch_on(STREAM(9));
        close_gate();
        in_flight_is_finished(gate);
        pthread_join(thread, NULL);
    }
    assert_int_equal(touched_while_capturing, 0);
    assert_int_equal(gate->captures, 0);
}

static void *end_no_capture(void *unused)
{
    CUgraph graph;
    (void)unused;
    cuCtxSetCurrent(CONTEXT(1));
    assert_int_equal(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph), CUDA_ERROR_ILLEGAL_STATE);
    return NULL;
}

static void a_capture_of_a_threads_own_stream_goes_on_whatever_is_ended_elsewhere(void **state)
{
    pthread_t thread;
    CUgraph graph;
    (void)state;
    cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED);
    pthread_create(&thread, NULL, end_no_capture, NULL);
    pthread_join(thread, NULL);
    assert_int_equal(gate->captures, 1);
    cuCtxSetCurrent(CONTEXT(2));
    assert_int_equal(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph), CUDA_ERROR_ILLEGAL_STATE);
    assert_int_equal(gate->captures, 1);
    cuCtxSetCurrent(CONTEXT(1));
    assert_int_equal(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph), CUDA_SUCCESS);
    assert_int_equal(gate->captures, 0);
}

static void work_beside_a_capture_is_marked_by_who_submits_it(void **state)
{
    CUgraph graph;
    (void)state;
    touched_while_capturing = 0;
    work_stays();
    launch_on(STREAM(10));
    cuStreamBeginCapture_v2(STREAM(11), CU_STREAM_CAPTURE_MODE_RELAXED);
    launch_on(STREAM(11));
    launch_on(STREAM(12));
    assert_false(in_flight_is_finished(gate));
    done[10] = put[10];
    done[12] = put[12];
    assert_true(in_flight_is_finished(gate)); /* by the marks: nobody asks a stream now */
    cuStreamEndCapture(STREAM(11), &graph);
    assert_int_equal(touched_while_capturing, 0);
}

/* The driver refuses the launch: cuda.h 13.0, cuStreamIsCapturing. That it was tried is no reason to put an
 * event there, which would invalidate the capture. */
static void nothing_is_put_into_the_legacy_stream_while_it_would_wait_for_a_captured_one(void **state)
{
    CUgraph graph;
    (void)state;
    touched_while_capturing = 0;
    work_stays();
    cuStreamBeginCapture_v2(STREAM(13), CU_STREAM_CAPTURE_MODE_RELAXED);
    blocks_legacy = true;
    launch_on(NULL);
    cuStreamEndCapture(STREAM(13), &graph);
    cuStreamBeginCapture_v2(STREAM(14), CU_STREAM_CAPTURE_MODE_RELAXED);
    cuStreamEndCapture(STREAM(14), &graph);
    assert_int_equal(touched_while_capturing, 0);
    blocks_legacy = false;
}

/* --- Addresses ------------------------------------------------------------------------------------- */

/* Calls that name some and give the GPU nothing. */
#define ALL_NAMING                                                                                           \
    NAMING(cuGraphAddBatchMemOpNode, NULL, NULL, NULL, 0, NULL)                                              \
    NAMING(cuGraphAddMemcpyNode, NULL, NULL, NULL, 0, NULL, NULL)                                            \
    NAMING(cuGraphAddMemsetNode, NULL, NULL, NULL, 0, NULL, NULL)                                            \
    NAMING(cuGraphAddNode, NULL, NULL, NULL, 0, NULL)                                                        \
    NAMING(cuGraphAddNode_v2, NULL, NULL, NULL, NULL, 0, NULL)                                               \
    NAMING(cuGraphBatchMemOpNodeSetParams, NULL, NULL)                                                       \
    NAMING(cuGraphMemcpyNodeSetParams, NULL, NULL)                                                           \
    NAMING(cuGraphMemsetNodeSetParams, NULL, NULL)                                                           \
    NAMING(cuGraphNodeSetParams, NULL, NULL)                                                                 \
    NAMING(cuGraphExecBatchMemOpNodeSetParams, NULL, NULL, NULL)                                             \
    NAMING(cuGraphExecChildGraphNodeSetParams, NULL, NULL, NULL)                                             \
    NAMING(cuGraphExecNodeSetParams, NULL, NULL, NULL)                                                       \
    NAMING(cuGraphExecMemcpyNodeSetParams, NULL, NULL, NULL, NULL)                                           \
    NAMING(cuGraphExecMemsetNodeSetParams, NULL, NULL, NULL, NULL)                                           \
    NAMING(cuGraphExecUpdate, NULL, NULL, NULL, NULL)                                                        \
    NAMING(cuGraphExecUpdate_v2, NULL, NULL, NULL)                                                           \
    NAMING(cuGraphInstantiate, NULL, NULL, NULL, NULL, 0)                                                    \
    NAMING(cuGraphInstantiate_v2, NULL, NULL, NULL, NULL, 0)                                                 \
    NAMING(cuGraphInstantiateWithFlags, NULL, NULL, 0)                                                       \
    NAMING(cuGraphInstantiateWithParams, NULL, NULL, NULL)                                                   \
    NAMING(cuGraphInstantiateWithParams_ptsz, NULL, NULL, NULL)                                              \
    NAMING(cuTexObjectCreate, NULL, NULL, NULL, NULL)                                                        \
    NAMING(cuTexRefSetAddress_v2, NULL, NULL, 0, 0)                                                          \
    NAMING(cuTexRefSetAddress2D_v2, NULL, NULL, 0, 0)                                                        \
    NAMING(cuTexRefSetAddress2D_v3, NULL, NULL, 0, 0)
#define NAMING(symbol, ...)                                                                                  \
    static void call_##symbol(void)                                                                          \
    {                                                                                                        \
        symbol(__VA_ARGS__);                                                                                 \
    }
ALL_NAMING
#undef NAMING

static const struct {
    int id;
    void (*call)(void);
} naming[] = {
#define NAMING(symbol, ...) {CUDA_ID_##symbol, call_##symbol},
    ALL_NAMING};
#define NAMING_COUNT (sizeof(naming) / sizeof(*naming))

static int begin_moving(void **state)
{
    static const struct agent_mover mover = {.takes_addresses = true};
    for (unsigned i = 0; i < NAMING_COUNT; i++)
        install(naming[i].id, (void *)submit_any);
    agent_set_mover(&mover);
    return open_gate(state);
}

static int end_moving(void **state)
{
    (void)state;
    agent_set_mover(NULL);
    return 0;
}

/* A thread makes the call, and waits although the gate let it pass if the memory were here. */
static void waits_for_the_memory(void (*call)(void), const char *name)
{
    pthread_t thread;
    assert_true(agent_move_out(gate, PATIENCE_NS));
    unsigned before = calls;
    pthread_create(&thread, NULL, in_a_thread, &call);
    if (!comes_true(one_waits))
        fail_msg("%s does not wait", name);
    assert_int_equal(calls, before);
    agent_move_in(gate);
    gate_open(gate, GATE_FREE);
    pthread_join(thread, NULL);
    assert_int_equal(calls, before + 1);
}

static void what_names_addresses_waits_only_while_the_memory_is_away(void **state)
{
    (void)state;
    for (unsigned i = 0; i < NAMING_COUNT; i++) {
        unsigned before = calls;
        close_gate();
        naming[i].call(); /* through the closed gate: it gives the GPU nothing */
        assert_int_equal(calls, before + 1);
        waits_for_the_memory(naming[i].call, cuda_entries[naming[i].id].symbol);
    }
}

static void call_captured(void)
{
    launch_on(STREAM(8));
}

static void a_captured_call_waits_while_the_memory_is_away(void **state)
{
    CUgraph graph;
    (void)state;
    cuStreamBeginCapture_v2(STREAM(8), CU_STREAM_CAPTURE_MODE_GLOBAL);
    close_gate();
    call_captured();
    waits_for_the_memory(call_captured, "a captured launch");
    cuStreamEndCapture(STREAM(8), &graph);
}

static void memory_stays_while_a_call_names_it(void **state)
{
    pthread_t thread;
    void (*call)(void) = call_cuGraphAddMemcpyNode;
    (void)state;
    begin_call(&thread, &call);
    close_gate(); /* a turn does not wait for it */
    assert_false(agent_move_out(gate, MS));
    assert_false(gate->is_away);
    end_call(thread);
    assert_true(agent_move_out(gate, PATIENCE_NS));
    agent_move_in(gate);
    gate_open(gate, GATE_FREE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, open_gate)
#define MEASURES(name) cmocka_unit_test_setup_teardown(name, begin_measuring, end_measuring)
#define MOVES(name) cmocka_unit_test_setup_teardown(name, begin_moving, end_moving)
    const struct CMUnitTest tests[] = {
        TEST(every_submitting_call_waits_at_a_closed_gate),
        TEST(a_call_under_way_is_waited_for),
        TEST(a_first_launch_keeps_nobody_waiting_while_it_loads),
        TEST(nobody_asks_the_driver_while_a_module_is_loaded),
        TEST(the_daemon_is_told_of_a_closed_gate_before_code_is_loaded),
        TEST(a_thread_that_jumped_out_of_a_call_waits_like_others),
        TEST(a_closed_and_left_gate_lets_nothing_through),
        TEST(a_grant_of_what_was_given_back_opens_nothing),
        TEST(unmarked_work_is_found_by_asking_its_stream),
        TEST(streams_that_come_and_go_take_no_more_places_than_there_are_at_once),
        TEST(a_default_stream_belongs_to_the_current_context),
        TEST(a_destroyed_streams_work_is_waited_for),
        TEST(a_destroyed_contexts_work_is_not_asked_about),
        TEST(a_paced_stream_has_two_pieces_before_it),
        TEST(who_is_held_and_late_for_it_may_run_ahead_further),
        TEST(a_stream_that_does_not_move_is_not_waited_for_for_ever),
        MEASURES(calls_on_an_idle_stream_are_measured_one_by_one),
        MEASURES(of_calls_that_come_seldom_each_report_tells_what_some_take),
        MEASURES(calls_that_are_not_measured_are_not_taken_to_be_like_those_of_another_lease),
        MEASURES(calls_that_differ_are_measured_wherever_they_stand_in_a_burst),
        MEASURES(calls_that_differ_are_measured_as_often_as_they_come),
        MEASURES(a_copy_that_is_waited_for_is_none_of_the_calls),
        MEASURES(what_a_copy_left_under_way_is_waited_for),
        MEASURES(a_function_of_the_host_is_not_measured),
        MEASURES(calls_are_measured_more_often_where_it_is_found_out_what_they_take),
        MEASURES(the_way_to_an_idle_gpu_is_not_counted),
        MEASURES(a_graph_is_counted_from_the_call_on),
        MEASURES(streams_that_work_side_by_side_are_told_of),
        MEASURES(what_is_not_done_is_not_told_of),
        MEASURES(a_few_calls_that_differ_make_a_guess_of_the_others),
        MEASURES(a_threads_own_stream_has_events_only_where_marks_are_due),
        MEASURES(what_follows_on_a_threads_own_stream_is_waited_for_without_asking_the_legacy_one),
        MEASURES(what_another_thread_gave_its_own_stream_is_waited_for),
        MEASURES(a_capture_begins_when_that_is_done),
        MEASURES(nor_does_it_wait_for_long),
        MEASURES(work_beside_a_capture_has_timed_events_only_where_marks_are_due),
        MEASURES(between_marks_the_driver_is_asked_nothing),
        MEASURES(nor_where_the_default_stream_is_one_of_them),
        MEASURES(the_first_launch_after_a_rest_wakes_the_agent_between_marks_too),
        MEASURES(an_agent_does_not_rest_while_a_launch_is_under_way),
        MEASURES(what_did_not_drain_makes_nobody_more_patient),
        TEST(a_capture_is_the_same_while_gates_close),
        TEST(a_capture_of_a_threads_own_stream_goes_on_whatever_is_ended_elsewhere),
        TEST(work_beside_a_capture_is_marked_by_who_submits_it),
        TEST(nothing_is_put_into_the_legacy_stream_while_it_would_wait_for_a_captured_one),
        MOVES(what_names_addresses_waits_only_while_the_memory_is_away),
        MOVES(a_captured_call_waits_while_the_memory_is_away),
        MOVES(memory_stays_while_a_call_names_it),
    };
    return cmocka_run_group_tests(tests, make_gate, NULL);
}
