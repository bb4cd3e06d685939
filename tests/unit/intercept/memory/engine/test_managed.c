/* The managed engine on the simulated driver: what programs allocate is managed memory, and they are told that it is device
 * memory; a turn ends without a copy and begins with a prefetch of all there is. */
#include <pthread.h>

#include "intercept/agent/agent.h"
#include "intercept/agent/agent_state.h"
#include "intercept/memory/engine/managed.h"
#include "memory/engine/engine_world.h"

/* What the driver says, whatever the program is told. */
static bool is_managed(CUdeviceptr address)
{
    unsigned managed = 0;
    assert_int_equal(real(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address),
                     CUDA_SUCCESS);
    return managed;
}

/* CU_DEVICE_INVALID (-2): it never was. */
static int prefetched_to(CUdeviceptr address, uint64_t bytes)
{
    int device;
    __typeof__(&cuMemRangeGetAttribute) ask = real_driver_function(CUDA_ID_cuMemRangeGetAttribute);
    assert_int_equal(
        ask(&device, sizeof(device), CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, address, bytes),
        CUDA_SUCCESS);
    return device;
}

static struct agent_memory counted(void)
{
    struct agent_memory memory;
    agent_mover()->count(&memory);
    return memory;
}

static void no_progress(void)
{
}

static int make_context(void **state)
{
    return cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS ? 0 : -1;
}

static int destroy_context(void **state)
{
    return cuCtxDestroy_v2(context) == CUDA_SUCCESS && used() == 0 ? 0 : -1;
}

static void what_programs_allocate_is_managed_memory(void **state)
{
    size_t pitch = 0;
    CUdeviceptr linear = take(MIB), pitched, array_like;
    assert_ptr_equal(engine_of_process(), &engine_managed);
    assert_int_equal(cuMemAllocPitch_v2(&pitched, &pitch, 1000, 10, 4), CUDA_SUCCESS);
    assert_true(pitch >= 1000);
    assert_true(is_managed(linear) && is_managed(pitched));
    assert_int_equal(used(), MIB + 10 * pitch);
    assert_int_equal(cuMemAllocManaged(&array_like, MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(array_like), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(linear), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(linear), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemFreeAsync(pitched, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void memory_in_a_streams_order_is_managed_too(void **state)
{
    CUdeviceptr address, from_pool;
    CUstream stream;
    CUmemoryPool pool;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    assert_int_equal(((__typeof__(&cuStreamCreate))real_driver_function(CUDA_ID_cuStreamCreate))(&stream, 0),
                     CUDA_SUCCESS);
    assert_int_equal(cuMemAllocAsync(&address, MIB, stream), CUDA_SUCCESS);
    assert_true(is_managed(address));
    assert_int_equal(used(), MIB);
    assert_int_equal(cuMemFreeAsync(address, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocAsync(&address, MIB, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
    assert_int_equal(cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&from_pool, MIB, pool, stream), CUDA_SUCCESS);
    assert_false(is_managed(from_pool));
    assert_int_equal(cuMemFreeAsync(from_pool, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

struct visit {
    CUstream stream;
    CUdeviceptr address;
    CUresult allocated, freed;
};

static void *be_without_a_context(void *argument)
{
    struct visit *visit = argument;
    CUdeviceptr address = 0;
    visit->allocated = cuMemAllocAsync(&address, MIB, visit->stream);
    visit->freed = cuMemFreeAsync(address, visit->stream);
    if (visit->freed == CUDA_SUCCESS)
        visit->freed = cuMemFreeAsync(visit->address, visit->stream);
    return NULL;
}

/* As a garbage collector's thread does. */
static void a_thread_without_a_context_frees_in_a_streams_order(void **state)
{
    struct visit visit = {0};
    pthread_t thread;
    assert_int_equal(
        ((__typeof__(&cuStreamCreate))real_driver_function(CUDA_ID_cuStreamCreate))(&visit.stream, 0),
        CUDA_SUCCESS);
    assert_int_equal(cuMemAllocAsync(&visit.address, MIB, visit.stream), CUDA_SUCCESS);
    assert_int_equal(pthread_create(&thread, NULL, be_without_a_context, &visit), 0);
    pthread_join(thread, NULL);
    assert_int_equal(visit.allocated, CUDA_SUCCESS);
    assert_int_equal(visit.freed, CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void programs_are_told_that_it_is_device_memory(void **state)
{
    CUdeviceptr address = take(MIB), base = 0, own;
    size_t bytes = 0;
    unsigned managed = 1;
    CUmemorytype type = 0;
    void *host = &type;
    assert_int_equal(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address + 5),
                     CUDA_SUCCESS);
    assert_int_equal(managed, 0);
    assert_int_equal(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address), CUDA_SUCCESS);
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    assert_int_equal(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address),
                     CUDA_ERROR_INVALID_VALUE);
    managed = 1;
    assert_int_equal(cuPointerGetAttributes(2,
                                            (CUpointer_attribute[]){CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                                                    CU_POINTER_ATTRIBUTE_HOST_POINTER},
                                            (void *[]){&managed, &host}, address),
                     CUDA_SUCCESS);
    assert_int_equal(managed, 0);
    assert_null(host);
    assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, address + MIB - 1), CUDA_SUCCESS);
    assert_int_equal(base, address);
    assert_int_equal(bytes, MIB);
    assert_int_equal(cuMemAllocManaged(&own, MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, own), CUDA_SUCCESS);
    assert_int_equal(managed, 1);
    assert_int_equal(cuMemFree_v2(own), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

static void a_turn_ends_without_a_copy_and_begins_with_a_prefetch(void **state)
{
    CUdeviceptr first = take(MIB), second = take(8 * MIB), later;
    assert_int_equal(prefetched_to(first, MIB), -2);
    assert_int_equal(counted().resident_bytes, 9 * MIB);
    assert_int_equal(agent_mover()->evict(no_progress), 0);
    assert_int_equal(counted().resident_bytes, 0);
    assert_int_equal(counted().evicted_bytes, 9 * MIB);
    later = take(2 * MIB);
    assert_int_equal(cuMemFree_v2(first), CUDA_SUCCESS);
    assert_int_equal(agent_mover()->restore(no_progress), 0);
    assert_int_equal(prefetched_to(second, 8 * MIB), 0);
    assert_int_equal(prefetched_to(later, 2 * MIB), 0);
    assert_int_equal(counted().resident_bytes, 10 * MIB);
    assert_int_equal(counted().evicted_bytes, 0);
    assert_int_equal(cuMemFree_v2(second), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(later), CUDA_SUCCESS);
}

static void memory_of_each_gpu_is_prefetched_there(void **state)
{
    CUcontext other;
    CUdeviceptr here = take(MIB), there;
    assert_int_equal(cuCtxCreate_v2(&other, 0, 1), CUDA_SUCCESS);
    there = take(MIB);
    assert_int_equal(agent_mover()->evict(no_progress), 0);
    assert_int_equal(agent_mover()->restore(no_progress), 0);
    assert_int_equal(prefetched_to(here, MIB), 0);
    assert_int_equal(prefetched_to(there, MIB), 1);
    assert_int_equal(cuCtxDestroy_v2(other), CUDA_SUCCESS);
    assert_int_equal(counted().resident_bytes, MIB);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(here), CUDA_SUCCESS);
}

static void one_program_is_not_larger_than_the_card_unless_it_may(void **state)
{
    struct ledger_policy *policy = (struct ledger_policy *)(uintptr_t)session_slot()->ledger.policy;
    CUdeviceptr most = take(CARD - 16 * MIB), more = take(16 * MIB + 1);
    assert_true(most);
    assert_int_equal(more, 0);
    assert_int_equal(used(), CARD - 16 * MIB);
    policy->may_pass_card = 1;
    more = take(64 * MIB);
    size_t free_bytes, total_bytes;
    assert_int_equal(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
    assert_int_equal(total_bytes, 1024 * MIB); /* the limit */
    assert_int_equal(free_bytes, total_bytes - used());
    policy->may_pass_card = 0;
    assert_true(more);
    /* Of what is more than the card, as much is brought as there is room for. */
    assert_int_equal(agent_mover()->evict(no_progress), 0);
    assert_int_equal(agent_mover()->restore(no_progress), 0);
    assert_int_equal(cuMemFree_v2(more), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(most), CUDA_SUCCESS);
}

static void what_is_free_is_what_the_limit_leaves(void **state)
{
    size_t before, after, total;
    CUdeviceptr address;
    assert_int_equal(cuMemGetInfo_v2(&before, &total), CUDA_SUCCESS);
    assert_int_equal(total, CARD);
    address = take(100 * MIB);
    assert_int_equal(cuMemGetInfo_v2(&after, &total), CUDA_SUCCESS);
    assert_int_equal(before - after, 100 * MIB);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_context, destroy_context)

int main(void)
{
    setenv("FAKECUDA_PAGING", "1", 1);
    if (!start_machine("managed"))
        return 1;
    const struct CMUnitTest tests[] = {
        TEST(what_programs_allocate_is_managed_memory),
        TEST(memory_in_a_streams_order_is_managed_too),
        TEST(a_thread_without_a_context_frees_in_a_streams_order),
        TEST(programs_are_told_that_it_is_device_memory),
        TEST(a_turn_ends_without_a_copy_and_begins_with_a_prefetch),
        TEST(memory_of_each_gpu_is_prefetched_there),
        TEST(one_program_is_not_larger_than_the_card_unless_it_may),
        TEST(what_is_free_is_what_the_limit_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
