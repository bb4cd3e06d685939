/* The gate: who passes it, who waits, what the daemon is told, captures, and names of addresses. */
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fake_streams.h"
#include "intercept/agent/agent.h"
#include "intercept/agent/agent_state.h"
#include "intercept/resolve/real.h"

static bool one_waits(void)
{
    return atomic_load(&gate->waiters) == 1;
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
    SUBMITS(cuMemMapArrayAsync_ptsz, PER_THREAD, AT(3), CUarrayMapInfo *, unsigned int, CUstream)            \
    PREFETCHES(, LEGACY)                                                                                     \
    PREFETCHES(_ptsz, PER_THREAD)
#define PREFETCHES(suffix, form)                                                                             \
    SUBMITS(cuMemPrefetchAsync##suffix, form, AT(4), CUdeviceptr, size_t, CUdevice, CUstream)                \
    SUBMITS(cuMemPrefetchAsync_v2##suffix, form, AT(5), CUdeviceptr, size_t, CUmemLocation, unsigned int,    \
            CUstream)                                                                                        \
    SUBMITS(cuMemPrefetchBatchAsync##suffix, form, AT(8), CUdeviceptr *, size_t *, size_t, CUmemLocation *,  \
            size_t *, size_t, unsigned long long, CUstream)                                                  \
    SUBMITS(cuMemDiscardAndPrefetchBatchAsync##suffix, form, AT(8), CUdeviceptr *, size_t *, size_t,         \
            CUmemLocation *, size_t *, size_t, unsigned long long, CUstream)
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

/* How often a thread that comes to a gate in this state wakes the agent. */
static unsigned pokes_at(void (*close)(void))
{
    pthread_t thread;
    void (*call)(void) = call_launch;
    close();
    unsigned before = pokes;
    pthread_create(&thread, NULL, in_a_thread, &call);
    assert_true(comes_true(one_waits));
    gate_open(gate, GATE_FREE);
    pthread_join(thread, NULL);
    return pokes - before;
}

static void begin_to_close(void)
{
    gate_close(gate);
}

static void the_agent_wakes_for_a_thread_at_a_closed_gate_but_not_while_it_drains_or_holds_still(void **state)
{
    (void)state;
    assert_int_equal(pokes_at(close_gate), 1);
    assert_int_equal(pokes_at(begin_to_close), 0);
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

static unsigned asked;
static bool may_launch_all_but_one(CUfunction function)
{
    asked++;
    return function != FUNCTION;
}

/* A function is asked for once; one that is refused never comes to the driver, and its thread is not inside. */
static void a_function_is_let_in_before_its_first_launch(void **state)
{
    CUfunction other = (CUfunction)(uintptr_t)0x6000;
    (void)state;
    asked = 0;
    gate_when_launched(may_launch_all_but_one);
    for (unsigned word = GATE_FREE; word <= GATE_PACED; word++) {
        gate_forget_functions(gate);
        gate_open(gate, (enum gate_state)word);
        unsigned before = calls, asked_before = asked;
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(cuLaunchKernel(other, 1, 1, 1, 1, 1, 1, 0, STREAM(1), NULL, NULL), CUDA_SUCCESS);
        assert_int_equal(asked - asked_before, 1);
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(cuLaunchKernel(FUNCTION, 1, 1, 1, 1, 1, 1, 0, STREAM(1), NULL, NULL),
                             CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(asked - asked_before, 4);
        assert_int_equal(calls - before, 3);
        gate_close(gate);
        assert_true(gate_is_left(gate));
    }
    gate_when_launched(NULL);
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

/* An agent's connection; returns the daemon's end. */
static int connect_agent(void)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    attach_keep(&agent.connection, pair[0]);
    agent.version = WIRE_VERSION;
    agent.held = false;
    return pair[1];
}

static void disconnect_agent(int socket)
{
    attach_let_go(&agent.connection);
    close(socket);
    agent.held = false;
    agent.lease = agent.flags = 0;
    gate_open(gate, GATE_FREE);
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
        pthread_t thread, drainer;
        void (*call)(void) = call_function;
        struct wire_grant grant = {.lease = 9, .flags = WIRE_LEASE_WANTED};
        int socket = connect_agent();
        agent_grant(gate, &grant);
        gate_forget_functions(gate);
        begin_call(&thread, &call);
        assert_int_equal(pthread_create(&drainer, NULL, give_back, &outcome), 0);
        struct wire_message message = next_message(socket);
        assert_int_equal(message.header.type, WIRE_CLOSED);
        assert_int_equal(message.closed.lease, 9);
        assert_int_equal(message.closed.left_ns, 0);
        end_call(thread);
        do
            message = next_message(socket);
        while (message.header.type == WIRE_WAITS || message.header.type == WIRE_REPORT);
        assert_int_equal(message.header.type, WIRE_RETURNED);
        assert_int_equal(message.returned.outcome, outcome);
        pthread_join(drainer, NULL);
        disconnect_agent(socket);
    }
}

static void what_is_done_does_not_keep_from_saying_when_the_rest_will_be(void **state)
{
    enum wire_outcome outcome = WIRE_OUTCOME_DRAINED;
    struct wire_grant grant = {.lease = 9};
    int socket = connect_agent();
    (void)state;
    agent_grant(gate, &grant);
    cuMemcpyDtoH_v2(NULL, 1, 1); /* nothing says how long it takes */
    give_back(&outcome);
    struct wire_message message = next_message(socket);
    assert_int_equal(message.header.type, WIRE_CLOSED);
    assert_int_equal(message.closed.left_ns, 0);
    disconnect_agent(socket);
}

static void the_last_look_by_chance_before_a_report_brings_it_along(void **state)
{
    struct wire_grant grant = {.lease = 9, .flags = WIRE_LEASE_REPORT};
    int socket = connect_agent();
    (void)state;
    agent_grant(gate, &grant);
    stop_the_clock();
    launch_on(STREAM(1));
    agent.measure.by_looks = 1;
    agent.measure.look_at_ns = stands_ns;
    uint64_t due_ns = agent.next_report_ns = stands_ns + MS / 1000;
    agent_serve(gate);
    let_the_clock_run();
    assert_int_equal(next_message(socket).header.type, WIRE_REPORT);
    assert_int_equal(agent.next_report_ns,
                     due_ns + WIRE_REPORT_NS); /* not more often than the daemon asked for */
    disconnect_agent(socket);
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

static unsigned calls_before;
static bool something_passes(void)
{
    return calls > calls_before;
}

static void a_closed_and_left_gate_lets_nothing_through(void **state)
{
    pthread_t threads[4];
    (void)state;
    stop = false;
    for (unsigned i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, submit_until_stopped, NULL);
    uint64_t enough_ns = monotonic_ns() + UINT64_C(3000000000); /* on busy CPUs each round takes long */
    for (unsigned round = 0; round < 300 && (round < 20 || monotonic_ns() < enough_ns); round++) {
        close_gate();
        calls_before = calls;
        for (unsigned i = 0; i < 20; i++)
            sched_yield();
        assert_int_equal(calls, calls_before);
        gate_open(gate, round % 2 ? GATE_FREE : GATE_PACED);
        assert_true(comes_true(something_passes));
    }
    stop = true;
    gate_open(gate, GATE_FREE);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
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

static void captures_of_later_forms_are_counted(void **state)
{
    CUgraph graph;
    (void)state;
    cuStreamBeginRecaptureToGraph(STREAM(8), CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, NULL);
    assert_int_equal(gate->captures, 1);
    cuStreamEndCapture(STREAM(8), &graph);
    assert_int_equal(gate->captures, 0);
    cuStreamBeginCaptureToCig(STREAM(8), NULL);
    assert_int_equal(gate->captures, 1);
    cuStreamEndCaptureToCig(STREAM(8));
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

static void work_beside_a_capture_is_marked_by_the_thread_that_submits_it(void **state)
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
    NAMING(cuGraphAddNode_v3, NULL, NULL, NULL, NULL, 0, NULL)                                               \
    NAMING(cuGraphBatchMemOpNodeSetParams, NULL, NULL)                                                       \
    NAMING(cuGraphMemcpyNodeSetParams, NULL, NULL)                                                           \
    NAMING(cuGraphMemsetNodeSetParams, NULL, NULL)                                                           \
    NAMING(cuGraphNodeSetParams, NULL, NULL)                                                                 \
    NAMING(cuGraphNodeSetParams_v2, NULL, NULL)                                                              \
    NAMING(cuMemGetLocationInfo, NULL, 0, 0, 0, 0)                                                           \
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
#define MOVES(name) cmocka_unit_test_setup_teardown(name, begin_moving, end_moving)
    const struct CMUnitTest tests[] = {
        TEST(every_submitting_call_waits_at_a_closed_gate),
        TEST(the_agent_wakes_for_a_thread_at_a_closed_gate_but_not_while_it_drains_or_holds_still),
        TEST(a_call_under_way_is_waited_for),
        TEST(a_first_launch_keeps_nobody_waiting_while_it_loads),
        TEST(a_function_is_let_in_before_its_first_launch),
        TEST(nobody_asks_the_driver_while_a_module_is_loaded),
        TEST(the_daemon_is_told_of_a_closed_gate_before_code_is_loaded),
        TEST(what_is_done_does_not_keep_from_saying_when_the_rest_will_be),
        TEST(the_last_look_by_chance_before_a_report_brings_it_along),
        TEST(a_thread_that_jumped_out_of_a_call_waits_like_others),
        TEST(a_closed_and_left_gate_lets_nothing_through),
        TEST(a_grant_of_what_was_given_back_opens_nothing),
        TEST(a_capture_is_the_same_while_gates_close),
        TEST(captures_of_later_forms_are_counted),
        TEST(a_capture_of_a_threads_own_stream_goes_on_whatever_is_ended_elsewhere),
        TEST(work_beside_a_capture_is_marked_by_the_thread_that_submits_it),
        TEST(nothing_is_put_into_the_legacy_stream_while_it_would_wait_for_a_captured_one),
        MOVES(what_names_addresses_waits_only_while_the_memory_is_away),
        MOVES(a_captured_call_waits_while_the_memory_is_away),
        MOVES(memory_stays_while_a_call_names_it),
    };
    return cmocka_run_group_tests(tests, make_gate, NULL);
}
