/* What work may still use is not unmapped: at a free, at an eviction, when contexts end; on a driver whose cuMemUnmap and
 * cuMemFree wait for nothing, with captures open, and with work that only the program itself can end. */
#include <pthread.h>

#include "memory/engine/swap/swap_world.h"

#include "intercept/memory/engine/swap/extents/quiet.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

#define LARGE (8 * MIB)
#define SMALL 4096
#define HOST_PORTABLE 1u /* CU_MEMHOSTALLOC_PORTABLE */
#define HOST_MAPPED 2u   /* CU_MEMHOSTALLOC_DEVICEMAP */

/* The driver's own function, of those that are not hooked. */
#define DRIVER(symbol) ((__typeof__(&symbol))real_driver_function(CUDA_ID_##symbol))

/* Work that goes on until the host lets it end. */
static volatile uint32_t *flag;
static CUdeviceptr flag_address;

static void hold(CUstream stream)
{
    *flag = 0;
    assert_int_equal(cuStreamWaitValue32_v2(stream, flag_address, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
}

static void let_go(void)
{
    *flag = 1;
}

static CUstream make_stream(void)
{
    CUstream stream;
    assert_int_equal(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
}

/* Unmapping while the work of `watched` goes on is counted. */
static CUstream watched;
static unsigned early, unmapped;
static CUresult (*driver_unmap)(CUdeviceptr, size_t);

static CUresult watch_unmap(CUdeviceptr address, size_t bytes)
{
    early += watched && real(cuStreamQuery)(watched) == CUDA_ERROR_NOT_READY;
    unmapped++;
    return driver_unmap(address, bytes);
}

static void watch(CUstream stream)
{
    watched = stream;
    early = unmapped = 0;
}

/* Lets the work go on after a moment, from another thread. */
static void *let_go_soon(void *nothing)
{
    const struct timespec time = {.tv_nsec = 50000000};
    nanosleep(&time, NULL);
    let_go();
    return nothing;
}

static pthread_t start_letting_go(void)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, let_go_soon, NULL), 0);
    return thread;
}

static void a_free_unmaps_when_the_work_is_done(void **state)
{
    CUstream stream = make_stream();
    CUdeviceptr address = take(LARGE);
    hold(stream);
    watch(stream);
    pthread_t thread = start_letting_go();
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(unmapped > 0, 1);
    assert_int_equal(early, 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(card_free(), free_at_first);
}

static void a_free_waits_for_other_contexts_of_the_device(void **state)
{
    CUcontext other;
    CUdeviceptr address = take(LARGE);
    assert_int_equal(cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
    CUstream stream = make_stream();
    hold(stream);
    watch(stream);
    pthread_t thread = start_letting_go();
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(unmapped > 0, 1);
    assert_int_equal(early, 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(cuCtxDestroy_v2(other), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

/* A peer that has no access is not waited for; one that has is. */
static void a_free_waits_for_peers_with_access(void **state)
{
    CUcontext other;
    CUdeviceptr address = take(LARGE);
    assert_int_equal(cuCtxCreate_v2(&other, 0, 1), CUDA_SUCCESS);
    CUstream stream = make_stream();
    hold(stream);
    watch(stream);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(unmapped > 0 && early == unmapped, 1);
    let_go();
    assert_int_equal(cuCtxSetCurrent(other), CUDA_SUCCESS);
    assert_int_equal(cuCtxEnablePeerAccess(context, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    address = take(LARGE);
    hold(stream);
    watch(stream);
    pthread_t thread = start_letting_go();
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(unmapped > 0, 1);
    assert_int_equal(early, 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    swap_state()->open_to[0] = 0;
    assert_int_equal(cuCtxDestroy_v2(other), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

/* Where the driver's own free of so little waits for nothing, work that this very thread ends must not be waited for. */
static void a_small_free_waits_for_nothing_and_unmaps_nothing(void **state)
{
    enum { COUNT = 1200 }; /* of several shared extents */
    CUdeviceptr addresses[COUNT];
    CUstream stream = make_stream();
    for (unsigned i = 0; i < COUNT; i++)
        addresses[i] = take(SMALL);
    hold(stream);
    watch(stream);
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(cuMemFree_v2(addresses[i]), CUDA_SUCCESS);
    assert_int_equal(unmapped, 0);
    assert_true(swap_state()->empty_count > 1);
    assert_int_equal(swap_state()->dying_count, 0);
    let_go();
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
    CUdeviceptr all = take(CARD); /* for which they make room */
    assert_int_not_equal(all, 0);
    assert_int_equal(cuMemFree_v2(all), CUDA_SUCCESS);
}

static CUgraph graph;

static CUstream begin_capture(CUstreamCaptureMode mode)
{
    CUstream stream = make_stream();
    assert_int_equal(cuStreamBeginCapture_v2(stream, mode), CUDA_SUCCESS);
    return stream;
}

static void end_capture(CUstream stream)
{
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
}

static void a_free_beside_a_relaxed_capture_waits_and_harms_nothing(void **state)
{
    CUdeviceptr address = take(LARGE);
    CUstream stream = make_stream();
    hold(stream);
    watch(stream);
    CUstream captured = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    pthread_t thread = start_letting_go();
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(unmapped > 0, 1);
    assert_int_equal(early, 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    end_capture(captured);
}

/* The work is not done in time: the memory stays until somebody finds that it is. */
static void what_cannot_end_yet_ends_later(void **state)
{
    CUdeviceptr address = take(LARGE), again;
    CUstream stream = make_stream();
    hold(stream);
    watch(stream);
    CUstream captured = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(unmapped, 0);
    assert_int_equal(swap_state()->dying_count, 1);
    assert_int_equal(used(), 0);
    assert_int_equal(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
    end_capture(captured);
    let_go();
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
    assert_int_equal(swap_state()->dying_count, 0);
    assert_int_equal(unmapped > 0, 1);
    assert_int_equal(early, 0);
    again = take(LARGE);
    assert_int_equal(cuMemFree_v2(again), CUDA_SUCCESS);
    assert_int_equal(card_free(), free_at_first);
}

static void a_capture_that_forbids_a_free_still_does(void **state)
{
    CUdeviceptr address = take(LARGE);
    CUstream captured = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(cuMemFree_v2(address), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuStreamEndCapture(captured, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

static unsigned asked;
static CUresult (*driver_allocate)(CUdeviceptr *, size_t);

/* Requests that no card can grant, by which the driver is asked whether a capture forbids a call. */
static CUresult watch_allocate(CUdeviceptr *address, size_t bytes)
{
    asked += bytes > SIZE_MAX / 4;
    return driver_allocate(address, bytes);
}

static void *allocate_in_another_thread(void *address)
{
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    *(CUdeviceptr *)address = take(LARGE);
    return NULL;
}

static CUdeviceptr take_elsewhere(void)
{
    CUdeviceptr address = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, allocate_in_another_thread, &address), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return address;
}

static void the_driver_is_not_asked_what_captures_allow(void **state)
{
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr addresses[4];
    driver_allocate = real(cuMemAlloc_v2);
    SET(cuMemAlloc_v2, watch_allocate);
    asked = 0;
    CUstream captured = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_not_equal(addresses[0] = take(LARGE), 0);
    end_capture(captured);
    captured = begin_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    assert_int_not_equal(addresses[1] = take_elsewhere(), 0);
    assert_int_equal(DRIVER(cuThreadExchangeStreamCaptureMode)(&relaxed), CUDA_SUCCESS);
    assert_int_not_equal(addresses[2] = take(LARGE), 0);
    assert_int_equal(DRIVER(cuThreadExchangeStreamCaptureMode)(&relaxed), CUDA_SUCCESS);
    end_capture(captured);
    assert_int_not_equal(addresses[3] = take(LARGE), 0);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(cuMemFree_v2(addresses[i]), CUDA_SUCCESS);
    assert_int_equal(asked, 0);
    captured = begin_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    assert_int_equal(take(LARGE), 0);
    assert_int_equal(cuStreamEndCapture(captured, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    captured = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(take_elsewhere(), 0);
    assert_int_equal(cuStreamEndCapture(captured, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_not_equal(addresses[0] = take(LARGE), 0);
    assert_int_equal(cuMemFree_v2(addresses[0]), CUDA_SUCCESS);
    SET(cuMemAlloc_v2, driver_allocate);
}

/* The driver destroys no primary context: its work and its captures go on. */
static void a_context_that_lives_on_is_not_forgotten(void **state)
{
    CUcontext primary;
    CUdeviceptr address;
    assert_int_equal(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(primary), CUDA_SUCCESS);
    CUstream stream = make_stream(), captured = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    hold(stream);
    assert_int_equal(cuCtxDestroy_v2(primary), CUDA_ERROR_INVALID_CONTEXT);
    assert_true(in_flight_has_captures());
    assert_false(in_flight_is_surely_finished());
    assert_int_equal(cuMemAlloc_v2(&address, LARGE), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    let_go();
    assert_int_equal(cuStreamEndCapture(captured, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
}

static void memory_of_a_pool_stays_while_work_may_use_it(void **state)
{
    CUmemoryPool pool;
    CUdeviceptr address;
    CUstream stream = make_stream();
    assert_int_equal(cuMemAllocAsync(&address, LARGE, stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
    hold(stream);
    watch(stream);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
    assert_int_equal(unmapped, 0);
    let_go();
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
    assert_int_equal(unmapped > 0, 1);
}

static void memory_of_a_context_that_ends_stays_while_others_work(void **state)
{
    CUcontext other;
    CUstream stream = make_stream();
    assert_int_equal(cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
    assert_int_not_equal(take(LARGE), 0);
    hold(stream);
    watch(stream);
    assert_int_equal(cuCtxDestroy_v2(other), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(unmapped, 0);
    let_go();
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
    assert_int_equal(unmapped > 0, 1);
    assert_int_equal(early, 0);
}

/* What it shared with others of that context is nobody's any more, so it is not used again. */
static void small_memory_of_a_context_that_ends_ends_with_the_work(void **state)
{
    CUcontext other;
    CUstream stream = make_stream();
    uint64_t before = card_free();
    assert_int_equal(cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
    assert_int_not_equal(take(SMALL), 0);
    assert_int_not_equal(take(SMALL), 0);
    hold(stream);
    watch(stream);
    assert_int_equal(cuCtxDestroy_v2(other), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(unmapped, 0);
    let_go();
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
    assert_int_equal(unmapped, 1);
    assert_int_equal(early, 0);
    assert_int_equal(card_free(), before);
}

/* --- Evictions ------------------------------------------------------------------------------------- */

static CUresult (*driver_query)(CUstream);

/* As the driver is free to: the legacy stream knows nothing of other threads' own streams. */
static CUresult query_own_work_only(CUstream stream)
{
    return stream == CU_STREAM_LEGACY ? CUDA_SUCCESS : driver_query(stream);
}

static void *work_in_own_stream(void *nothing)
{
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    hold(CU_STREAM_PER_THREAD);
    return nothing;
}

static void start_nameless_work(void)
{
    pthread_t thread;
    driver_query = real(cuStreamQuery);
    SET(cuStreamQuery, query_own_work_only);
    assert_int_equal(pthread_create(&thread, NULL, work_in_own_stream, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(in_flight_is_finished(gate_of()));
}

static void work_that_the_drain_does_not_see_holds_up_the_eviction(void **state)
{
    CUdeviceptr address = take(LARGE);
    fill(address, LARGE, 5);
    start_nameless_work();
    assert_int_equal(swap_evict(NULL), CUDA_ERROR_NOT_READY);
    assert_int_equal(swap_bytes().evicted_bytes, 0);
    let_go();
    SET(cuStreamQuery, driver_query);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(address, LARGE, 5);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

/* While a capture is open, no context can be asked. */
static void a_capture_lets_no_eviction_pass_on_the_legacy_streams_word(void **state)
{
    CUdeviceptr address = take(LARGE);
    start_nameless_work();
    CUstream captured = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(swap_evict(NULL), CUDA_ERROR_NOT_READY);
    let_go();
    end_capture(captured);
    SET(cuStreamQuery, driver_query);
    assert_true(quiet_is_drained(UINT64_MAX));
    captured = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    end_capture(captured);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

/* --- Drivers before 12.5 --------------------------------------------------------------------------- */

static void an_older_driver_is_waited_in(void **state)
{
    CUresult (*record)(CUcontext, CUevent) = real(cuCtxRecordEvent);
    CUdeviceptr address = take(LARGE);
    CUstream stream = make_stream();
    SET(cuCtxRecordEvent, NULL);
    hold(stream);
    watch(stream);
    pthread_t thread = start_letting_go();
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(unmapped > 0, 1);
    assert_int_equal(early, 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    start_nameless_work();
    assert_false(quiet_is_drained(1000000));
    let_go();
    assert_true(quiet_is_drained(UINT64_MAX));
    SET(cuStreamQuery, driver_query);
    SET(cuCtxRecordEvent, record);
}

static int make_flag(void **state)
{
    void *memory;
    int result = make_context(state);
    if (result != 0 || DRIVER(cuMemHostAlloc)(&memory, 4096, HOST_PORTABLE | HOST_MAPPED) != CUDA_SUCCESS ||
        DRIVER(cuMemHostGetDevicePointer_v2)(&flag_address, memory, 0) != CUDA_SUCCESS)
        return -1;
    flag = memory;
    return 0;
}

static int drop_flag(void **state)
{
    watch(NULL);
    let_go();
    cuCtxSynchronize();
    return destroy_context(state);
}

/* The process has a gate, which captures go through, but no agent. */
static void poke_nobody(void)
{
}

#undef TEST
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_flag, drop_flag)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_free_unmaps_when_the_work_is_done),
        TEST(a_free_waits_for_other_contexts_of_the_device),
        TEST(a_free_waits_for_peers_with_access),
        TEST(a_small_free_waits_for_nothing_and_unmaps_nothing),
        TEST(a_free_beside_a_relaxed_capture_waits_and_harms_nothing),
        TEST(what_cannot_end_yet_ends_later),
        TEST(a_capture_that_forbids_a_free_still_does),
        TEST(the_driver_is_not_asked_what_captures_allow),
        TEST(a_context_that_lives_on_is_not_forgotten),
        TEST(memory_of_a_pool_stays_while_work_may_use_it),
        TEST(memory_of_a_context_that_ends_stays_while_others_work),
        TEST(small_memory_of_a_context_that_ends_ends_with_the_work),
        TEST(work_that_the_drain_does_not_see_holds_up_the_eviction),
        TEST(a_capture_lets_no_eviction_pass_on_the_legacy_streams_word),
        TEST(an_older_driver_is_waited_in),
    };
    setenv("FAKECUDA_FREE_WAITS", "0", 1);
    setenv("FAKECUDA_UNMAP_WAITS", "0", 1);
    if (!start_machine("swap") || !private_get() || !gate_make(gate_in(private_get()), poke_nobody))
        return 1;
    driver_unmap = real(cuMemUnmap);
    SET(cuMemUnmap, watch_unmap);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
