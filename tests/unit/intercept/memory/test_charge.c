/* What is charged, refused and given back, on a driver of our own; one process, limited on its own. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fixture.h"

static void the_limit_holds_to_the_byte(void **state)
{
    CUdeviceptr first = linear(LIMIT - 1023), second; /* the driver rounds up to 512 bytes */
    assert_int_not_equal(first, 0);
    unsigned asked = fake_allocations;
    assert_int_equal(cuMemAlloc_v2(&second, 513), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(fake_allocations, asked); /* the driver was not asked */
    second = linear(1);
    assert_int_not_equal(second, 0);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuMemFree_v2(first), CUDA_SUCCESS);
    assert_int_equal(used(), 512);
    assert_int_equal(cuMemFree_v2(second), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void managed_memory_is_charged_in_full(void **state)
{
    CUdeviceptr address;
    assert_int_equal(cuMemAllocManaged(&address, LIMIT + 1, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemAllocManaged(&address, LIMIT, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

static void pitched_memory_is_charged_by_its_real_pitch(void **state)
{
    CUdeviceptr address, rest;
    size_t pitch;
    rest = linear(LIMIT - 100 * FAKE_PITCH);
    /* One row too many, though as asked for it would fit. */
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, 1, 101, 4), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(used(), LIMIT - 100 * FAKE_PITCH);
    assert_int_equal(fake_held(0), LIMIT - 100 * FAKE_PITCH);
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, 1, 100, 4), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(rest), CUDA_SUCCESS);
}

static void what_the_driver_refuses_is_not_charged(void **state)
{
    CUdeviceptr address;
    fake_next_result = CUDA_ERROR_LAUNCH_FAILED;
    assert_int_equal(cuMemAlloc_v2(&address, 4096), CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(used(), 0);
}

static void invalid_calls_get_the_drivers_answer(void **state)
{
    CUdeviceptr address;
    size_t pitch;
    assert_int_equal(cuMemAlloc_v2(NULL, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAlloc_v2(&address, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocManaged(&address, LIMIT + 1, 99), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, LIMIT + 1, 2, 3), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemCreate(NULL, 1, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemFree_v2(0), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(0x123), CUDA_ERROR_INVALID_VALUE);
    CUcontext other = fake_context(0);
    cuCtxDestroy_v2(other);
    assert_int_equal(cuMemAlloc_v2(&address, LIMIT + 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    real(cuCtxPushCurrent_v2)(NULL);
    assert_int_equal(cuMemAlloc_v2(&address, LIMIT + 1), CUDA_ERROR_INVALID_CONTEXT);
    real(cuCtxPushCurrent_v2)(context);
    assert_int_equal(used(), 0);
}

static void a_free_that_fails_gives_nothing_back(void **state)
{
    CUdeviceptr address = linear(MIB);
    fake_next_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    assert_int_equal(cuMemFree_v2(address), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(used(), MIB);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void a_dying_context_gives_back_what_was_its_own(void **state)
{
    CUdeviceptr kept = linear(MIB), lost, moved;
    size_t pitch;
    CUcontext other = fake_context(0);
    assert_int_not_equal(linear(2 * MIB), 0);
    assert_int_equal(cuMemAllocManaged(&lost, 4 * MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocPitch_v2(&moved, &pitch, FAKE_PITCH, 2, 4), CUDA_SUCCESS);
    assert_int_equal(used(), 7 * MIB + 2 * FAKE_PITCH);
    assert_int_equal(cuCtxDestroy_v2(other), CUDA_SUCCESS);
    assert_int_equal(used(), MIB);
    real(cuCtxPushCurrent_v2)(context);
    assert_int_equal(cuMemFree_v2(kept), CUDA_SUCCESS);
}

static void the_last_release_or_a_reset_ends_the_primary_context(void **state)
{
    CUcontext primary;
    for (int reset = 0; reset < 2; reset++) {
        assert_int_equal(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
        assert_int_equal(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
        real(cuCtxPushCurrent_v2)(primary);
        assert_int_not_equal(linear(MIB), 0);
        if (reset) {
            assert_int_equal(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
        } else {
            assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
            assert_int_equal(used(), MIB);
            assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        }
        assert_int_equal(used(), 0);
        real(cuCtxPushCurrent_v2)(context);
    }
}

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static void physical_memory_is_charged_until_its_last_handle_and_mapping_go(void **state)
{
    CUmemGenericAllocationHandle handle, again;
    const CUdeviceptr there = UINT64_C(0x100000000);
    assert_int_equal(cuMemCreate(&handle, LIMIT + 1, &on_device, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemCreate(&handle, LIMIT, &on_device, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemMap(there, LIMIT, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(there + 5)), CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap(there, LIMIT), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuMemRelease(again), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void one_unmap_ends_many_mappings(void **state)
{
    CUmemGenericAllocationHandle handle;
    const CUdeviceptr there = UINT64_C(0x200000000);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(cuMemCreate(&handle, 2 * MIB, &on_device, 0), CUDA_SUCCESS);
        /* A gap in the middle, and the same memory in two places. */
        assert_int_equal(cuMemMap(there + (i < 4 ? i : i + 1) * 2 * MIB, 2 * MIB, 0, handle, 0),
                         CUDA_SUCCESS);
        if (i == 7)
            assert_int_equal(cuMemMap(there + 100 * MIB, 2 * MIB, 0, handle, 0), CUDA_SUCCESS);
        assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    }
    assert_int_equal(used(), 16 * MIB);
    assert_int_equal(cuMemUnmap(there, 2 * MIB), CUDA_SUCCESS);
    assert_int_equal(used(), 14 * MIB);
    assert_int_equal(cuMemUnmap(there + 2 * MIB, 16 * MIB), CUDA_SUCCESS);
    assert_int_equal(used(), 2 * MIB);
    assert_int_equal(cuMemUnmap(there + 100 * MIB, 2 * MIB), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void a_failed_map_or_release_changes_nothing(void **state)
{
    CUmemGenericAllocationHandle handle;
    assert_int_equal(cuMemCreate(&handle, MIB, &on_device, 0), CUDA_SUCCESS);
    fake_next_result = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(cuMemMap(0x1000, MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    fake_next_result = CUDA_ERROR_LAUNCH_FAILED;
    assert_int_equal(cuMemRelease(handle), CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(used(), MIB);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void host_memory_is_not_charged_and_location_decides(void **state)
{
    CUmemGenericAllocationHandle host, second;
    CUmemAllocationProp on_host = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
    CUmemAllocationProp on_second = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
    assert_int_equal(cuMemCreate(&host, LIMIT * 2, &on_host, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemCreate(&second, LIMIT, &on_second, 0), CUDA_SUCCESS);
    assert_int_equal(used(), 0); /* of the first GPU, whose context is current */
    assert_int_equal(cuMemRelease(host), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(second), CUDA_SUCCESS);
}

static void a_pool_is_charged_by_what_it_reserves(void **state)
{
    CUdeviceptr first, second, third;
    assert_int_equal(cuMemAllocAsync(&first, MIB, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), 2 * MIB);
    assert_int_equal(cuMemAllocAsync(&second, MIB, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), 2 * MIB);
    assert_int_equal(cuMemAllocAsync(&third, LIMIT - 2 * MIB + 1, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemAllocAsync(&third, LIMIT - 2 * MIB, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuMemFreeAsync(third, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT); /* the pool has it still */
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(used(), 2 * MIB);
    assert_int_equal(cuMemFreeAsync(first, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(second), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolTrimTo((CUmemoryPool)100, 0), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void a_pool_is_charged_for_what_outlives_the_last_context(void **state)
{
    CUdeviceptr pooled;
    assert_int_equal(cuMemAllocAsync(&pooled, 3 * MIB, NULL), CUDA_SUCCESS);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(cuCtxDestroy_v2(context), CUDA_SUCCESS);
        assert_int_equal(used(), 4 * MIB);
        assert_int_equal(fake_held(0), 4 * MIB);
        context = fake_context(0);
        assert_int_equal(linear(LIMIT - 4 * MIB + 1), 0);
        assert_int_not_equal(linear(LIMIT - 4 * MIB), 0);
    }
    assert_int_equal(cuMemFreeAsync(pooled, NULL), CUDA_SUCCESS);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT - 4 * MIB);
}

static void unused_pool_memory_makes_room_for_other_memory(void **state)
{
    CUdeviceptr pooled, address;
    assert_int_equal(cuMemAllocAsync(&pooled, LIMIT, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(pooled, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT);
    address = linear(LIMIT);
    assert_int_not_equal(address, 0);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuMemAllocAsync(&pooled, 1, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void a_pool_that_grows_past_the_limit_is_cut_back(void **state)
{
    CUdeviceptr pooled, address = linear(LIMIT - MIB);
    /* 1 byte fits, the block of 2 MiB that the pool takes for it does not. */
    assert_int_equal(cuMemAllocAsync(&pooled, 1, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(used(), LIMIT - MIB);
    assert_int_equal(fake_held(0), LIMIT - MIB);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

static void a_captured_allocation_passes_through(void **state)
{
    CUdeviceptr address;
    fake_capturing = (CUstream)0x99;
    assert_int_equal(cuMemAllocAsync(&address, LIMIT * 2, fake_capturing), CUDA_SUCCESS);
    fake_capturing = NULL;
    assert_int_equal(used(), 0);
}

static void a_program_sees_a_smaller_gpu(void **state)
{
    size_t free_bytes, total_bytes;
    CUdeviceptr address = linear(10 * MIB);
    assert_int_equal(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
    assert_int_equal(total_bytes, LIMIT);
    assert_int_equal(free_bytes, LIMIT - 10 * MIB);
    assert_int_equal(cuDeviceTotalMem_v2(&total_bytes, 1), CUDA_SUCCESS);
    assert_int_equal(total_bytes, LIMIT);
    assert_int_equal(cuDeviceTotalMem_v2(NULL, 1), CUDA_ERROR_INVALID_VALUE);
    fake_card_free = MIB;
    assert_int_equal(cuMemGetInfo_v2(&free_bytes, NULL), CUDA_SUCCESS);
    assert_int_equal(free_bytes, MIB);
    fake_card_total = 32 * MIB;
    assert_int_equal(cuMemGetInfo_v2(NULL, &total_bytes), CUDA_SUCCESS);
    assert_int_equal(total_bytes, 32 * MIB);
    fake_card_total = fake_card_free = (size_t)8 << 30;
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

/* --- Threads --------------------------------------------------------------------------------------- */

static void *linear_until_refused(void *argument)
{
    uintptr_t granted = 0;
    real(cuCtxPushCurrent_v2)(context);
    while (linear(64 << 10))
        granted++;
    return (void *)granted;
}

static sigjmp_buf way_out;

static void jump_out(void)
{
    siglongjmp(way_out, 1);
}

static void be_jumped_out_of(void)
{
    if (sigsetjmp(way_out, 1))
        return;
    fake_next_interruption = jump_out;
    linear(MIB);
    fail_msg("it was not jumped out of");
}

/* What the interrupted call had reserved stays charged: nobody knows whether the driver gave it. */
static void a_call_that_was_jumped_out_of_frees_nobody_of_the_limit(void **state)
{
    be_jumped_out_of();
    assert_int_equal(used(), MIB);
    assert_int_equal(linear(LIMIT), 0);
    CUdeviceptr rest = linear(LIMIT - MIB);
    assert_int_not_equal(rest, 0);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(linear(1), 0);
    assert_int_equal(cuMemFree_v2(rest), CUDA_SUCCESS);
    assert_int_equal(used(), MIB);
    assert_null(charge_moved); /* samples of the card are believed again */
    ledger_release(session_slot(), 0, MIB);
}

static CUdeviceptr in_between;

static void allocate_in_between(void)
{
    in_between = linear(LIMIT / 2);
}

static void ask_for_too_much_in_between(void)
{
    in_between = linear(LIMIT);
}

static void a_handler_that_interrupts_the_driver_is_charged_too(void **state)
{
    fake_next_interruption = allocate_in_between;
    CUdeviceptr first = linear(LIMIT / 2);
    assert_int_not_equal(first, 0);
    assert_int_not_equal(in_between, 0);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuMemFree_v2(in_between), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT / 2);
    fake_next_interruption = ask_for_too_much_in_between;
    CUdeviceptr second = linear(1);
    assert_int_not_equal(second, 0);
    assert_int_equal(in_between, 0);
    assert_int_equal(cuMemFree_v2(first), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(second), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
    assert_null(charge_moved);
}

static void racing_threads_are_granted_exactly_the_limit(void **state)
{
    pthread_t threads[8];
    uintptr_t granted = 0;
    void *part;
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, linear_until_refused, NULL), 0);
    for (unsigned i = 0; i < 8; i++) {
        pthread_join(threads[i], &part);
        granted += (uintptr_t)part;
    }
    assert_int_equal(granted, LIMIT / (64 << 10));
    assert_int_equal(used(), LIMIT);
    assert_int_equal(fake_held(0), LIMIT);
}

static void *churn(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    CUdeviceptr held[8] = {0}, pooled;
    CUmemGenericAllocationHandle handle;
    real(cuCtxPushCurrent_v2)(context);
    for (unsigned i = 0; i < 4000; i++) {
        unsigned at = (unsigned)rand_r(&seed) % 8;
        if (held[at] && cuMemFree_v2(held[at]) != CUDA_SUCCESS)
            return "free";
        held[at] = linear(1 + (size_t)rand_r(&seed) % (8 * MIB));
        if (i % 16 == 0 && cuMemCreate(&handle, MIB, &on_device, 0) == CUDA_SUCCESS)
            cuMemRelease(handle);
        if (i % 16 == 8 && cuMemAllocAsync(&pooled, MIB, NULL) == CUDA_SUCCESS)
            cuMemFreeAsync(pooled, NULL);
        if (used() > LIMIT)
            return "limit";
    }
    for (unsigned at = 0; at < 8; at++)
        if (held[at] && cuMemFree_v2(held[at]) != CUDA_SUCCESS)
            return "last free";
    return NULL;
}

static void what_threads_gave_back_is_all_back(void **state)
{
    pthread_t threads[8];
    void *failure;
    for (uintptr_t i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < 8; i++) {
        pthread_join(threads[i], &failure);
        if (failure)
            fail_msg("%s", (char *)failure);
    }
    cuCtxSynchronize();
    assert_int_equal(used(), 0);
    assert_int_equal(fake_held(0), 0);
}

static void *make_and_destroy(void *argument)
{
    for (unsigned i = 0; i < 500; i++) {
        CUcontext own = fake_context(0);
        if (!own || !linear(4096) || !linear(4096))
            return "allocate";
        if (cuCtxDestroy_v2(own) != CUDA_SUCCESS)
            return "destroy";
    }
    return NULL;
}

static void contexts_come_and_go_in_threads_and_nothing_is_left(void **state)
{
    pthread_t threads[4];
    void *failure;
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_and_destroy, NULL), 0);
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], &failure);
        assert_null(failure);
    }
    assert_int_equal(used(), 0);
}

/* --- Children -------------------------------------------------------------------------------------- */

/* In a child that knows nothing of its parent: it has the whole limit for itself, and holds nothing. */
static int child_starts_anew(CUdeviceptr of_parent)
{
    CUcontext own = fake_context(0);
    if (!own || !linear(LIMIT) || linear(1))
        return 1;
    if (used() != LIMIT || cuMemFree_v2(of_parent) != CUDA_SUCCESS || used() != LIMIT)
        return 2;
    return 0;
}

static void expect_good_end(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_forked_child_starts_anew(void **state)
{
    CUdeviceptr address = linear(LIMIT);
    pid_t child = fork();
    if (child == 0)
        _exit(child_starts_anew(address));
    expect_good_end(child);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

/* No handler of pthread_atfork runs there. */
static void a_child_of_bare_clone_starts_anew(void **state)
{
    CUdeviceptr address = linear(LIMIT);
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0)
        _exit(child_starts_anew(address));
    expect_good_end(child);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_context, destroy_context)

int main(void)
{
    setenv("GPUSLICE_MEMORY_LIMIT", "64MiB", 1);
    fake_driver_install();
    const struct CMUnitTest tests[] = {
        TEST(the_limit_holds_to_the_byte),
        TEST(managed_memory_is_charged_in_full),
        TEST(pitched_memory_is_charged_by_its_real_pitch),
        TEST(what_the_driver_refuses_is_not_charged),
        TEST(invalid_calls_get_the_drivers_answer),
        TEST(a_free_that_fails_gives_nothing_back),
        TEST(a_dying_context_gives_back_what_was_its_own),
        TEST(the_last_release_or_a_reset_ends_the_primary_context),
        TEST(physical_memory_is_charged_until_its_last_handle_and_mapping_go),
        TEST(one_unmap_ends_many_mappings),
        TEST(a_failed_map_or_release_changes_nothing),
        TEST(host_memory_is_not_charged_and_location_decides),
        TEST(a_pool_is_charged_by_what_it_reserves),
        TEST(a_pool_is_charged_for_what_outlives_the_last_context),
        TEST(unused_pool_memory_makes_room_for_other_memory),
        TEST(a_pool_that_grows_past_the_limit_is_cut_back),
        TEST(a_captured_allocation_passes_through),
        TEST(a_program_sees_a_smaller_gpu),
        TEST(a_call_that_was_jumped_out_of_frees_nobody_of_the_limit),
        TEST(a_handler_that_interrupts_the_driver_is_charged_too),
        TEST(racing_threads_are_granted_exactly_the_limit),
        TEST(what_threads_gave_back_is_all_back),
        TEST(contexts_come_and_go_in_threads_and_nothing_is_left),
        TEST(a_forked_child_starts_anew),
        TEST(a_child_of_bare_clone_starts_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
