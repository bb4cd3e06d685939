/* The pace: what is before the GPU, and what is measured of it. */
#include <pthread.h>
#include <string.h>

/* Before the declaration of `gate`, which is the name of many a parameter. */
#include "intercept/submit/in_flight_entry.h"

#include "fake_streams.h"
#include "intercept/agent/agent.h"
#include "intercept/agent/agent_state.h"
#include "intercept/resolve/real.h"

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

/* A copy takes the stream of a context that is not current, and may be the stream's first call. */
static void a_mark_is_an_event_of_its_streams_context(void **state)
{
    (void)state;
    work_stays();
    gate_open(gate, GATE_PACED);
    cuCtxSetCurrent(CONTEXT(2));
    cuMemsetD8Async(0, 0, 1, STREAM(7));
    cuCtxSetCurrent(CONTEXT(1));
    launch_on(STREAM(7));
    assert_int_equal(foreign_records, 0);
    assert_false(in_flight_is_finished(gate));
    done[7] = UINT64_MAX;
    assert_true(in_flight_is_finished(gate));
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

/* Which need not be current when it begins. */
static void a_capture_ends_with_the_context_of_its_stream(void **state)
{
    (void)state;
    cuCtxSetCurrent(CONTEXT(2));
    cuStreamBeginCapture_v2(STREAM(3), CU_STREAM_CAPTURE_MODE_RELAXED);
    agent_leave_context(CONTEXT(2));
    assert_int_equal(gate->captures, 1);
    agent_leave_context(STREAMS_CONTEXT);
    assert_int_equal(gate->captures, 0);
    capturing[3] = false;
}

static atomic_uint submitted;
static void *submit_ten(void *unused)
{
    (void)unused;
    is_watched = true;
    cuCtxSetCurrent(CONTEXT(1));
    for (submitted = 0; submitted < 10; submitted++)
        launch_on(STREAM(6));
    return NULL;
}

static unsigned submitted_wanted, looks_wanted;

static bool so_many_are_submitted(void)
{
    return submitted >= submitted_wanted;
}

static bool is_held_and_has_looked(void)
{
    return gate->held && watched_looks >= looks_wanted;
}

/* The thread waits behind so many calls, and has looked again since without going on. A call that is not held is so for a moment too:
 * so first all that may have gone on. */
static void assert_held_behind(unsigned count)
{
    submitted_wanted = count;
    assert_true(comes_true(so_many_are_submitted));
    looks_wanted = watched_looks + 10; /* for its call it looks a few times */
    assert_true(comes_true(is_held_and_has_looked));
    assert_int_equal(submitted, count);
}

static void a_paced_stream_has_two_pieces_before_it(void **state)
{
    pthread_t thread;
    (void)state;
    work_stays();
    stop_the_clock();
    gate_open(gate, GATE_PACED);
    pthread_create(&thread, NULL, submit_ten, NULL);
    assert_held_behind(2);
    stands_ns += 40 * MS;
    done[6]++;
    /* A piece takes 40 ms: the next is not before it is time. */
    assert_held_behind(2);
    stands_ns += 30 * MS;
    assert_held_behind(2);
    /* As the second is expected to end, so that the GPU goes on at once. It does not: then nor will the
     * third. */
    stands_ns += 10 * MS;
    assert_held_behind(3);
    done[6] = UINT64_MAX;
    pthread_join(thread, NULL);
    let_the_clock_run();
}

static void end_nothing(void)
{
}

static unsigned naps_end_pieces_of;

/* Whenever a thread waits for room a piece ends, but never the last. */
static void end_a_piece(void)
{
    unsigned at = naps_end_pieces_of;
    if (done[at] + 1 < put[at])
        done[at]++;
}

static void naps_end_pieces(CUstream stream)
{
    naps_end_pieces_of = number(stream);
    while_napping = end_a_piece;
}

/* What the stream may have before it once the thread was held, did something else, and found the stream without work. */
static uint64_t ahead_after_a_gap(bool is_closed_meanwhile)
{
    atomic_store(&gate->ahead_ns, 0);
    work_stays();
    stop_the_clock();
    gate_open(gate, GATE_PACED);
    naps_end_pieces(STREAM(30));
    do
        launch_on(STREAM(30));
    while (gate_self.entry->held_at != gate->closings + 1);
    while_napping = NULL;
    done[30] = UINT64_MAX;
    if (is_closed_meanwhile) {
        close_gate();
        gate_open(gate, GATE_PACED);
    }
    do
        launch_on(STREAM(30));
    while (gate_self.entry->held_at);
    let_the_clock_run();
    assert_true(in_flight_is_finished(gate));
    return atomic_load(&gate->ahead_ns);
}

static void a_thread_that_is_held_and_late_may_run_ahead_further(void **state)
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
    stop_the_clock();
    while_napping = end_nothing;
    gate_open(gate, GATE_PACED);
    uint64_t from_ns = stands_ns;
    for (unsigned i = 0; i < 200; i++)
        launch_on(STREAM(7));
    assert_true(stands_ns - from_ns < 10000 * MS);
    while_napping = NULL;
    let_the_clock_run();
    assert_false(in_flight_is_finished(gate));
    done[7] = UINT64_MAX;
    assert_true(in_flight_is_finished(gate));
}

/* --- What is measured ------------------------------------------------------------------------------ */

static float piece_ms = 0.25f;
static bool begins_at_once;
static unsigned calls_in_burst; /* 0: all are alike */
static float first_ms = 0.001f; /* the first of so many takes this: next to nothing */
static float last_ms;           /* the last of so many takes this; 0: it is like the others */
static float copy_ms;           /* the one of so many at that place takes this, a copy; 0: there is none */
static unsigned copy_at;

static float takes_ms(uint64_t call)
{
    if (calls_in_burst && copy_ms > 0 && call % calls_in_burst == copy_at)
        return copy_ms;
    if (calls_in_burst && call % calls_in_burst == 0)
        return first_ms;
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

static CUresult copy_there(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    (void)to, (void)from, (void)bytes;
    put[number(stream)]++;
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
    install(CUDA_ID_cuMemcpyHtoDAsync_v2, (void *)copy_there);
    install(CUDA_ID_cuLaunchHostFunc, (void *)launch_host_function);
    install(CUDA_ID_cuLaunchHostFunc_v2, (void *)launch_host_function);
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
    piece_ms = 0.25f;
    first_ms = 0.001f;
    last_ms = copy_ms = 0;
    calls_in_burst = 0;
    way_ns = reach_ns = 0;
    begins_at_once = ends_meanwhile = false;
    gate->measures = gate->has_company = false;
    gate->parallel = 0;
    return 0;
}

/* What is told of so many calls, so far apart, once all have been done. */
static struct in_flight_done told_of_calls(CUstream stream, unsigned count, uint64_t apart_ns)
{
    for (unsigned i = 0; i < count; i++) {
        stands_ns += apart_ns;
        launch_on(stream);
    }
    assert_true(in_flight_is_finished(gate));
    struct in_flight_done told = in_flight_take_done(gate);
    assert_int_equal(told.calls, count);
    return told;
}

static void calls_on_an_idle_stream_are_measured_one_by_one(void **state)
{
    (void)state;
    struct in_flight_done told = told_of_calls(STREAM(9), 400, 0);
    assert_int_equal(told.streams, 1);
    assert_in_range(told.ns, 400 * MS / 4 - MS, 400 * MS / 4 + MS);
    told = in_flight_take_done(gate);
    assert_int_equal(told.calls, 0);
    assert_int_equal(told.ns, 0);
}

/* Marks also keep what is before the GPU within bounds. */
static void after_the_driver_has_refused_an_event_it_is_asked_for_others_later(void **state)
{
    (void)state;
    for (unsigned times = 1; times <= 3; times++) {
        refusals = times;
        told_of_calls(STREAM(58), 100, MS);
        assert_int_equal(refusals, 0);
        assert_true(told_of_calls(STREAM(58), 100, MS).measured > 10);
    }
}

/* But less and less often: it may refuse them all. */
static void a_driver_that_refuses_all_events_is_seldom_asked(void **state)
{
    (void)state;
    refusals = 1000;
    told_of_calls(STREAM(59), 1000, MS);
    assert_in_range(refusals, 1000 - 20, 1000 - 5);
    refusals = 0;
}

/* Short ones, of which many would make half a millisecond of work. */
static void of_calls_that_come_seldom_each_report_tells_what_some_take(void **state)
{
    (void)state;
    piece_ms = 0.05f;
    for (unsigned report = 0; report < 50; report++)
        assert_true(told_of_calls(STREAM(28), 5, 4 * MS).measured > 0);
}

/* Of calls that come one after another some are measured, and all if the lease is to find out what they take. */
static void calls_are_measured_more_often_where_it_is_found_out_what_they_take(void **state)
{
    (void)state;
    unsigned told[2];
    piece_ms = 0.1f;
    for (unsigned measures = 0; measures < 2; measures++) {
        gate->measures = measures;
        told[measures] = 200 - (unsigned)told_of_calls(STREAM(27), 200, MS / 10).unmeasured;
    }
    assert_in_range(told[0], 1, 150);
    assert_int_equal(told[1], 200);
}

/* A guest's calls wait for those of others, and in its turn they do not: another lease, or the same one with other neighbours. */
static void calls_that_are_not_measured_are_not_taken_to_be_like_those_of_before(void **state)
{
    const struct wire_grant later[] = {{.lease = 10, .flags = WIRE_LEASE_COMPANY}, {.lease = 9}};
    (void)state;
    for (unsigned k = 0; k < 2; k++) {
        agent.held = false;
        agent.lease = 0;
        agent_grant(gate, &(struct wire_grant){.lease = 9, .flags = WIRE_LEASE_COMPANY});
        piece_ms = 1;
        assert_true(told_of_calls(STREAM(25), 100, 2 * MS).ns >= 100 * MS);
        agent_grant(gate, &later[k]);
        piece_ms = 0.025f;
        struct in_flight_done told = told_of_calls(STREAM(25), 400, MS / 10);
        assert_true(told.unmeasured > 100);
        assert_in_range(told.ns, 9 * MS, 12 * MS);
    }
    agent.held = false;
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
    done[26] = UINT64_MAX;
    assert_in_range(told_ns, took_ns * 0.8, took_ns * 1.2);
}

/* The next call of a burst. */
static void make_call(CUstream stream)
{
    if (copy_ms > 0 && put[number(stream)] % calls_in_burst == copy_at)
        cuMemcpyHtoDAsync_v2(0, "", 1, stream);
    else
        launch_on(stream);
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
            make_call(stream);
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

static void call_and_wait(CUstream stream)
{
    make_call(stream);
    cuStreamSynchronize(stream);
}

static void launch_and_ask(CUstream stream)
{
    launch_on(stream);
    assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    done[number(stream)] = put[number(stream)];
    assert_int_equal(cuStreamQuery(stream), CUDA_SUCCESS);
}

/* The first of twelve is short: who measures parts of bursts measures it more or less often than the others. */
static void calls_that_differ_are_measured_as_often_as_they_come(void **state)
{
    (void)state;
    gate->has_company = true;
    static void (*const ends[])(CUstream) = {call_and_wait, launch_and_ask};
    for (unsigned i = 0; i < 2; i++) {
        unsigned in_part = 0;
        struct in_flight_done told = told_of_bursts(STREAM(20 + i), 12, ends[i], &in_part);
        assert_int_equal(told.calls, 380 * 12);
        assert_int_equal(in_part, 0);
        assert_in_range(told.unmeasured, 380, 379 * 12);
        assert_in_range(told.ns, 380 * 549 * MS / 1000, 380 * 553 * MS / 1000);
    }
}

/* The one that takes long may be seldom, and what is measured without company is charged. */
static void calls_that_differ_are_all_measured_where_they_have_no_company(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        unsigned in_part = 0;
        first_ms = 0.01f;
        gate->has_company = i == 0;
        struct in_flight_done told = told_of_bursts(STREAM(54 + i), 24, call_and_wait, &in_part);
        assert_int_equal(told.unmeasured > 380, i == 0);
    }
}

/* One in five takes long. */
static void call_of_some_length_and_wait(CUstream stream)
{
    last_ms = put[number(stream)] / calls_in_burst % 5 == 0 ? 4 : 0.02f;
    call_and_wait(stream);
}

/* What the last few took says nothing of the next one; and a mark for each costs little, as they are long on average. */
static void single_calls_that_differ_are_all_measured_where_they_are_long_on_average(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        unsigned in_part = 0;
        copy_ms = 0.004f;
        copy_at = 0;
        gate->has_company = i == 0;
        struct in_flight_done told =
            told_of_bursts(STREAM(56 + i), 2, call_of_some_length_and_wait, &in_part);
        copy_ms = 0;
        assert_int_equal(told.calls, 380);
        assert_in_range(told.unmeasured, 0, 4);
        assert_in_range(told.ns, 380 * 796 * MS / 1000, 380 * 836 * MS / 1000);
    }
}

static void copy_and_wait(CUstream stream)
{
    (void)stream;
    cuMemcpyDtoH_v2(NULL, 0, 4);
}

/* Whether waits add marks to bursts in the legacy stream. */
static bool has_marks_before_waits(void)
{
    unsigned marks = 0, at = number(CU_STREAM_LEGACY);
    piece_ms = 0.05f;
    done[at] = UINT64_MAX;
    for (unsigned i = 0; i < 4; i++) /* until it is known about how long one takes */
        launch_on(CU_STREAM_LEGACY);
    in_flight_is_finished(gate);
    done[at] = put[at];
    calls_in_burst = 12;
    for (unsigned burst = 0; burst < 400; burst++) {
        stands_ns += MS;
        for (unsigned i = 0; i < calls_in_burst; i++)
            launch_on(CU_STREAM_LEGACY);
        legacy_records = 0;
        cuStreamSynchronize(CU_STREAM_LEGACY);
        marks += legacy_records;
        done[at] = put[at];
        in_flight_is_finished(gate);
        in_flight_take_done(gate);
    }
    done[at] = UINT64_MAX;
    return marks > 0;
}

static void *leave_a_launch_open(void *unused)
{
    (void)unused;
    cuCtxSetCurrent(CONTEXT(1));
    launch_on(CU_STREAM_LEGACY);
    return NULL;
}

/* Other threads' work in that stream is before a mark there in any case. */
static void work_of_other_threads_in_the_legacy_stream_keeps_no_mark_out_of_it(void **state)
{
    pthread_t thread;
    (void)state;
    pthread_create(&thread, NULL, leave_a_launch_open, NULL);
    pthread_join(thread, NULL);
    assert_true(has_marks_before_waits());
}

/* It would wait for that work, and what other streams get from then on for it. That work may be waiting for this thread. */
static void beside_other_work_no_wait_puts_a_mark_into_the_legacy_stream(void **state)
{
    CUgraph graph;
    (void)state;
    assert_true(has_marks_before_waits());
    put[21] = done[21] = 0;
    launch_on(STREAM(21));
    assert_false(has_marks_before_waits());
    done[number(CU_STREAM_LEGACY)] = put[number(CU_STREAM_LEGACY)];
    launch_on(CU_STREAM_LEGACY);
    legacy_records = 0;
    cuStreamBeginCapture_v2(STREAM(11), CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(legacy_records, 0);
    cuStreamEndCapture(STREAM(11), &graph);
    done[21] = done[number(CU_STREAM_LEGACY)] = UINT64_MAX;
    assert_true(in_flight_is_finished(gate));
    assert_true(has_marks_before_waits());
    cuLaunchHostFunc(STREAM(22), NULL, NULL);
    assert_false(has_marks_before_waits());
}

/* It takes no GPU time from others, and what is measured of the calls before it ends before it. */
static void a_copy_that_is_waited_for_is_not_one_of_the_calls(void **state)
{
    (void)state;
    unsigned in_part = 0;
    last_ms = 5;
    struct in_flight_done told = told_of_bursts(CU_STREAM_LEGACY, 12, copy_and_wait, &in_part);
    assert_int_equal(told.calls, 380 * 11);
    assert_int_equal(in_part, 0);
    assert_in_range(told.ns, 380 * 499 * MS / 1000, 380 * 503 * MS / 1000);
}

/* Nor does one that is not waited for, wherever it stands: the other calls of its burst are measured without it. */
static void a_copy_to_the_gpu_is_not_one_of_the_calls(void **state)
{
    (void)state;
    static const unsigned places[] = {0, 5, 11};
    first_ms = 0.05f;
    for (unsigned i = 0; i < 3; i++) {
        unsigned in_part = 0;
        copy_ms = 5;
        copy_at = places[i];
        struct in_flight_done told = told_of_bursts(STREAM(50 + i), 12, call_and_wait, &in_part);
        copy_ms = 0;
        assert_int_equal(told.calls, 380 * 11);
        assert_int_equal(in_part, 0);
        assert_in_range(told.ns, 380 * 549 * MS / 1000, 380 * 551 * MS / 1000);
    }
}

/* Work that is bounded and waited for like any other. */
static void copies_to_the_gpu_are_before_it_like_other_calls(void **state)
{
    (void)state;
    let_the_clock_run();
    work_stays();
    for (unsigned i = 0; i < 3; i++)
        cuMemcpyHtoDAsync_v2(0, "", 1, STREAM(53));
    assert_false(in_flight_is_finished(gate));
    uint32_t computing;
    assert_int_equal(in_flight_streams(gate, UINT32_MAX, &computing), 1);
    assert_int_equal(computing, 0);
    launch_on(STREAM(53));
    assert_int_equal(in_flight_streams(gate, UINT32_MAX, &computing), 1);
    assert_int_equal(computing, 1);
    done[53] = put[53];
    assert_true(in_flight_is_finished(gate));
    assert_int_equal(in_flight_take_done(gate).calls, 1);
}

/* --- Overlaps -------------------------------------------------------------------------------------- */

/* The stream has no work, and it is known about how long a call takes. */
static void begin_with(CUstream stream)
{
    for (unsigned i = 0; i < 4; i++)
        launch_on(stream);
    assert_true(in_flight_is_finished(gate));
    in_flight_take_done(gate);
    put[number(stream)] = done[number(stream)] = 0;
}

/* Bursts of six calls, each one after the last has been waited for, with `others` other calls behind the first of them. */
static struct in_flight_done told_of_overlaps(CUstream stream, unsigned others)
{
    struct in_flight_done all = {0};
    unsigned at = number(stream);
    begin_with(stream);
    for (unsigned burst = 0; burst < 200; burst++) {
        stands_ns += MS;
        for (unsigned i = 0; i < 6; i++)
            if (i <= others)
                launch_on(stream);
            else
                launch_overlapping(stream);
        cuStreamSynchronize(stream);
        assert_true(in_flight_is_finished(gate));
        struct in_flight_done told = in_flight_take_done(gate);
        all.calls += told.calls;
        all.ns += told.ns;
        all.unmeasured += told.unmeasured;
    }
    done[at] = UINT64_MAX;
    return all;
}

/* A mark between two kernels that overlap would have the second wait for the first. What they take is measured all the same. */
static void no_mark_ends_an_overlap(void **state)
{
    (void)state;
    ended_overlaps = 0;
    for (unsigned others = 0; others < 4; others++) {
        struct in_flight_done told = told_of_overlaps(STREAM(35 + others), others);
        assert_int_equal(told.calls, 200 * 6);
        assert_in_range(told.unmeasured, 0, 100 * 6);
        assert_in_range(told.ns, 200 * 6 * MS / 5, 200 * 6 * MS * 3 / 10);
    }
    assert_in_range(ended_overlaps, 0, 4); /* before it is known that a stream has such launches */
}

/* Where the program does not wait: marks stand before the other calls. */
static void nor_one_where_the_program_does_not_wait(void **state)
{
    (void)state;
    unsigned at = number(STREAM(39));
    begin_with(STREAM(39));
    launch_overlapping(STREAM(39));
    ended_overlaps = 0;
    gate->ahead_least_ns = 100 * MS;
    for (unsigned i = 0; i < 400; i++) {
        stands_ns += MS / 4;
        launch_overlapping(STREAM(39));
        done[at] = put[at] - 1;
        if (i % 20 == 10)
            launch_on(STREAM(39));
    }
    assert_int_equal(ended_overlaps, 0);
    gate->ahead_least_ns = 0;
    done[at] = UINT64_MAX;
    assert_true(in_flight_is_finished(gate));
    assert_true(in_flight_take_done(gate).measured > 0);
}

/* Without any mark, what is before the GPU would not be bounded. */
static void a_chain_of_overlaps_is_bounded(void **state)
{
    (void)state;
    piece_ms = 1;
    begin_with(STREAM(61));
    launch_overlapping(STREAM(61));
    ended_overlaps = 0;
    naps_end_pieces(STREAM(61));
    for (unsigned i = 0; i < 200; i++) {
        launch_overlapping(STREAM(61));
        assert_true(put[61] - done[61] <= 60);
    }
    while_napping = NULL;
    assert_in_range(ended_overlaps, 1, 200 / 5);
    done[61] = UINT64_MAX;
    assert_true(in_flight_is_finished(gate));
}

/* --- Bursts that are hardly longer than a mark ------------------------------------------------------ */

static void marks_take_no_longer_than_what_they_measure(void **state)
{
    (void)state;
    unsigned measured = 0;
    struct in_flight_done told = {0};
    piece_ms = 0.002f;
    for (unsigned burst = 0; burst < 1000; burst++) {
        stands_ns += 5 * MS; /* calls are rare */
        for (unsigned i = 0; i < 4; i++)
            launch_on(STREAM(60));
        cuStreamSynchronize(STREAM(60));
        assert_true(in_flight_is_finished(gate));
        told = in_flight_take_done(gate);
        measured += told.measured > 0;
        assert_int_equal(told.calls, 4);
    }
    assert_in_range(measured, 1000 * 8 / 50 / 4, 1000 * 8 / 50 * 2);
    assert_in_range(told.ns, 7000, 9000);
}

/* --- A move that may come --------------------------------------------------------------------------- */

/* Where no share counts either: the move waits for what is before the GPU. */
static void what_is_before_the_gpu_is_bounded_where_memory_may_move(void **state)
{
    static const struct agent_mover mover;
    (void)state;
    piece_ms = 100;
    put[62] = done[62] = 0;
    agent_set_mover(&mover);
    agent_grant(gate, &(struct wire_grant){.flags = WIRE_LEASE_FREE});
    naps_end_pieces(STREAM(62));
    for (unsigned i = 0; i < 60; i++) {
        launch_on(STREAM(62));
        assert_true(put[62] - done[62] <= 8);
    }
    while_napping = NULL;
    done[62] = UINT64_MAX;
    assert_true(in_flight_is_finished(gate));
    agent_set_mover(NULL);
    agent_grant(gate, &(struct wire_grant){.flags = WIRE_LEASE_FREE});
    assert_int_equal(gate->word, GATE_FREE);
    agent.held = false;
}

/* Nobody waits for one within the GPU. */
static void a_copy_that_may_be_within_the_gpu_is_a_call(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++)
        cuMemcpy(1, 2, 4);
    assert_true(in_flight_is_finished(gate));
    assert_int_equal(in_flight_take_done(gate).calls, 3);
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
    static unsigned count;
    if (count++ % 2)
        cuLaunchHostFunc_v2(stream, NULL, NULL, 0);
    else
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

/* The first kernels of a graph may be done before the call returns. */
static void a_graph_is_counted_nearly_from_the_call_on(void **state)
{
    (void)state;
    begins_at_once = true;
    way_ns = MS / 16;
    for (unsigned i = 0; i < 20; i++)
        cuGraphLaunch(NULL, STREAM(31));
    way_ns = 0;
    assert_true(in_flight_is_finished(gate));
    struct in_flight_done told = in_flight_take_done(gate);
    begins_at_once = false;
    assert_int_equal(told.calls, 20);
    assert_in_range(told.ns, 20 * (MS / 4 - MS / 32), 20 * MS / 4);
}

/* How many of the calls that are told of now were measured. */
static uint64_t measured_now(void)
{
    struct in_flight_done told = in_flight_take_done(gate);
    return told.calls - told.unmeasured;
}

/* A call goes to a stream whose last call, which no mark is behind, is being done; the mark before it is reached while it is on its
 * way. Returns how many were measured, of it and that one. */
static uint64_t measured_behind_what_ends_meanwhile(CUstream stream)
{
    unsigned at = number(stream);
    done[at] = put[at] = 0;
    for (unsigned i = 0; i < 8; i++) {
        done[at] = put[at];
        launch_on(stream);
    }
    done[at] = put[at];
    while (gate_self.entry->covered != gate_self.entry->submitted)
        launch_on(stream);
    done[at] = put[at];
    in_flight_take_done(gate);
    gate_self.entry->left = 2;
    launch_on(stream); /* no mark is behind it */
    gate_self.entry->left = 1;
    ends_meanwhile = true;
    launch_on(stream);
    ends_meanwhile = false;
    done[at] = UINT64_MAX;
    return measured_now();
}

/* Nobody knows for how long the GPU waited for it, nor that it did not. */
static void a_call_that_the_gpu_may_have_waited_for_is_not_measured(void **state)
{
    (void)state;
    assert_int_equal(measured_behind_what_ends_meanwhile(STREAM(40)), 0);
}

/* The last mark is reached while the call is on its way: what is between is a gap, unless the way is next to nothing. */
static void a_short_gap_counts_where_calls_are_as_short(void **state)
{
    static const uint64_t ways_ns[] = {100, 4000};
    (void)state;
    piece_ms = 0.01f;
    for (unsigned i = 0; i < 2; i++) {
        CUstream stream = STREAM(41 + i);
        unsigned at = number(stream);
        for (unsigned warm = 0; warm < 8; warm++)
            launch_on(stream); /* until it is known about how long one takes */
        in_flight_take_done(gate);
        put[at] = done[at] = 0;
        gate_self.entry->left = 1;
        launch_on(stream);
        in_flight_take_done(gate);
        gate_self.entry->left = 1;
        ends_meanwhile = true;
        way_ns = ways_ns[i];
        launch_on(stream);
        way_ns = 0;
        ends_meanwhile = false;
        done[at] = UINT64_MAX;
        assert_int_equal(measured_now(), i == 0 ? 2 : 1);
    }
}

/* The GPU takes some microseconds to reach an event, also where it has nothing else to do. */
static void a_call_that_comes_to_an_idle_stream_is_measured_though_events_take_time(void **state)
{
    (void)state;
    gate->measures = true;
    reach_ns = 2000;
    way_ns = 3000;
    for (unsigned i = 0; i < 20; i++) {
        stands_ns += MS;
        launch_on(STREAM(46));
    }
    stands_ns += MS;
    assert_int_equal(measured_now(), 20);
}

/* Bursts of short calls, of which the GPU does one as soon as it comes: few of them are measured. */
static struct in_flight_done told_of_quick_bursts(CUstream stream, unsigned bursts)
{
    calls_in_burst = 30;
    for (unsigned burst = 0; burst < bursts; burst++) {
        stands_ns += MS;
        for (unsigned i = 0; i < calls_in_burst; i++)
            launch_on(stream);
        cuStreamSynchronize(stream);
        done[number(stream)] = UINT64_MAX;
    }
    assert_true(in_flight_is_finished(gate));
    return in_flight_take_done(gate);
}

static void assert_quick_bursts_take(CUstream stream, uint64_t each_ns)
{
    struct in_flight_done told = told_of_quick_bursts(stream, 400);
    assert_int_equal(told.calls, 400 * 30);
    assert_true(told.unmeasured > told.calls / 2);
    assert_in_range(told.ns, 400 * each_ns * 97 / 100, 400 * each_ns * 103 / 100);
}

/* Beside another process it waits for a slice, and those behind it do not. */
static void the_first_call_of_a_burst_stands_for_no_other(void **state)
{
    (void)state;
    piece_ms = 0.005f;
    first_ms = 1;
    told_of_quick_bursts(STREAM(43), 40);
    assert_quick_bursts_take(STREAM(43), 1145000);
}

/* The GPU turns to the process once, when its turn begins. */
static void the_first_call_of_a_turn_stands_for_no_other(void **state)
{
    (void)state;
    piece_ms = first_ms = 0.005f;
    told_of_quick_bursts(STREAM(44), 40);
    gate_close(gate);
    gate_open(gate, GATE_PACED);
    in_flight_forget_late(gate);
    gate->measures = true;
    first_ms = 1;
    told_of_quick_bursts(STREAM(44), 1);
    gate->measures = false;
    first_ms = 0.005f;
    assert_quick_bursts_take(STREAM(44), 150000);
}

/* It takes half as long to hand over a call as to do it: marks that are too far apart are all reached before the next one. */
static void a_burst_is_measured_though_the_gpu_is_hardly_behind(void **state)
{
    uint64_t measured = 0, all = 0;
    (void)state;
    piece_ms = 0.01f;
    gate->measures = true;
    calls_in_burst = 0;
    for (unsigned burst = 0; burst < 20; burst++) {
        stands_ns += MS;
        uint64_t began_ns = stands_ns;
        put[45] = done[45] = 0;
        for (unsigned i = 0; i < 100; i++) {
            stands_ns += MS / 200;
            uint64_t reached = (stands_ns - began_ns) / (MS / 100);
            done[45] = reached < put[45] ? reached : put[45];
            launch_on(STREAM(45));
        }
        cuStreamSynchronize(STREAM(45));
        struct in_flight_done told = in_flight_take_done(gate);
        all += burst < 4 ? 0 : told.calls;
        measured += burst < 4 ? 0 : told.calls - told.unmeasured;
    }
    done[45] = UINT64_MAX;
    assert_int_equal(all, 1600);
    assert_true(measured > all / 2);
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

/* When each call on two streams ends, by the GPU's clock. A mark in a stream that has nothing to do is reached at once, or as
 * late as the GPU comes to the call behind it. */
#define BESIDE 50u
#define BESIDE_CALLS 64u
static uint64_t ends_ns[2][100 * BESIDE_CALLS], waits_ns[2][100 * BESIDE_CALLS];

static uint64_t reached_ns(CUevent event)
{
    const struct fake_event *fake = &events[(uintptr_t)event];
    unsigned which = number(fake->stream) - BESIDE;
    uint64_t ended_ns = which < 2 && fake->at ? ends_ns[which][fake->at] : 0;
    uint64_t wait_ns = which < 2 ? waits_ns[which][fake->at] : 0;
    return ended_ns > fake->recorded_ns ? ended_ns : fake->recorded_ns + wait_ns;
}

static double gpu_rate = 1; /* of its clock, to the host's */

static CUresult elapsed_on_any_stream(float *ms, CUevent from, CUevent to)
{
    *ms = (float)((double)(int64_t)(reached_ns(to) - reached_ns(from)) / (double)MS * gpu_rate);
    return CUDA_SUCCESS;
}

/* Each ms both streams get a call of 250 us, the second one by `later_ns` later than the first. */
static uint64_t told_of_two_streams(uint64_t later_ns)
{
    in_flight_take_done(gate);
    in_flight_forget_late(gate);
    for (unsigned i = 0; i < BESIDE_CALLS; i++) {
        stands_ns += MS - later_ns;
        for (unsigned k = 0; k < 2; k++) {
            ends_ns[k][put[BESIDE + k] + 1] = stands_ns + MS / 4;
            launch_on(STREAM(BESIDE + k));
            stands_ns += k == 0 ? later_ns : 0;
        }
    }
    stands_ns += MS;
    struct in_flight_done told = in_flight_take_done(gate);
    assert_int_equal(told.calls, 2 * BESIDE_CALLS);
    return told.ns;
}

static void what_two_streams_do_at_the_same_time_is_told_once(void **state)
{
    const uint64_t once_ns = BESIDE_CALLS * MS / 4;
    (void)state;
    install(CUDA_ID_cuEventElapsedTime, (void *)elapsed_on_any_stream);
    gate->times = (struct in_flight_times){0}; /* the clock has been set back between tests */
    gate->measures = true;
    put[BESIDE] = put[BESIDE + 1] = 0;
    told_of_two_streams(0); /* until it is known that two have work */
    for (unsigned round = 0; round < 30; round++) {
        assert_in_range(told_of_two_streams(0), once_ns, once_ns * 104 / 100);
        assert_in_range(told_of_two_streams(MS / 8), once_ns * 3 / 2 * 96 / 100, once_ns * 3 / 2 * 104 / 100);
        assert_in_range(told_of_two_streams(MS / 2), 2 * once_ns * 96 / 100, 2 * once_ns);
    }
}

static void all_streams_are_measured_in_the_slices_of_a_mark(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (unsigned i = 0; i < 10000; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        uint32_t chance = 1 + (uint32_t)(random >> 40) % IN_FLIGHT_CHANCES;
        uint64_t now_ns = 1000 * MS + (random >> 30);
        gate->shared_chance = chance;
        gate->least_chance = 0;
        uint64_t shared_ns = in_flight_shared_ms(gate, now_ns) * MS;
        bool was_chosen = in_flight_slice(now_ns - IN_FLIGHT_SLICE_FIRST_NS) < chance;
        for (uint64_t ns = 0; ns < shared_ns; ns += MS)
            assert_true(in_flight_slice(now_ns + ns) < chance);
        assert_true(!shared_ns || was_chosen);
        assert_true(!was_chosen || shared_ns >= (IN_FLIGHT_SLICES_AHEAD - 1) * IN_FLIGHT_SLICE_NS - MS ||
                    in_flight_slice(now_ns + shared_ns + MS) >= chance);
    }
    gate->shared_chance = IN_FLIGHT_CHANCES;
}

/* Each ms a call of 250 us that waits for others before, for some eighths of a ms. Tells for how long in all. */
static uint64_t call_in_company(bool marks_wait)
{
    uint64_t all_ns = 0;
    for (unsigned i = 0; i < BESIDE_CALLS; i++) {
        uint64_t call = put[BESIDE], wait_ns = i * 5 % 8 * MS / 16;
        stands_ns += MS;
        waits_ns[0][call] = marks_wait ? wait_ns : 0;
        ends_ns[0][call + 1] = stands_ns + wait_ns + MS / 4;
        all_ns += wait_ns;
        launch_on(STREAM(BESIDE));
    }
    stands_ns += MS;
    return all_ns;
}

/* Whether or not an event waits for the GPU as calls do, and at whatever rate the GPU's clock runs. */
static void what_calls_wait_for_others_is_told(void **state)
{
    const uint64_t own_ns = BESIDE_CALLS * MS / 4, error_ns = BESIDE_CALLS * MS / 32;
    const double rates[] = {1, 1, 1.00005, 0.99995};
    (void)state;
    install(CUDA_ID_cuEventElapsedTime, (void *)elapsed_on_any_stream);
    gate->measures = gate->has_company = true;
    for (unsigned marks_wait = 0; marks_wait < 4; marks_wait++) {
        gpu_rate = rates[marks_wait];
        gate->times = (struct in_flight_times){0};
        in_flight_forget_late(gate);
        put[BESIDE] = 0;
        call_in_company(marks_wait); /* until the two clocks are known */
        in_flight_take_done(gate);
        for (unsigned round = 0; round < 70; round++) {
            uint64_t waited_ns = call_in_company(marks_wait),
                     begun_ns = marks_wait ? own_ns : own_ns + waited_ns;
            struct in_flight_done told = in_flight_take_done(gate);
            assert_in_range(told.ns, own_ns + waited_ns - error_ns, own_ns + waited_ns + error_ns);
            assert_in_range(told.begun_ns, begun_ns - error_ns, begun_ns + error_ns);
            assert_in_range(told.least_ns, MS / 4 - 1000, MS / 4 + 1000);
        }
    }
    memset(waits_ns, 0, sizeof(waits_ns));
    gpu_rate = 1;
}

/* Calls of 20 us each half a ms, all of which wait for as long, as those of a program do that is always as late for its slice. The
 * thread waits for them, and finds out soon. */
static void calls_that_wait_alike(uint64_t wait_ns)
{
    for (unsigned i = 0; i < BESIDE_CALLS; i++) {
        uint64_t call = put[BESIDE];
        waits_ns[0][call] = wait_ns;
        ends_ns[0][call + 1] = stands_ns + wait_ns + MS / 50;
        launch_on(STREAM(BESIDE));
        stands_ns = ends_ns[0][call + 1] + MS / 50;
        cuStreamSynchronize(STREAM(BESIDE));
        stands_ns += MS / 2 - MS / 25 - wait_ns;
    }
}

static void what_calls_always_wait_is_told(void **state)
{
    const uint64_t wait_ns = MS / 5, all_ns = wait_ns + MS / 50, error_ns = MS / 25;
    const double rates[] = {1, 1.00005, 0.99995};
    (void)state;
    install(CUDA_ID_cuEventElapsedTime, (void *)elapsed_on_any_stream);
    gate->has_company = true;
    for (unsigned k = 0; k < 3; k++) {
        gpu_rate = rates[k];
        gate->times = (struct in_flight_times){0};
        in_flight_forget_late(gate);
        put[BESIDE] = 0;
        calls_that_wait_alike(0); /* until the two clocks are known */
        in_flight_take_done(gate);
        in_flight_forget_late(gate);
        calls_that_wait_alike(wait_ns);
        in_flight_take_done(gate); /* how they waited before counts at first */
        for (unsigned round = 0; round < 24; round++) {
            for (unsigned i = 0; i < 4; i++)
                calls_that_wait_alike(wait_ns);
            struct in_flight_done told = in_flight_take_done(gate);
            assert_in_range(told.ns, told.calls * (all_ns - error_ns), told.calls * (all_ns + error_ns));
            assert_true(told.unmeasured > told.calls / 2);
            assert_false(told.is_guess);
        }
    }
    memset(waits_ns, 0, sizeof(waits_ns));
    gpu_rate = 1;
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
    while (gate_self.entry->counts.told[IN_FLIGHT_WITHIN].ns < MS / 2)
        launch_on(STREAM(15));
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

static void finish_own(void)
{
    done[number(CU_STREAM_PER_THREAD)] = put[number(CU_STREAM_PER_THREAD)];
}

/* While the capture is open nobody could ask about it. */
static void a_capture_begins_when_that_is_done(void **state)
{
    CUgraph graph;
    (void)state;
    touched_while_capturing = 0;
    start_owner();
    stop_the_clock();
    while_napping = finish_own;
    assert_int_equal(cuStreamBeginCapture_v2(STREAM(11), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    while_napping = NULL;
    blocks_legacy = true;
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
    stop_the_clock();
    uint64_t from_ns = stands_ns;
    while_napping = end_nothing;
    assert_int_equal(cuStreamBeginCapture_v2(STREAM(11), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    while_napping = NULL;
    assert_in_range(stands_ns - from_ns, 1, 10 * MS);
    assert_false(in_flight_is_finished(gate));
    finish_own();
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

/* Launch until the next ones have nothing to do but to be counted. How long that takes follows from how long launches took
 * by the clock, so a moment without a CPU makes it take longer. */
static void launch_until_quick(CUstream stream)
{
    in_flight_forget_late(gate); /* each long one may have had a mark of its own */
    timed_for_many(stream);
    piece_ms = 0.001f;
    for (unsigned i = 0; i < 50 * MANY && !gate_self.entry->quick; i++)
        launch_on(stream);
    piece_ms = 0.25f;
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
    bool inside = comes_true(one_is_inside), busy = agent_look(gate, 0);
    atomic_store(&blocked, false);
    pthread_join(thread, NULL);
    assert_true(inside && busy);
    assert_true(in_flight_is_finished(gate));
    atomic_store(&gate->resting, false);
    assert_false(agent_look(gate, 0));
    atomic_store(&gate->resting, false);
}

static bool one_waits_at_the_gate(void)
{
    return gate->waiters == 1;
}

static void *launch_one(void *unused)
{
    (void)unused;
    cuCtxSetCurrent(CONTEXT(1));
    launch_on(STREAM(56));
    return NULL;
}

/* Else it would give a turn back that it needs as soon as others' bursts are over. */
static void a_process_held_still_with_work_at_the_gate_does_not_rest(void **state)
{
    pthread_t thread;
    (void)state;
    gate_open(gate, GATE_PACED);
    agent_count_from(gate, monotonic_ns());
    gate_close(gate);
    gate_drained(gate);
    assert_false(agent_look(gate, 0));
    assert_true(agent.measure.rests);
    pthread_create(&thread, NULL, launch_one, NULL);
    assert_true(comes_true(one_waits_at_the_gate));
    assert_false(agent_look(gate, 0));
    bool rests = agent.measure.rests;
    uint64_t next_ns = agent_next_look_ns(gate, true);
    gate_open(gate, GATE_PACED);
    pthread_join(thread, NULL);
    assert_false(rests);
    assert_true(next_ns >= MS / 2); /* nor does it look again and again */
    assert_true(in_flight_is_finished(gate));
}

static void a_gap_is_not_a_rest_before_it_is_as_long_as_one(void **state)
{
    (void)state;
    stop_the_clock();
    gate_open(gate, GATE_PACED);
    agent_count_from(gate, stands_ns);
    unsigned before = pokes;
    for (unsigned i = 0; i < 3; i++) {
        launch_on(STREAM(24));
        assert_false(agent_look(gate, 2 * MS));
        stands_ns += MS;
        assert_false(agent_look(gate, 2 * MS));
        assert_false(agent.measure.rests);
    }
    launch_on(STREAM(24));
    assert_int_equal(pokes, before);
    assert_false(agent_look(gate, 2 * MS));
    stands_ns += 2 * MS;
    assert_false(agent_look(gate, 2 * MS));
    assert_true(agent.measure.rests);
    launch_on(STREAM(24));
    assert_int_equal(pokes, before + 1);
    let_the_clock_run();
}

/* Two processes may wait for each other's kernels: what did not drain says nothing of how long pieces are, and patience
 * that grows with it would grow for ever. */
/* As of threads that take streams from a pool in turn. After this test no place is free. */
static void a_thread_with_more_streams_than_places_takes_those_of_streams_without_work(void **state)
{
    (void)state;
    for (unsigned i = 0; i < IN_FLIGHT_ENTRIES + 100; i++)
        launch_on(STREAM(STREAMS + i));
    work_stays();
    launch_on(STREAM(3 * IN_FLIGHT_ENTRIES + 5));
    assert_false(in_flight_is_finished(gate));
    done[5] = put[5];
    assert_true(in_flight_is_finished(gate));
    assert_true(gate->entry_count < IN_FLIGHT_ENTRIES); /* the other places are for other threads */
}

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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, open_gate)
#define MEASURES(name) cmocka_unit_test_setup_teardown(name, begin_measuring, end_measuring)
    const struct CMUnitTest tests[] = {
        TEST(unmarked_work_is_found_by_asking_its_stream),
        TEST(streams_that_come_and_go_take_no_more_places_than_there_are_at_once),
        TEST(a_default_stream_belongs_to_the_current_context),
        TEST(a_mark_is_an_event_of_its_streams_context),
        TEST(a_destroyed_streams_work_is_waited_for),
        TEST(a_destroyed_contexts_work_is_not_asked_about),
        TEST(a_capture_ends_with_the_context_of_its_stream),
        TEST(a_paced_stream_has_two_pieces_before_it),
        TEST(a_thread_that_is_held_and_late_may_run_ahead_further),
        TEST(a_stream_that_does_not_move_is_not_waited_for_for_ever),
        MEASURES(calls_on_an_idle_stream_are_measured_one_by_one),
        MEASURES(after_the_driver_has_refused_an_event_it_is_asked_for_others_later),
        MEASURES(a_driver_that_refuses_all_events_is_seldom_asked),
        MEASURES(of_calls_that_come_seldom_each_report_tells_what_some_take),
        MEASURES(calls_that_are_not_measured_are_not_taken_to_be_like_those_of_before),
        MEASURES(calls_that_differ_are_measured_wherever_they_stand_in_a_burst),
        MEASURES(calls_that_differ_are_measured_as_often_as_they_come),
        MEASURES(calls_that_differ_are_all_measured_where_they_have_no_company),
        MEASURES(single_calls_that_differ_are_all_measured_where_they_are_long_on_average),
        MEASURES(work_of_other_threads_in_the_legacy_stream_keeps_no_mark_out_of_it),
        MEASURES(beside_other_work_no_wait_puts_a_mark_into_the_legacy_stream),
        MEASURES(a_copy_that_is_waited_for_is_not_one_of_the_calls),
        MEASURES(a_copy_to_the_gpu_is_not_one_of_the_calls),
        MEASURES(copies_to_the_gpu_are_before_it_like_other_calls),
        MEASURES(no_mark_ends_an_overlap),
        MEASURES(nor_one_where_the_program_does_not_wait),
        MEASURES(a_chain_of_overlaps_is_bounded),
        MEASURES(marks_take_no_longer_than_what_they_measure),
        MEASURES(a_copy_that_may_be_within_the_gpu_is_a_call),
        MEASURES(what_a_copy_left_under_way_is_waited_for),
        MEASURES(a_function_of_the_host_is_not_measured),
        MEASURES(calls_are_measured_more_often_where_it_is_found_out_what_they_take),
        MEASURES(the_way_to_an_idle_gpu_is_not_counted),
        MEASURES(a_graph_is_counted_nearly_from_the_call_on),
        MEASURES(a_call_that_the_gpu_may_have_waited_for_is_not_measured),
        MEASURES(a_short_gap_counts_where_calls_are_as_short),
        MEASURES(a_call_that_comes_to_an_idle_stream_is_measured_though_events_take_time),
        MEASURES(the_first_call_of_a_burst_stands_for_no_other),
        MEASURES(the_first_call_of_a_turn_stands_for_no_other),
        MEASURES(a_burst_is_measured_though_the_gpu_is_hardly_behind),
        MEASURES(streams_that_work_side_by_side_are_told_of),
        MEASURES(what_two_streams_do_at_the_same_time_is_told_once),
        MEASURES(all_streams_are_measured_in_the_slices_of_a_mark),
        MEASURES(what_calls_wait_for_others_is_told),
        MEASURES(what_calls_always_wait_is_told),
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
        MEASURES(a_process_held_still_with_work_at_the_gate_does_not_rest),
        MEASURES(a_gap_is_not_a_rest_before_it_is_as_long_as_one),
        MEASURES(what_did_not_drain_makes_nobody_more_patient),
        MEASURES(what_is_before_the_gpu_is_bounded_where_memory_may_move),
        TEST(a_thread_with_more_streams_than_places_takes_those_of_streams_without_work),
    };
    return cmocka_run_group_tests(tests, make_gate, NULL);
}
