/* Memory of cuMemAllocAsync and of pools with the swap engine: in the order of streams, and off the card and back. */
#include "memory/engine/swap/swap_world.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "intercept/agent/agent.h"
#include "intercept/memory/engine/swap/move/mover.h"
#include "intercept/memory/pool_charge.h"
#include "intercept/resolve/guard.h"

static uint64_t pool_number(CUmemoryPool pool, CUmemPool_attribute which)
{
    cuuint64_t value = 0;
    assert_int_equal(cuMemPoolGetAttribute(pool, which, &value), CUDA_SUCCESS);
    return value;
}

static CUdeviceptr take_in(CUstream stream, uint64_t bytes)
{
    CUdeviceptr address = 0;
    return cuMemAllocAsync(&address, bytes, stream) == CUDA_SUCCESS ? address : 0;
}

static CUmemoryPool default_pool(void)
{
    CUmemoryPool pool;
    assert_int_equal(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
    return pool;
}

static void memory_of_streams_leaves_the_card_and_comes_back(void **state)
{
    CUstream stream;
    CUdeviceptr kept[20], base;
    size_t bytes;
    CUmemoryPool pool = default_pool(), said = NULL;
    assert_int_equal(real(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    for (unsigned i = 0; i < 20; i++) {
        assert_true(kept[i] = take_in(stream, 1000 + i * 300000));
        fill(kept[i], 1000 + i * 300000, i);
    }
    assert_int_equal(cuMemFreeAsync(kept[3], stream), CUDA_SUCCESS);
    uint64_t reserved_bytes = pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    assert_int_equal(card_free(), free_at_first - reserved_bytes);
    assert_true(used() >= reserved_bytes);
    for (unsigned round = 0; round < 3; round++) {
        assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
        assert_int_equal(card_free(), free_at_first);
        assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, kept[7] + 5), CUDA_SUCCESS);
        assert_int_equal(base, kept[7]);
        assert_int_equal(bytes, 1000 + 7 * 300000);
        assert_int_equal(cuPointerGetAttribute(&said, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, kept[7]),
                         CUDA_SUCCESS);
        assert_ptr_equal(said, pool);
        assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
        for (unsigned i = 0; i < 20; i++)
            if (i != 3)
                check(kept[i], 1000 + i * 300000, i);
    }
    for (unsigned i = 0; i < 20; i++)
        if (i != 3)
            assert_int_equal(cuMemFreeAsync(kept[i], stream), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(kept[5], stream), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
    assert_int_equal(pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    assert_int_equal(used(), 0);
    assert_int_equal(card_free(), free_at_first);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

static CUresult (*driver_query)(CUevent);
static CUresult (*driver_wait)(CUstream, CUevent, unsigned);
static unsigned waits;

static CUresult never_ready(CUevent event)
{
    return event ? CUDA_ERROR_NOT_READY : CUDA_ERROR_INVALID_VALUE;
}

static CUresult count_waits(CUstream stream, CUevent event, unsigned flags)
{
    waits++;
    return driver_wait(stream, event, flags);
}

/* While the work before the free goes on. */
static void what_a_stream_frees_is_its_own_at_once_and_others_have_to_wait(void **state)
{
    CUstream one, other;
    CUdeviceptr others_memory;
    CUmemoryPool pool = default_pool();
    assert_int_equal(real(cuStreamCreate)(&one, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(real(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    driver_query = real(cuEventQuery);
    driver_wait = real(cuStreamWaitEvent);
    atomic_store(&real_functions[CUDA_ID_cuEventQuery], (void *)never_ready);
    atomic_store(&real_functions[CUDA_ID_cuStreamWaitEvent], (void *)count_waits);
    CUdeviceptr first = take_in(one, 40 * MIB);
    assert_int_equal(cuMemFreeAsync(first, one), CUDA_SUCCESS);
    assert_int_equal(take_in(one, 40 * MIB), first);
    assert_int_equal(cuMemFreeAsync(first, one), CUDA_SUCCESS);
    CUdeviceptr second = take_in(other, 40 * MIB);
    assert_true(second && second != first);
    assert_int_equal(waits, 0);
    /* Without room on the card, it waits for the other stream. */
    assert_int_equal(real(cuMemAlloc_v2)(&others_memory, card_free()), CUDA_SUCCESS);
    assert_int_equal(take_in(other, 40 * MIB), first);
    assert_int_equal(waits, 1);
    assert_int_equal(real(cuMemFree_v2)(others_memory), CUDA_SUCCESS);
    atomic_store(&real_functions[CUDA_ID_cuEventQuery], (void *)driver_query);
    atomic_store(&real_functions[CUDA_ID_cuStreamWaitEvent], (void *)driver_wait);
    assert_int_equal(cuMemFreeAsync(first, one), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(second), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
    assert_int_equal(pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
}

static void a_pool_of_the_program_s_moves_and_ends_with_its_last_allocation(void **state)
{
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                       .maxSize = 8 * MIB};
    cuuint64_t keep_bytes = UINT64_MAX;
    CUmemoryPool pool;
    CUdeviceptr first, second;
    assert_int_equal(cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep_bytes),
                     CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&first, 3 * MIB, pool, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&second, 6 * MIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemAllocFromPoolAsync(&second, 5 * MIB, pool, NULL), CUDA_SUCCESS);
    assert_int_equal(pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 8 * MIB);
    fill(first, 3 * MIB, 1);
    assert_int_equal(cuMemFreeAsync(second, NULL), CUDA_SUCCESS);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 8 * MIB); /* kept */
    assert_int_equal(pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 8 * MIB);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&second, 1, pool, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(first, 3 * MIB, 1);
    assert_int_equal(cuMemFreeAsync(first, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
    assert_int_equal(card_free(), free_at_first);
}

static CUmemoryPool make_pool(void)
{
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemoryPool pool;
    assert_int_equal(cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
    return pool;
}

static void set_reuse(CUmemoryPool pool, int is_allowed)
{
    assert_int_equal(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &is_allowed),
                     CUDA_SUCCESS);
    assert_int_equal(
        cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &is_allowed),
        CUDA_SUCCESS);
}

/* A part of an extent, so it cannot go back to the card; whether something else can or not. */
static void on_a_full_card_a_stream_gets_what_another_one_has_done_with(void **state)
{
    CUstream one, other;
    assert_int_equal(real(cuStreamCreate)(&one, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(real(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    for (unsigned is_other_idle = 0; is_other_idle < 2; is_other_idle++) {
        CUmemoryPool pool = make_pool();
        CUdeviceptr kept, freed, got, others, idle = is_other_idle ? take_in(NULL, 2 * MIB) : 0;
        set_reuse(pool, 0);
        assert_int_equal(cuMemAllocFromPoolAsync(&kept, MIB, pool, other), CUDA_SUCCESS);
        assert_int_equal(cuMemAllocFromPoolAsync(&freed, MIB, pool, other), CUDA_SUCCESS);
        assert_int_equal(freed, kept + MIB);
        assert_int_equal(cuMemFreeAsync(freed, other), CUDA_SUCCESS);
        if (idle)
            assert_int_equal(cuMemFreeAsync(idle, NULL), CUDA_SUCCESS);
        assert_int_equal(real(cuCtxSynchronize)(), CUDA_SUCCESS); /* pools do not hear of it */
        assert_int_equal(real(cuMemAlloc_v2)(&others, card_free()), CUDA_SUCCESS);
        assert_int_equal(cuMemAllocFromPoolAsync(&got, MIB / 2, pool, one), CUDA_SUCCESS);
        assert_int_equal(got, freed);
        assert_int_equal(cuMemFreeAsync(got, one), CUDA_SUCCESS);
        assert_int_equal(cuMemFreeAsync(kept, other), CUDA_SUCCESS);
        assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
        assert_int_equal(real(cuMemFree_v2)(others), CUDA_SUCCESS);
        assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
        assert_int_equal(card_free(), free_at_first);
    }
    assert_int_equal(cuStreamDestroy_v2(one), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy_v2(other), CUDA_SUCCESS);
}

/* In either order of the two calls. */
static void a_destroyed_pool_keeps_its_memory_while_work_uses_it(void **state)
{
    driver_query = real(cuEventQuery);
    for (unsigned frees_first = 0; frees_first < 2; frees_first++) {
        CUmemoryPool pool = make_pool();
        CUdeviceptr address;
        SET(cuEventQuery, never_ready);
        assert_int_equal(cuMemAllocFromPoolAsync(&address, 40 * MIB, pool, NULL), CUDA_SUCCESS);
        if (frees_first)
            assert_int_equal(cuMemFreeAsync(address, NULL), CUDA_SUCCESS);
        assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
        if (!frees_first)
            assert_int_equal(cuMemFreeAsync(address, NULL), CUDA_SUCCESS);
        assert_int_equal(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS); /* of other work, as far as the events tell */
        assert_int_equal(card_free(), free_at_first - 40 * MIB);
        assert_int_equal(used(), 40 * MIB);
        SET(cuEventQuery, driver_query);
        assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
        assert_int_equal(card_free(), free_at_first);
        assert_int_equal(used(), 0);
    }
}

static void an_evicted_process_allocates_and_frees_in_streams(void **state)
{
    CUdeviceptr kept = take_in(NULL, 3 * MIB), freed = take_in(NULL, 5 * MIB), made;
    fill(kept, 3 * MIB, 1);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(freed, NULL), CUDA_SUCCESS);
    made = take_in(NULL, 20 * MIB);
    assert_true(made);
    assert_int_equal(card_free(), free_at_first);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(kept, 3 * MIB, 1);
    fill(made, 20 * MIB, 2);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(made, 20 * MIB, 2);
    assert_int_equal(cuMemFreeAsync(made, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(kept), CUDA_SUCCESS);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static CUmemoryPool pool_with(unsigned types, unsigned short usage)
{
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .handleTypes = types,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                       .usage = usage};
    CUmemoryPool pool;
    assert_int_equal(cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
    return pool;
}

/* What a pool keeps for later is nobody's: it is gone from the card and from the account, and nothing stays for it. */
static void what_a_pool_only_keeps_is_not_charged_while_memory_is_away(void **state)
{
    cuuint64_t keep_bytes = UINT64_MAX;
    CUmemoryPool pool = pool_with(0, 0);
    CUdeviceptr kept, freed;
    struct agent_memory memory;
    assert_int_equal(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep_bytes),
                     CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&kept, 2 * MIB, pool, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&freed, 6 * MIB, pool, NULL), CUDA_SUCCESS);
    fill(kept, 2 * MIB, 1);
    assert_int_equal(cuMemFreeAsync(freed, NULL), CUDA_SUCCESS);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(used(), 8 * MIB);
    assert_int_equal(swap_mover.evict(NULL), 0);
    assert_int_equal(card_free(), free_at_first);
    assert_int_equal(used(), 2 * MIB);
    swap_mover.count(&memory);
    assert_int_equal(memory.evicted_bytes, 2 * MIB);
    assert_int_equal(memory.stays_bytes[WIRE_STAYS_POOL], 0);
    assert_int_equal(swap_mover.restore(NULL), 0);
    check(kept, 2 * MIB, 1);
    assert_int_equal(cuMemFreeAsync(kept, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

#define VISIT_NS 50000000

/* Is at a pool for a while, as a thread is that allocates there. */
struct visit {
    struct pool *pool;
    atomic_bool has_begun;
};

static void *be_at_a_pool(void *argument)
{
    struct visit *visit = argument;
    guard_lock(&visit->pool->lock);
    atomic_store(&visit->has_begun, true);
    nanosleep(&(struct timespec){.tv_nsec = VISIT_NS}, NULL);
    guard_unlock(&visit->pool->lock);
    return NULL;
}

static void what_a_busy_pool_keeps_is_waited_for(void **state)
{
    cuuint64_t keep_bytes = UINT64_MAX;
    CUmemoryPool one = pool_with(0, 0), other = pool_with(0, 0);
    CUdeviceptr address, second;
    pthread_t thread;
    struct visit visit = {.pool = pool_charge_find(one)};
    assert_int_equal(cuMemPoolSetAttribute(one, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep_bytes),
                     CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&address, 16 * MIB, one, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(address, NULL), CUDA_SUCCESS);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    ledger_charge(session_slot(), 0, LIMIT - 24 * MIB);
    assert_int_equal(used(), LIMIT - 8 * MIB);
    assert_int_equal(pthread_create(&thread, NULL, be_at_a_pool, &visit), 0);
    while (!atomic_load(&visit.has_begun))
        sched_yield();
    CUresult result = cuMemAllocFromPoolAsync(&second, 16 * MIB, other, NULL);
    assert_int_equal(pthread_join(thread, NULL), 0);
    ledger_release(session_slot(), 0, LIMIT - 24 * MIB);
    assert_int_equal(result, CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(second, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolDestroy(one), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolDestroy(other), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static CUresult (*driver_create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                                 unsigned long long);
static struct {
    unsigned calls, for_decompress;
    bool is_refused;
} created;

static CUresult note_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *properties, unsigned long long flags)
{
    created.calls++;
    created.for_decompress += properties->allocFlags.usage == CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
    return properties->allocFlags.usage && created.is_refused
               ? CUDA_ERROR_NOT_SUPPORTED
               : driver_create(handle, bytes, properties, flags);
}

static void see_it_leave_twice(CUdeviceptr address, uint64_t bytes, uint64_t on_card)
{
    uint64_t free_before = card_free();
    for (unsigned round = 0; round < 2; round++) {
        fill(address, bytes, round);
        assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
        assert_int_equal(swap_bytes().evicted_bytes, on_card);
        assert_int_equal(card_free(), free_before + on_card);
        assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
        assert_int_equal(card_free(), free_before);
        check(address, bytes, round);
    }
}

/* Nobody has imported anything. */
static void a_pool_that_others_could_import_moves(void **state)
{
    CUmemoryPool pool = pool_with(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    CUdeviceptr address;
    assert_int_equal(cuMemAllocFromPoolAsync(&address, 3 * MIB, pool, NULL), CUDA_SUCCESS);
    see_it_leave_twice(address, 3 * MIB, 4 * MIB);
    assert_int_equal(cuMemFreeAsync(address, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

/* Where the driver makes no such memory, it is asked for it once. */
static void a_pool_for_decompression_moves(void **state)
{
    driver_create = real(cuMemCreate);
    for (unsigned is_refused = 0; is_refused < 2; is_refused++) {
        CUmemoryPool pool = pool_with(0, CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS);
        CUdeviceptr address;
        memset(&created, 0, sizeof(created));
        created.is_refused = is_refused;
        SET(cuMemCreate, note_create);
        assert_int_equal(cuMemAllocFromPoolAsync(&address, 2 * MIB, pool, NULL), CUDA_SUCCESS);
        see_it_leave_twice(address, 2 * MIB, 2 * MIB);
        SET(cuMemCreate, driver_create);
        assert_int_equal(created.for_decompress, is_refused ? 1 : 3);
        assert_int_equal(created.calls, is_refused ? 4 : 3);
        assert_int_equal(cuMemFreeAsync(address, NULL), CUDA_SUCCESS);
        assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
    }
}

static void what_an_exported_pool_gives_is_the_driver_s_and_stays(void **state)
{
    const CUmemAllocationHandleType posix = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemoryPool pool = pool_with(posix, 0), unshared = pool_with(0, 0);
    CUdeviceptr before, later, of_unshared;
    CUmemPoolPtrExportData data;
    struct agent_memory at_first, memory;
    int fd;
    assert_int_equal(cuMemPoolExportToShareableHandle(&fd, unshared, posix, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocFromPoolAsync(&of_unshared, 2 * MIB, unshared, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolExportPointer(&data, of_unshared), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocFromPoolAsync(&before, 3 * MIB, pool, NULL), CUDA_SUCCESS);
    swap_mover.count(&at_first);
    assert_int_equal(cuMemPoolExportToShareableHandle(&fd, pool, posix, 0), CUDA_SUCCESS);
    close(fd);
    assert_int_equal(cuMemAllocFromPoolAsync(&later, 8 * MIB, pool, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolExportPointer(&data, later), CUDA_SUCCESS);
    fill(later, 8 * MIB, 5);
    assert_int_equal(pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 11 * MIB);
    see_it_leave_twice(before, 3 * MIB, 4 * MIB + 2 * MIB);
    check(later, 8 * MIB, 5);
    swap_mover.count(&memory);
    assert_int_equal(memory.stays_bytes[WIRE_STAYS_POOL], at_first.stays_bytes[WIRE_STAYS_POOL] + 8 * MIB);
    assert_int_equal(memory.resident_bytes, at_first.resident_bytes);
    /* What the program had before goes to others too, and stays from then on. */
    assert_int_equal(cuMemPoolExportPointer(&data, before + 512), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemPoolExportPointer(&data, before), CUDA_SUCCESS);
    swap_mover.count(&memory);
    assert_int_equal(memory.stays_bytes[WIRE_STAYS_EXPORTED], 4 * MIB);
    assert_int_equal(memory.resident_bytes, at_first.resident_bytes - 4 * MIB);
    const CUdeviceptr taken[] = {before, later, of_unshared};
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(cuMemFreeAsync(taken[i], NULL), CUDA_SUCCESS);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(card_free(), free_at_first);
    assert_int_equal(pinned_bytes(), 0);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolDestroy(unshared), CUDA_SUCCESS);
}

static void an_allocation_in_a_capture_is_the_graph_s(void **state)
{
    CUstream stream;
    CUgraph graph;
    CUdeviceptr address = 0;
    assert_int_equal(real(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    assert_true(address = take_in(stream, 3 * MIB));
    assert_int_equal(cuMemFreeAsync(address, stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    assert_int_equal(swap_bytes().resident_bytes, 0);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

/* Our own calls of the driver are none of the program's. */
static void a_capture_goes_on_while_pools_give_back(void **state)
{
    CUstream stream;
    CUgraph graph;
    CUdeviceptr address = take_in(NULL, 20 * MIB);
    assert_int_equal(real(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(address, NULL), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolTrimTo(default_pool(), 0), CUDA_SUCCESS);
    assert_int_equal(pool_number(default_pool(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

static void without_a_context_calls_answer_as_the_driver(void **state)
{
    CUstream stream;
    CUcontext popped;
    CUdeviceptr address = take(3 * MIB), in_pool = take_in(NULL, 3 * MIB), base;
    size_t bytes;
    assert_int_equal(real(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(real(cuCtxPopCurrent_v2)(&popped), CUDA_SUCCESS);
    assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, address), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuMemFree_v2(address), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuMemFree_v2(in_pool), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuMemFreeAsync(address, NULL), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuMemFreeAsync(address, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(in_pool, stream), CUDA_SUCCESS);
    assert_int_equal(real(cuCtxPushCurrent_v2)(popped), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

static void end_the_context(void)
{
    assert_int_equal(cuCtxDestroy_v2(context), CUDA_SUCCESS);
    assert_int_equal(used(), 24 * MIB);
    assert_int_equal(pool_number(default_pool(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 24 * MIB);
    assert_int_equal(pool_number(default_pool(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 23 * MIB);
}

/* Without one it stays where it is; what is away comes back by one of ours. */
static void memory_of_pools_outlives_the_last_context(void **state)
{
    for (unsigned is_away = 0; is_away < 2; is_away++) {
        CUdeviceptr kept = take_in(NULL, 20 * MIB), small = take_in(NULL, 3 * MIB);
        fill(kept, 20 * MIB, 1);
        fill(small, 3 * MIB, 2);
        for (unsigned round = 0; round < 2; round++) {
            if (is_away)
                assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
            end_the_context();
            assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
            assert_int_equal(swap_bytes().resident_bytes, 0);
            assert_int_equal(swap_state()->pinned_bytes[WIRE_STAYS_STUCK], is_away ? 0 : 24 * MIB);
            assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
            assert_int_equal(swap_bytes().resident_bytes, 24 * MIB);
            assert_int_equal(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
            assert_int_equal(card_free(), free_at_first - 24 * MIB);
            check(kept, 20 * MIB, 1);
            check(small, 3 * MIB, 2);
            assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
            assert_int_equal(card_free(), free_at_first);
            assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
            check(kept, 20 * MIB, 1);
        }
        assert_int_equal(cuMemFreeAsync(kept, NULL), CUDA_SUCCESS);
        assert_int_equal(cuMemFree_v2(small), CUDA_SUCCESS);
        assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
        assert_int_equal(card_free(), free_at_first);
        assert_int_equal(used(), 0);
    }
}

int main(void)
{
    if (!start_world())
        return 1;
    const struct CMUnitTest tests[] = {
        TEST(memory_of_streams_leaves_the_card_and_comes_back),
        TEST(what_a_stream_frees_is_its_own_at_once_and_others_have_to_wait),
        TEST(a_pool_of_the_program_s_moves_and_ends_with_its_last_allocation),
        TEST(what_a_pool_only_keeps_is_not_charged_while_memory_is_away),
        TEST(what_a_busy_pool_keeps_is_waited_for),
        TEST(on_a_full_card_a_stream_gets_what_another_one_has_done_with),
        TEST(a_destroyed_pool_keeps_its_memory_while_work_uses_it),
        TEST(an_evicted_process_allocates_and_frees_in_streams),
        TEST(a_pool_that_others_could_import_moves),
        TEST(a_pool_for_decompression_moves),
        TEST(what_an_exported_pool_gives_is_the_driver_s_and_stays),
        TEST(an_allocation_in_a_capture_is_the_graph_s),
        TEST(a_capture_goes_on_while_pools_give_back),
        TEST(without_a_context_calls_answer_as_the_driver),
        TEST(memory_of_pools_outlives_the_last_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
