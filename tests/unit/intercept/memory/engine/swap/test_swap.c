/* The swap engine on the simulated driver: memory leaves the card and comes back at the same addresses with the same
 * bytes, whatever was allocated and freed meanwhile; what fails changes nothing. */
#include "memory/engine/swap/swap_world.h"

#include <pthread.h>
#include <sys/mman.h>

#include "intercept/agent/agent.h"
#include "intercept/memory/engine/swap/move/clean.h"
#include "intercept/memory/engine/swap/move/digest_cubins.h"
#include "intercept/memory/engine/swap/move/digest_ptx.h"
#include "intercept/memory/engine/swap/move/mover.h"
#include "intercept/memory/engine/swap/move/tools.h"
#include "intercept/resolve/guard.h"

static void an_oversubscribed_session_has_this_engine(void **state)
{
    assert_ptr_equal(engine_of_process(), &engine_swap);
}

static void small_allocations_share_what_the_driver_would_take_for_one(void **state)
{
    CUdeviceptr first = take(1000), second = take(1000), large = take(3 * MIB);
    assert_int_equal(second, first + 1024);
    assert_true(large && large % (2 * MIB) == 0);
    assert_int_equal(used(), 2 * 1024 + 4 * MIB); /* what that takes of extents */
    assert_int_equal(card_free(), free_at_first - 6 * MIB);
    assert_int_equal(cuMemFree_v2(first), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(first), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemFree_v2(large), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(second), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
    assert_int_equal(card_free(), free_at_first - 2 * MIB); /* one empty extent is kept for the next */
    assert_int_equal(take(5), first);
    assert_int_equal(cuMemFree_v2(first), CUDA_SUCCESS);
}

static void *churn(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    CUdeviceptr kept[16] = {0};
    cuCtxSetCurrent(context);
    for (unsigned round = 0; round < 2000; round++) {
        unsigned at = (unsigned)rand_r(&seed) % 16;
        if (kept[at] && cuMemFree_v2(kept[at]) != CUDA_SUCCESS)
            return "free";
        kept[at] = kept[at] ? 0 : take(1 + (unsigned)rand_r(&seed) % (1 << 18));
    }
    for (unsigned at = 0; at < 16; at++)
        if (kept[at] && cuMemFree_v2(kept[at]) != CUDA_SUCCESS)
            return "last free";
    return NULL;
}

static void threads_allocate_and_free_side_by_side(void **state)
{
    pthread_t threads[4];
    void *failure;
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], &failure);
        assert_null(failure);
    }
    assert_int_equal(used(), 0);
    assert_int_equal(swap_bytes().resident_bytes, 2 * MIB);
}

/* Allocating and freeing are no use of the memory: they go on while it moves. */
static void memory_moves_while_threads_allocate_and_free(void **state)
{
    pthread_t threads[4];
    void *failure;
    CUdeviceptr kept = take(3 * MIB);
    fill(kept, 3 * MIB, 1);
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    for (unsigned round = 0; round < 20; round++) {
        assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
        assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
        check(kept, 3 * MIB, 1);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], &failure);
        assert_null(failure);
    }
    assert_int_equal(used(), 4 * MIB);
}

static unsigned calls_seen, calls_cancellable;
static CUresult (*driver_create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                                 unsigned long long);
static CUresult (*driver_pointer_attribute)(void *, CUpointer_attribute, CUdeviceptr);

static void see_call(void)
{
    int cancel_state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    pthread_setcancelstate(cancel_state, NULL);
    calls_seen++;
    calls_cancellable += cancel_state == PTHREAD_CANCEL_ENABLE;
}

static CUresult see_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                           const CUmemAllocationProp *properties, unsigned long long flags)
{
    see_call();
    return driver_create(handle, bytes, properties, flags);
}

static CUresult see_pointer_attribute(void *value, CUpointer_attribute which, CUdeviceptr address)
{
    see_call();
    return driver_pointer_attribute(value, which, address);
}

/* It would end with the engine's lock: the driver waits in these calls. */
static void no_thread_is_cancelled_inside_the_engine(void **state)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    unsigned is_for_rdma;
    driver_create = real(cuMemCreate), driver_pointer_attribute = real(cuPointerGetAttribute);
    SET(cuMemCreate, see_create);
    SET(cuPointerGetAttribute, see_pointer_attribute);
    CUdeviceptr address = take(3 * MIB);
    assert_int_equal(cuMemCreate(&handle, 2 * MIB, &properties, 0), CUDA_SUCCESS);
    assert_int_equal(
        cuPointerGetAttribute(&is_for_rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, address),
        CUDA_SUCCESS);
    SET(cuMemCreate, driver_create);
    SET(cuPointerGetAttribute, driver_pointer_attribute);
    assert_int_equal(calls_seen, 3);
    assert_int_equal(calls_cancellable, 0);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
}

static void a_full_card_takes_back_what_is_freed(void **state)
{
    CUdeviceptr kept = take(100 * MIB), small = take(100), others;
    assert_int_equal(real(cuMemAlloc_v2)(&others, card_free()), CUDA_SUCCESS); /* another program's */
    assert_int_equal(take(3 * MIB), 0);
    assert_int_equal(used(), 100 * MIB + 512);
    assert_int_equal(cuMemFree_v2(small), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(kept), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
    assert_int_equal(real(cuMemFree_v2)(others), CUDA_SUCCESS);
}

static void memory_leaves_the_card_and_comes_back_where_it_was(void **state)
{
    size_t pitch;
    CUdeviceptr small = take(1000), large = take(5 * MIB + 3), pitched;
    assert_int_equal(cuMemAllocPitch_v2(&pitched, &pitch, 1000, 3000, 4), CUDA_SUCCESS);
    uint64_t used_bytes = used();
    fill(small, 1000, 1);
    fill(large, 5 * MIB + 3, 2);
    fill(pitched, pitch * 3000, 3);
    for (unsigned round = 0; round < 3; round++) {
        assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
        assert_int_equal(card_free(), free_at_first);
        assert_int_equal(swap_bytes().resident_bytes, 0);
        assert_int_equal(used(), used_bytes);
        assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
        assert_int_equal(swap_bytes().evicted_bytes, 0);
        check(small, 1000, 1);
        check(large, 5 * MIB + 3, 2);
        check(pitched, pitch * 3000, 3);
    }
}

static void an_evicted_process_allocates_and_frees_without_the_card(void **state)
{
    CUdeviceptr kept = take(3 * MIB), freed = take(3 * MIB), small = take(100), new_small, new_large;
    fill(kept, 3 * MIB, 1);
    fill(small, 100, 2);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(freed), CUDA_SUCCESS);
    new_small = take(200);
    new_large = take(10 * MIB);
    assert_true(new_small && new_large);
    assert_int_equal(used(), 4 * MIB + 2 * 512 + 10 * MIB);
    assert_int_equal(card_free(), free_at_first);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(kept, 3 * MIB, 1);
    check(small, 100, 2);
    fill(new_large, 10 * MIB, 3);
    fill(new_small, 200, 4);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(new_large, 10 * MIB, 3);
    check(new_small, 200, 4);
    check(small, 100, 2);
}

static void addresses_are_answered_for_while_evicted(void **state)
{
    CUdeviceptr address = take(3 * MIB), base = 0;
    size_t bytes = 0;
    CUmemorytype type = 0;
    int device = -1;
    CUcontext owner = NULL;
    for (unsigned evicted = 0; evicted < 2; evicted++) {
        assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, address + MIB), CUDA_SUCCESS);
        assert_int_equal(base, address);
        assert_int_equal(bytes, 3 * MIB);
        assert_int_equal(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
                         CUDA_SUCCESS);
        assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
        assert_int_equal(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address), CUDA_SUCCESS);
        assert_ptr_equal(owner, context);
        assert_int_equal(cuPointerGetAttributes(2,
                                                (CUpointer_attribute[]){CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                                                        CU_POINTER_ATTRIBUTE_RANGE_SIZE},
                                                (void *[]){&device, &bytes}, address + 5),
                         CUDA_SUCCESS);
        assert_int_equal(device, 0);
        assert_int_equal(bytes, 3 * MIB);
        type = 0, device = -1, owner = NULL;
        assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    }
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
}

static void an_eviction_without_room_changes_nothing(void **state)
{
    CUdeviceptr address = take(100 * MIB);
    fill(address, 100 * MIB, 1);
    swap_state()->arena.limit_bytes = 64 * MIB;
    assert_int_equal(swap_evict(NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(swap_bytes().resident_bytes, 100 * MIB);
    check(address, 100 * MIB, 1);
    swap_state()->arena.limit_bytes = 0;
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(address, 100 * MIB, 1);
}

/* What the driver was asked to page-lock: how much, the most at once, and when the engine's lock was held. */
static struct {
    uint64_t bytes, most_bytes;
    unsigned under_lock, refused;
    CUresult refuses; /* CUDA_SUCCESS: it does not */
} locked;
static CUresult (*driver_register)(void *, size_t, unsigned);

static CUresult count_locked(void *address, size_t bytes, unsigned flags)
{
    if (locked.refuses != CUDA_SUCCESS) {
        locked.refused++;
        return locked.refuses;
    }
    locked.bytes += bytes;
    locked.most_bytes = bytes > locked.most_bytes ? bytes : locked.most_bytes;
    if (pthread_mutex_trylock(&swap_state()->lock) != 0)
        locked.under_lock++;
    else
        pthread_mutex_unlock(&swap_state()->lock);
    return driver_register(address, bytes, flags);
}

static void watch_locking(void)
{
    memset(&locked, 0, sizeof(locked));
    driver_register = real(cuMemHostRegister_v2);
    SET(cuMemHostRegister_v2, count_locked);
}

static void give_chunk(uint64_t bytes)
{
    int fd = memfd_create("chunk", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    assert_int_equal(swap_mover.take_chunk(fd, bytes), 0);
    close(fd);
}

static void lock_all_pages(void)
{
    while (swap_mover.lock_pages() == 1)
        continue;
    assert_int_equal(swap_mover.lock_pages(), 0);
}

static void drop_arena(void)
{
    while (swap_give_back_chunk(0))
        continue;
    assert_int_equal(swap_state()->arena.ready_bytes, 0);
}

/* Page-locking is slower than the link, and holds other calls up: so it is done before a move, a little at a time. */
static void host_memory_is_page_locked_in_pieces_before_it_is_needed(void **state)
{
    CUdeviceptr address = take(40 * MIB);
    drop_arena();
    watch_locking();
    give_chunk(64 * MIB);
    assert_int_equal(locked.bytes, 0);
    assert_int_equal(swap_mover.lock_pages(), 1);
    assert_int_equal(locked.bytes, ARENA_PIECE_BYTES);
    lock_all_pages();
    assert_int_equal(locked.bytes, 64 * MIB);
    assert_int_equal(locked.most_bytes, 16 * MIB);
    assert_int_equal(locked.under_lock, 0);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(locked.bytes, 64 * MIB);
    SET(cuMemHostRegister_v2, driver_register);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

/* And what was not is page-locked as it is used, no more than that. */
static void a_move_page_locks_what_it_uses(void **state)
{
    CUdeviceptr address = take(20 * MIB);
    fill(address, 20 * MIB, 1);
    drop_arena();
    watch_locking();
    give_chunk(64 * MIB);
    locked.refuses = CUDA_ERROR_OUT_OF_MEMORY;
    assert_true(swap_mover.lock_pages() < 0);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS); /* more slowly */
    assert_int_equal(locked.bytes, 0);
    locked.refuses = CUDA_SUCCESS;
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(locked.bytes, 2 * ARENA_PIECE_BYTES);
    check(address, 20 * MIB, 1);
    SET(cuMemHostRegister_v2, driver_register);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

static uint64_t sent_bytes; /* to the copies' stream */
static CUresult (*driver_send)(void *, CUdeviceptr, size_t, CUstream);

static CUresult count_sent(void *place, CUdeviceptr address, size_t bytes, CUstream stream)
{
    sent_bytes += bytes;
    return driver_send(place, address, bytes, stream);
}

/* The link is to work already: all copies to the pieces before this one have been submitted. */
static CUresult lock_behind_copies(void *address, size_t bytes, unsigned flags)
{
    assert_true(sent_bytes >= locked.bytes);
    return count_locked(address, bytes, flags);
}

/* A move holds the engine's lock from its beginning to its end, since no extent may change meanwhile. What it page-locks
 * makes that no longer, as the GPU copies meanwhile: a piece at a time, and the first one alone before any copy. */
static void a_move_page_locks_while_the_copies_before_run(void **state)
{
    CUdeviceptr address = take(96 * MIB);
    fill(address, 96 * MIB, 1);
    drop_arena();
    watch_locking();
    give_chunk(128 * MIB);
    sent_bytes = 0;
    driver_send = real(cuMemcpyDtoHAsync_v2);
    SET(cuMemcpyDtoHAsync_v2, count_sent);
    SET(cuMemHostRegister_v2, lock_behind_copies);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    SET(cuMemcpyDtoHAsync_v2, driver_send);
    SET(cuMemHostRegister_v2, driver_register);
    assert_int_equal(sent_bytes, 96 * MIB);
    assert_int_equal(locked.bytes, 96 * MIB);
    assert_int_equal(locked.most_bytes, ARENA_PIECE_BYTES);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(address, 96 * MIB, 1);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

/* As with confidential computing: the driver is asked once, and memory moves without. */
static void a_driver_that_page_locks_nothing_is_asked_once(void **state)
{
    CUdeviceptr address = take(40 * MIB);
    fill(address, 40 * MIB, 1);
    drop_arena();
    watch_locking();
    give_chunk(64 * MIB);
    locked.refuses = CUDA_ERROR_NOT_SUPPORTED;
    for (unsigned i = 0; i < 3; i++) {
        assert_true(swap_mover.lock_pages() < 0);
        assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
        assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
        fill(address, 40 * MIB, i);
    }
    assert_int_equal(locked.refused, 1);
    check(address, 40 * MIB, 2);
    SET(cuMemHostRegister_v2, driver_register);
    swap_state()->arena.is_unlockable = false;
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

/* What a context had page-locked ends with it, and is page-locked again in another one. */
static void page_locks_end_with_their_context(void **state)
{
    CUcontext other;
    drop_arena();
    give_chunk(64 * MIB);
    lock_all_pages();
    assert_int_equal(cuCtxDestroy_v2(context), CUDA_SUCCESS);
    assert_int_equal(swap_mover.lock_pages(), -EAGAIN); /* in none */
    assert_int_equal(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
    watch_locking();
    lock_all_pages();
    assert_int_equal(locked.bytes, 64 * MIB);
    SET(cuMemHostRegister_v2, driver_register);
    assert_int_equal(cuCtxDestroy_v2(other), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    drop_arena();
}

/* A driver that takes its time: it page-locks, or undoes that, once the test lets it. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_in, may_go;
} slow = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void set_and_tell(bool *what)
{
    pthread_mutex_lock(&slow.lock);
    *what = true;
    pthread_cond_broadcast(&slow.changed);
    pthread_mutex_unlock(&slow.lock);
}

/* False: not before the deadline. */
static bool wait_until(const bool *what)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 20;
    pthread_mutex_lock(&slow.lock);
    while (!*what && pthread_cond_timedwait(&slow.changed, &slow.lock, &deadline) == 0)
        continue;
    bool is_so = *what;
    pthread_mutex_unlock(&slow.lock);
    return is_so;
}

static CUresult register_slowly(void *address, size_t bytes, unsigned flags)
{
    set_and_tell(&slow.is_in);
    wait_until(&slow.may_go);
    return driver_register(address, bytes, flags);
}

static void *lock_a_piece(void *argument)
{
    *(int *)argument = swap_mover.lock_pages();
    return NULL;
}

static bool calls_are_done, context_is_gone;

/* All of these need the lock of the GPU's contexts. */
static void *use_contexts(void *argument)
{
    CUcontext other;
    if (cuCtxCreate_v2(&other, 0, 0) != CUDA_SUCCESS ||
        cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 2 << 20) != CUDA_SUCCESS ||
        cuCtxDestroy_v2(other) != CUDA_SUCCESS)
        return "a call failed";
    set_and_tell(&calls_are_done);
    return NULL;
}

static void *end_context(void *argument)
{
    CUresult result = cuCtxDestroy_v2(context);
    set_and_tell(&context_is_gone);
    return result == CUDA_SUCCESS ? NULL : "the context was not destroyed";
}

static void nothing_waits_for_the_driver_to_page_lock_but_the_end_of_its_context(void **state)
{
    pthread_t locking, calling, ending;
    void *failure;
    int locked_one = 0;
    drop_arena();
    give_chunk(16 * MIB);
    driver_register = real(cuMemHostRegister_v2);
    slow.is_in = slow.may_go = calls_are_done = context_is_gone = false;
    SET(cuMemHostRegister_v2, register_slowly);
    assert_int_equal(pthread_create(&locking, NULL, lock_a_piece, &locked_one), 0);
    assert_true(wait_until(&slow.is_in));
    assert_int_equal(pthread_create(&ending, NULL, end_context, NULL), 0);
    assert_int_equal(pthread_create(&calling, NULL, use_contexts, NULL), 0);
    bool went_on = wait_until(&calls_are_done);
    bool was_gone = context_is_gone;
    set_and_tell(&slow.may_go);
    pthread_join(calling, &failure);
    assert_null(failure);
    pthread_join(locking, NULL);
    pthread_join(ending, &failure);
    SET(cuMemHostRegister_v2, driver_register);
    assert_true(went_on);
    assert_false(was_gone);
    assert_null(failure);
    assert_int_equal(locked_one, 1);
    /* The context took with it what it had page-locked. */
    assert_null(arena_locker(&swap_state()->arena, 0, 16 * MIB));
    assert_int_equal(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
    drop_arena();
}

/* An arena that the daemon gives piece by piece is used as far as it goes. */
static void what_there_is_room_for_leaves_first(void **state)
{
    CUdeviceptr first = take(10 * MIB), second = take(10 * MIB), third = take(26 * MIB);
    const CUdeviceptr all[] = {first, second, third};
    const uint64_t sizes[] = {10 * MIB, 10 * MIB, 26 * MIB};
    for (unsigned i = 0; i < 3; i++)
        fill(all[i], sizes[i], i);
    drop_arena();
    swap_state()->arena.is_given = true;
    uint64_t free_before = card_free();
    assert_int_equal(swap_evict(NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_false(swap_state()->is_evicted);
    assert_int_equal(swap_bytes().resident_bytes, 46 * MIB);
    give_chunk(16 * MIB);
    assert_int_equal(swap_evict(NULL), CUDA_ERROR_OUT_OF_MEMORY);
    uint64_t evicted = swap_bytes().evicted_bytes;
    assert_true(evicted >= 10 * MIB && evicted <= 16 * MIB);
    assert_int_equal(card_free(), free_before + evicted);
    assert_int_equal(swap_bytes().resident_bytes, 46 * MIB - evicted);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS); /* it may also come back from here */
    for (unsigned i = 0; i < 3; i++)
        check(all[i], sizes[i], i);
    fill(first, 10 * MIB, 7);
    assert_int_equal(swap_evict(NULL), CUDA_ERROR_OUT_OF_MEMORY);
    give_chunk(16 * MIB);
    assert_int_equal(swap_evict(NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(swap_bytes().evicted_bytes > evicted);
    give_chunk(16 * MIB);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_bytes().resident_bytes, 0);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(first, 10 * MIB, 7);
    check(second, 10 * MIB, 1);
    check(third, 26 * MIB, 2);
    swap_state()->arena.is_given = false;
}

/* What others need goes back, but for what holds the only copy of something. */
static void host_memory_goes_back_where_others_need_it(void **state)
{
    CUdeviceptr address = take(26 * MIB);
    fill(address, 26 * MIB, 1);
    drop_arena();
    for (unsigned i = 0; i < 4; i++)
        give_chunk(16 * MIB);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    while (swap_give_back_chunk(0))
        continue;
    assert_int_equal(swap_state()->arena.ready_bytes, 32 * MIB);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_true(swap_give_back_chunk(31 * MIB));
    assert_false(swap_give_back_chunk(16 * MIB));
    assert_int_equal(swap_state()->arena.ready_bytes, 16 * MIB);
    drop_arena();
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS); /* this arena grows by itself */
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(address, 26 * MIB, 1);
}

static void a_restore_without_room_changes_nothing(void **state)
{
    CUdeviceptr first = take(16 * MIB), second = take(16 * MIB), others;
    fill(first, 16 * MIB, 1);
    fill(second, 16 * MIB, 2);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(real(cuMemAlloc_v2)(&others, card_free() - 20 * MIB),
                     CUDA_SUCCESS); /* another program's */
    uint64_t left = card_free();
    assert_int_equal(swap_restore(NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(card_free(), left);
    assert_int_equal(swap_bytes().evicted_bytes, 32 * MIB);
    assert_int_equal(real(cuMemFree_v2)(others), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(first, 16 * MIB, 1);
    check(second, 16 * MIB, 2);
}

/* --- A driver that fails on the way ---------------------------------------------------------------- */

static unsigned calls_left; /* until all fail */
static CUresult (*driver_unmap)(CUdeviceptr, size_t);
static CUresult (*driver_map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
static CUresult (*driver_out)(void *, CUdeviceptr, size_t, CUstream);
static CUresult (*driver_in)(CUdeviceptr, const void *, size_t, CUstream);

static bool is_served(void)
{
    return calls_left && calls_left--;
}

static CUresult unmap_or_fail(CUdeviceptr address, size_t bytes)
{
    return is_served() ? driver_unmap(address, bytes) : CUDA_ERROR_UNKNOWN;
}

static CUresult map_or_fail(CUdeviceptr address, size_t bytes, size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    return is_served() ? driver_map(address, bytes, offset, handle, flags) : CUDA_ERROR_UNKNOWN;
}

static CUresult out_or_fail(void *place, CUdeviceptr address, size_t bytes, CUstream stream)
{
    return bytes < MIB || is_served() ? driver_out(place, address, bytes, stream) : CUDA_ERROR_UNKNOWN;
}

static CUresult in_or_fail(CUdeviceptr address, const void *place, size_t bytes, CUstream stream)
{
    return is_served() ? driver_in(address, place, bytes, stream) : CUDA_ERROR_UNKNOWN;
}

enum { EXTENTS = 4 };

/* What has changed since its last copy. */
static void fill_all(const CUdeviceptr *addresses, unsigned seed)
{
    for (unsigned i = 0; i < EXTENTS; i++)
        fill(addresses[i], 2 * MIB, seed + i);
}

static void check_all(const CUdeviceptr *addresses, unsigned seed)
{
    for (unsigned i = 0; i < EXTENTS; i++)
        check(addresses[i], 2 * MIB, seed + i);
}

static void a_move_that_fails_at_any_step_loses_nothing(void **state)
{
    CUdeviceptr addresses[EXTENTS];
    unsigned seed = 1;
    driver_unmap = real(cuMemUnmap), driver_map = real(cuMemMap);
    driver_out = real(cuMemcpyDtoHAsync_v2), driver_in = real(cuMemcpyHtoDAsync_v2);
    for (unsigned i = 0; i < EXTENTS; i++) {
        addresses[i] = take(2 * MIB);
    }
    for (unsigned step = 0; step < EXTENTS; step++) {
        for (unsigned way = 0; way < 2; way++) {
            fill_all(addresses, seed += EXTENTS);
            calls_left = step;
            if (way)
                SET(cuMemUnmap, unmap_or_fail);
            else
                SET(cuMemcpyDtoHAsync_v2, out_or_fail);
            assert_int_equal(swap_evict(NULL), CUDA_ERROR_UNKNOWN);
            SET(cuMemUnmap, driver_unmap);
            SET(cuMemcpyDtoHAsync_v2, driver_out);
            assert_int_equal(swap_bytes().evicted_bytes, 0);
            check_all(addresses, seed);
        }
        for (unsigned way = 0; way < 2; way++) {
            assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
            calls_left = step;
            if (way)
                SET(cuMemMap, map_or_fail);
            else
                SET(cuMemcpyHtoDAsync_v2, in_or_fail);
            assert_int_equal(swap_restore(NULL), CUDA_ERROR_UNKNOWN);
            SET(cuMemMap, driver_map);
            SET(cuMemcpyHtoDAsync_v2, driver_in);
            assert_int_equal(swap_bytes().resident_bytes, 0);
            assert_int_equal(card_free(), free_at_first);
            assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
            check_all(addresses, seed);
        }
    }
}

/* What the driver does not unmap after a restore that failed holds nothing yet: it comes, or leaves, by its copy. */
static void memory_that_came_without_its_contents_is_not_taken_for_restored(void **state)
{
    CUdeviceptr addresses[EXTENTS];
    unsigned seed = 1;
    driver_unmap = real(cuMemUnmap), driver_in = real(cuMemcpyHtoDAsync_v2);
    for (unsigned i = 0; i < EXTENTS; i++)
        addresses[i] = take(2 * MIB);
    for (unsigned way = 0; way < 3; way++) {
        fill_all(addresses, seed += EXTENTS);
        assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
        calls_left = 1;
        SET(cuMemcpyHtoDAsync_v2, in_or_fail);
        SET(cuMemUnmap, unmap_or_fail);
        assert_int_equal(way == 2 ? swap_restore_part(0, 6 * MIB, NULL) : swap_restore(NULL),
                         CUDA_ERROR_UNKNOWN);
        SET(cuMemcpyHtoDAsync_v2, driver_in);
        SET(cuMemUnmap, driver_unmap);
        assert_true(swap_bytes().resident_bytes > 0);
        if (way == 1)
            assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
        assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
        check_all(addresses, seed);
    }
}

static void a_part_comes_ahead_and_leaves_without_a_copy(void **state)
{
    CUdeviceptr addresses[EXTENTS];
    driver_out = real(cuMemcpyDtoHAsync_v2), driver_in = real(cuMemcpyHtoDAsync_v2);
    for (unsigned i = 0; i < EXTENTS; i++)
        addresses[i] = take(2 * MIB);
    fill_all(addresses, 5);
    assert_int_equal(swap_restore_part(0, 4 * MIB, NULL), CUDA_SUCCESS); /* all is here: nothing comes */
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore_part(1, 5 * MIB, NULL), CUDA_SUCCESS); /* nothing is of that device */
    assert_int_equal(swap_bytes().resident_bytes, 0);
    assert_int_equal(swap_restore_part(0, 5 * MIB, NULL), CUDA_SUCCESS);
    assert_int_equal(swap_bytes().resident_bytes, 4 * MIB);
    calls_left = 0; /* of copies out: none is made */
    SET(cuMemcpyDtoHAsync_v2, out_or_fail);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    SET(cuMemcpyDtoHAsync_v2, driver_out);
    assert_int_equal(swap_bytes().resident_bytes, 0);
    assert_int_equal(card_free(), free_at_first);
    for (unsigned step = 0; step < 2; step++) { /* one that fails leaves what came before it */
        assert_int_equal(swap_restore_part(0, 2 * MIB, NULL), CUDA_SUCCESS);
        calls_left = step;
        SET(cuMemcpyHtoDAsync_v2, in_or_fail);
        assert_int_equal(swap_restore_part(0, 4 * MIB, NULL), CUDA_ERROR_UNKNOWN);
        SET(cuMemcpyHtoDAsync_v2, driver_in);
        assert_int_equal(swap_bytes().resident_bytes, 2 * MIB * (step + 1));
    }
    assert_int_equal(swap_restore_part(0, 2 * MIB * EXTENTS, NULL), CUDA_SUCCESS);
    assert_int_equal(swap_bytes().evicted_bytes, 0);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check_all(addresses, 5);
    fill_all(addresses, 7); /* and what is written from then on leaves as any other */
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore_part(0, 4 * MIB, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(addresses[0]), CUDA_SUCCESS); /* one that is ahead */
    addresses[0] = take(2 * MIB);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    fill(addresses[0], 2 * MIB, 7);
    check_all(addresses, 7);
}

/* Eviction stops half-way, and what has gone cannot return at once. */
static void what_is_half_evicted_is_whole_again_after_the_next_restore(void **state)
{
    CUdeviceptr addresses[EXTENTS];
    for (unsigned i = 0; i < EXTENTS; i++) {
        addresses[i] = take(2 * MIB);
        fill(addresses[i], 2 * MIB, i + 1);
    }
    calls_left = 2;
    SET(cuMemUnmap, unmap_or_fail);
    SET(cuMemMap, map_or_fail);
    assert_int_equal(swap_evict(NULL), CUDA_ERROR_UNKNOWN);
    SET(cuMemUnmap, driver_unmap);
    SET(cuMemMap, driver_map);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_bytes().evicted_bytes, 0);
    for (unsigned i = 0; i < EXTENTS; i++)
        check(addresses[i], 2 * MIB, i + 1);
}

static void extents_go_with_their_context(void **state)
{
    CUcontext other;
    CUdeviceptr kept = take(3 * MIB);
    fill(kept, 3 * MIB, 1);
    assert_int_equal(cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
    assert_true(take(4 * MIB) && take(10));
    assert_int_equal(swap_bytes().resident_bytes, 4 * MIB + 4 * MIB + 2 * MIB);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(cuCtxDestroy_v2(other), CUDA_SUCCESS);
    assert_int_equal(swap_bytes().evicted_bytes, 4 * MIB);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(kept, 3 * MIB, 1);
}

/* --- Physical memory that the program made --------------------------------------------------------- */

static const CUmemAllocationProp on_card = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAccessDesc read_and_write = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static CUdeviceptr reserve(uint64_t bytes)
{
    CUdeviceptr address;
    assert_int_equal(cuMemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    return address;
}

static CUmemGenericAllocationHandle make(uint64_t bytes)
{
    CUmemGenericAllocationHandle handle;
    assert_int_equal(cuMemCreate(&handle, bytes, &on_card, 0), CUDA_SUCCESS);
    return handle;
}

static void show(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
    assert_int_equal(cuMemMap(address, bytes, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemSetAccess(address, bytes, &read_and_write, 1), CUDA_SUCCESS);
}

static void what_the_program_maps_itself_leaves_and_comes_back(void **state)
{
    enum { BYTES = 4 << 20 };
    CUdeviceptr twice = reserve(2 * BYTES), late = reserve(BYTES);
    CUmemGenericAllocationHandle first = make(BYTES), unmapped = make(BYTES), retained;
    CUmemAllocationProp properties;
    unsigned long long flags = 77;
    show(twice, BYTES, first);
    show(twice + BYTES, BYTES, first); /* the same memory at two addresses */
    fill(twice, BYTES, 1);
    show(late, BYTES, unmapped);
    fill(late, BYTES, 2);
    assert_int_equal(cuMemUnmap(late, BYTES), CUDA_SUCCESS);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(card_free(), free_at_first);
    assert_int_equal(swap_bytes().evicted_bytes, 2 * BYTES);

    CUdeviceptr base;
    size_t range_bytes;
    unsigned type;
    assert_int_equal(cuMemGetAddressRange_v2(&base, &range_bytes, twice + 5), CUDA_SUCCESS);
    assert_int_equal(base, twice);
    assert_int_equal(range_bytes, BYTES);
    assert_int_equal(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, twice + 5), CUDA_SUCCESS);
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    assert_int_equal(cuMemGetAccess(&flags, &read_and_write.location, twice), CUDA_SUCCESS);
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_int_equal(cuMemGetAllocationPropertiesFromHandle(&properties, first), CUDA_SUCCESS);
    assert_int_equal(properties.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    assert_int_equal(cuMemRetainAllocationHandle(&retained, (void *)(uintptr_t)(twice + 5)), CUDA_SUCCESS);
    assert_int_equal(retained, first);
    assert_int_equal(cuMemRelease(retained), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(twice, 2 * BYTES), CUDA_ERROR_INVALID_VALUE); /* mapped still */
    assert_int_equal(cuMemMap(twice, BYTES, 0, unmapped, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(late, 2 * BYTES, 0, unmapped, 0), CUDA_ERROR_INVALID_VALUE);
    show(late, BYTES, unmapped);
    assert_int_equal(cuMemUnmap(twice + BYTES, BYTES), CUDA_SUCCESS);
    CUmemGenericAllocationHandle born_away = make(BYTES);
    show(twice + BYTES, BYTES, born_away);
    assert_int_equal(cuMemRelease(born_away), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(born_away), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(card_free(), free_at_first);

    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(twice, BYTES, 1);
    check(late, BYTES, 2);
    fill(twice + BYTES, BYTES, 3);
    check(twice, BYTES, 1);
    assert_int_equal(cuMemRelease(first), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(unmapped), CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap(twice, 2 * BYTES), CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap(late, BYTES), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(twice, 2 * BYTES), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(late, BYTES), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
    assert_int_equal(swap_bytes().resident_bytes, 0);
}

struct answer {
    CUresult result;
    uint64_t value;
};

static struct answer ask(CUpointer_attribute which, CUdeviceptr address)
{
    struct answer answer = {.value = 0};
    answer.result = cuPointerGetAttribute(&answer.value, which, address);
    return answer;
}

static void each_attribute_of_a_pointer_is_the_same_while_evicted(void **state)
{
    enum { BYTES = 4 << 20, KINDS = 3, LAST = CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE };
    CUmemAllocationProp shareable = on_card;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr addresses[KINDS] = {take(BYTES), reserve(BYTES)};
    struct answer before[KINDS][LAST + 1];
    shareable.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    assert_int_equal(cuMemCreate(&handle, BYTES, &shareable, 0), CUDA_SUCCESS);
    show(addresses[1], BYTES, handle);
    assert_int_equal(cuMemAllocAsync(&addresses[2], BYTES, NULL), CUDA_SUCCESS);
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (unsigned which = 1; which <= LAST; which++)
            before[kind][which] = ask((CUpointer_attribute)which, addresses[kind]);
    assert_int_equal(before[1][CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES].value,
                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (unsigned which = 1; which <= LAST; which++) {
            struct answer now = ask((CUpointer_attribute)which, addresses[kind]);
            if (now.result != before[kind][which].result || now.value != before[kind][which].value)
                fail_msg("attribute %u of kind %u: %d and %llu, before %d and %llu", which, kind, now.result,
                         (unsigned long long)now.value, before[kind][which].result,
                         (unsigned long long)before[kind][which].value);
        }
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(addresses[2]), CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap(addresses[1], BYTES), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(addresses[1], BYTES), CUDA_SUCCESS);
}

static uint64_t id_of(CUdeviceptr address)
{
    struct answer told = ask(CU_POINTER_ATTRIBUTE_BUFFER_ID, address);
    assert_int_equal(told.result, CUDA_SUCCESS);
    return told.value;
}

/* Other memory at the same address has another ID, however the program gets it: whoever has registered what was there
 * before would take it for the same. And none has the ID of the driver's own. */
static void memory_that_is_made_anew_at_an_address_has_another_id(void **state)
{
    enum { BYTES = 4 << 20 };
    CUdeviceptr small = take(4096), large = take(BYTES), pooled, mapped = reserve(BYTES);
    CUmemGenericAllocationHandle handle;
    uint64_t small_id = id_of(small), large_id = id_of(large);
    assert_int_equal(id_of(small + 100), small_id);
    assert_int_equal(id_of(large + BYTES - 1), large_id);
    assert_true(small_id != small && large_id != large && small_id >> 48 && large_id >> 48);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(id_of(small), small_id);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(id_of(large), large_id);
    assert_int_equal(cuMemFree_v2(small), CUDA_SUCCESS);
    assert_int_equal(take(4096), small);
    assert_int_not_equal(id_of(small), small_id);
    assert_int_equal(cuMemFree_v2(large), CUDA_SUCCESS);
    large = take(BYTES);
    assert_int_not_equal(id_of(large), large_id);
    assert_int_equal(cuMemFree_v2(large), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocAsync(&pooled, BYTES, NULL), CUDA_SUCCESS);
    uint64_t pooled_id = id_of(pooled);
    assert_int_equal(cuMemFreeAsync(pooled, NULL), CUDA_SUCCESS);
    CUdeviceptr first = pooled;
    assert_int_equal(cuMemAllocAsync(&pooled, BYTES, NULL), CUDA_SUCCESS);
    assert_int_equal(pooled, first);
    assert_int_not_equal(id_of(pooled), pooled_id);
    assert_int_equal(ask(CU_POINTER_ATTRIBUTE_CONTEXT, pooled).result, CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(ask(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pooled).value, 0);
    assert_int_equal(cuMemFreeAsync(pooled, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemCreate(&handle, BYTES, &on_card, 0), CUDA_SUCCESS);
    show(mapped, BYTES, handle);
    uint64_t mapped_id = id_of(mapped);
    assert_int_equal(cuMemUnmap(mapped, BYTES), CUDA_SUCCESS);
    show(mapped, BYTES, handle);
    assert_int_not_equal(id_of(mapped), mapped_id);
    assert_int_equal(cuMemUnmap(mapped, BYTES), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(mapped, BYTES), CUDA_SUCCESS);
}

static unsigned access_calls;
static CUresult (*driver_grant)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);

static CUresult count_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    access_calls++;
    return driver_grant(address, bytes, access, count);
}

/* As PyTorch's expandable segments: many small pieces side by side. Each call for access costs as much as a large one. */
static void what_lies_side_by_side_is_opened_by_one_call(void **state)
{
    enum { COUNT = 48, BYTES = 2 << 20, ALL = COUNT * BYTES };
    CUmemGenericAllocationHandle handles[COUNT];
    CUdeviceptr segment = reserve(ALL);
    for (unsigned i = 0; i < COUNT; i++) {
        handles[i] = make(BYTES);
        show(segment + i * (uint64_t)BYTES, BYTES, handles[i]);
    }
    fill(segment, ALL, 3);
    driver_grant = real(cuMemSetAccess);
    SET(cuMemSetAccess, count_access);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    access_calls = 0;
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_in_range(access_calls, 1,
                    COUNT - 1); /* how many are there by then to be opened together, the CPUs decide */
    access_calls = 0;
    CUdeviceptr pieces = take(ALL);
    assert_int_equal(access_calls, 1);
    SET(cuMemSetAccess, driver_grant);
    check(segment, ALL, 3);
    assert_int_equal(cuMemFree_v2(pieces), CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap(segment, ALL), CUDA_SUCCESS);
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(cuMemRelease(handles[i]), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(segment, ALL), CUDA_SUCCESS);
}

/* As vLLM's sleep mode does: it keeps the addresses and has other memory there when it wakes. */
/* What the driver refuses, it refuses while the memory is away too: or the memory could not come back. */
static void nothing_is_mapped_over_memory_of_the_host_while_evicted(void **state)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_HOST, 0}};
    CUmemGenericAllocationHandle host, device;
    CUdeviceptr addresses;
    assert_int_equal(cuMemAddressReserve(&addresses, 8 * MIB, 0, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemCreate(&host, 2 * MIB, &properties, 0), CUDA_SUCCESS);
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    assert_int_equal(cuMemCreate(&device, 4 * MIB, &properties, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemMap(addresses + 2 * MIB, 2 * MIB, 0, host, 0), CUDA_SUCCESS);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemMap(addresses, 4 * MIB, 0, device, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(addresses + 2 * MIB, 4 * MIB, 0, device, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemUnmap(addresses + 2 * MIB, 2 * MIB), CUDA_SUCCESS);
    assert_int_equal(cuMemMap(addresses, 4 * MIB, 0, device, 0), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap(addresses, 4 * MIB), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(device), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(host), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(addresses, 8 * MIB), CUDA_SUCCESS);
}

/* The driver would take the addresses for free, and the memory could never come back. */
static void nothing_that_stays_is_mapped_over_memory_that_is_away(void **state)
{
    enum { BYTES = 4 << 20 };
    CUmemAllocationProp shareable = on_card, of_host = on_card;
    CUmemGenericAllocationHandle stays, host, away = make(BYTES);
    CUdeviceptr address = reserve(2 * BYTES);
    int fd;
    shareable.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    of_host.location.type = CU_MEM_LOCATION_TYPE_HOST;
    assert_int_equal(cuMemCreate(&stays, BYTES, &shareable, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemExportToShareableHandle(&fd, stays, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                     CUDA_SUCCESS);
    close(fd);
    assert_int_equal(cuMemCreate(&host, BYTES, &of_host, 0), CUDA_SUCCESS);
    show(address, BYTES, away);
    fill(address, BYTES, 1);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    for (CUdeviceptr at = address; at < address + BYTES; at += 2 * MIB) {
        assert_int_equal(cuMemMap(at, BYTES, 0, stays, 0), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(cuMemMap(at, BYTES, 0, host, 0), CUDA_ERROR_INVALID_VALUE);
    }
    show(address + BYTES, BYTES, stays);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(address, BYTES, 1);
    assert_int_equal(cuMemUnmap(address, 2 * BYTES), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(stays), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(host), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(away), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(address, 2 * BYTES), CUDA_SUCCESS);
}

static CUresult (*driver_map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);

/* All leaves right before the call, if anything can leave then. */
static CUresult evict_and_map(CUdeviceptr address, size_t bytes, size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    if (pthread_mutex_trylock(&swap_state()->lock) == 0) {
        pthread_mutex_unlock(&swap_state()->lock);
        swap_evict(NULL);
    }
    return driver_map(address, bytes, offset, handle, flags);
}

static void nothing_is_mapped_over_memory_that_leaves_at_that_moment(void **state)
{
    enum { BYTES = 2 << 20 };
    CUmemAllocationProp of_host = on_card;
    CUmemGenericAllocationHandle host, moves = make(BYTES);
    CUdeviceptr address = reserve(BYTES);
    of_host.location.type = CU_MEM_LOCATION_TYPE_HOST;
    assert_int_equal(cuMemCreate(&host, BYTES, &of_host, 0), CUDA_SUCCESS);
    show(address, BYTES, moves);
    fill(address, BYTES, 1);
    driver_map = real(cuMemMap);
    SET(cuMemMap, evict_and_map);
    assert_int_equal(cuMemMap(address, BYTES, 0, host, 0), CUDA_ERROR_INVALID_VALUE);
    SET(cuMemMap, driver_map);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(address, BYTES, 1);
    assert_int_equal(cuMemUnmap(address, BYTES), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(host), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(moves), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(address, BYTES), CUDA_SUCCESS);
}

static void a_program_that_unmaps_while_evicted_takes_its_memory_with_it(void **state)
{
    enum { BYTES = 2 << 20 };
    CUdeviceptr address = reserve(BYTES);
    CUmemGenericAllocationHandle handle = make(BYTES);
    show(address, BYTES, handle);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(swap_bytes().evicted_bytes, BYTES);
    assert_int_equal(cuMemUnmap(address, BYTES), CUDA_SUCCESS);
    assert_int_equal(swap_bytes().evicted_bytes, 0);
    assert_int_equal(used(), 0);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(card_free(), free_at_first);
    handle = make(BYTES);
    show(address, BYTES, handle);
    fill(address, BYTES, 1);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap(address, BYTES), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(address, BYTES), CUDA_SUCCESS);
}

/* Others are not sent away for it in vain. */
static void what_is_made_with_flags_that_we_do_not_know_stays_on_the_card_and_is_counted(void **state)
{
    enum { BYTES = 4 << 20, KINDS = 2 };
    CUmemAllocationProp kinds[KINDS] = {on_card, on_card};
    struct agent_memory before, memory;
    kinds[0].allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
    kinds[1].allocFlags.reserved[2] = 1;
    swap_mover.count(&before);
    for (unsigned i = 0; i < KINDS; i++) {
        CUmemGenericAllocationHandle handle, moves = make(BYTES);
        assert_int_equal(cuMemCreate(&handle, BYTES, &kinds[i], 0), CUDA_SUCCESS);
        swap_mover.count(&memory);
        assert_int_equal(memory.stays_bytes[WIRE_STAYS_PROPERTIES],
                         before.stays_bytes[WIRE_STAYS_PROPERTIES] + BYTES);
        assert_int_equal(wire_stays_sum(memory.stays_bytes), wire_stays_sum(before.stays_bytes) + BYTES);
        assert_int_equal(memory.resident_bytes, before.resident_bytes + BYTES);
        assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
        assert_int_equal(card_free(), free_at_first - BYTES);
        assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
        assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
        assert_int_equal(cuMemRelease(moves), CUDA_SUCCESS);
    }
}

/* As many as a large card has of the smallest. */
static void a_process_may_have_more_extents_than_16_bits_count(void **state)
{
    enum { BYTES = 2 << 20, MANY = 70000 };
    struct extents *extents = &swap_state()->extents;
    uint32_t end = extents->end, spare = extents->spare;
    CUdeviceptr address = reserve(BYTES);
    extents->spare = 0;
    extents->end = MANY; /* those before were given back */
    CUmemGenericAllocationHandle handle = make(BYTES);
    show(address, BYTES, handle);
    fill(address, BYTES, 1);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(card_free(), free_at_first);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(address, BYTES, 1);
    assert_int_equal(cuMemUnmap(address, BYTES), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(address, BYTES), CUDA_SUCCESS);
    extents->end = end;
    extents->spare = spare;
}

static void memory_that_others_may_reach_stays_on_the_card(void **state)
{
    enum { BYTES = 2 << 20 };
    CUmemAllocationProp shareable = on_card;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address = reserve(BYTES), moves = take(BYTES), registered = take(BYTES);
    unsigned sync = 1;
    int fd;
    shareable.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    assert_int_equal(cuMemCreate(&handle, BYTES, &shareable, 0), CUDA_SUCCESS);
    show(address, BYTES, handle);
    fill(address, BYTES, 1);
    fill(moves, BYTES, 2);
    assert_int_equal(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                     CUDA_SUCCESS);
    close(fd);
    assert_int_equal(cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, registered),
                     CUDA_SUCCESS);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_bytes().evicted_bytes, BYTES);
    assert_int_equal(swap_state()->pinned_bytes[WIRE_STAYS_EXPORTED], BYTES);
    assert_int_equal(swap_state()->pinned_bytes[WIRE_STAYS_SYNC_MEMOPS], BYTES);
    assert_int_equal(card_free(), free_at_first - 2 * BYTES);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(address, BYTES, 1);
    check(moves, BYTES, 2);
    assert_int_equal(cuMemFree_v2(registered), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap(address, BYTES), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(address, BYTES), CUDA_SUCCESS);
    assert_int_equal(pinned_bytes(), 0);
}

/* And counts as memory that cannot move, so that nobody has it moved again and again. */
static void what_has_no_context_to_leave_by_stays_on_the_card(void **state)
{
    enum { BYTES = 4 << 20 };
    CUmemAllocationProp on_other = on_card;
    CUmemGenericAllocationHandle handle, freed;
    CUcontext other;
    struct agent_memory before, memory;
    on_other.location.id = 1;
    swap_mover.count(&before);
    assert_int_equal(cuCtxCreate_v2(&other, 0, 1), CUDA_SUCCESS);
    assert_int_equal(cuMemCreate(&handle, BYTES, &on_other, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemCreate(&freed, 2 * BYTES, &on_other, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxDestroy_v2(other), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    CUdeviceptr moves = take(BYTES);
    fill(moves, BYTES, 1);
    for (unsigned again = 0; again < 2; again++) {
        assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
        swap_mover.count(&memory);
        assert_int_equal(memory.resident_bytes, 0);
        assert_int_equal(memory.evicted_bytes, BYTES);
        assert_int_equal(wire_stays_sum(memory.stays_bytes), wire_stays_sum(before.stays_bytes) + 3 * BYTES);
    }
    assert_int_equal(cuMemRelease(freed), CUDA_SUCCESS);
    swap_mover.count(&memory);
    assert_int_equal(wire_stays_sum(memory.stays_bytes), wire_stays_sum(before.stays_bytes) + BYTES);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    swap_mover.count(&memory);
    assert_int_equal(memory.resident_bytes, 2 * BYTES);
    assert_int_equal(memory.evicted_bytes, 0);
    assert_int_equal(wire_stays_sum(memory.stays_bytes), wire_stays_sum(before.stays_bytes));
    check(moves, BYTES, 1);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(moves), CUDA_SUCCESS);
}

/* In another container, a process may have the same number as this one. */
static void a_handle_is_a_process_s_own_by_more_than_its_number(void **state)
{
    enum { SECRET_AT = 8, LAZY_PEER_ACCESS = 1 }; /* struct handle of swap_ipc.c */
    CUipcMemHandle handle;
    CUdeviceptr address = take(3 * MIB), theirs;
    assert_int_equal(cuIpcGetMemHandle(&handle, address), CUDA_SUCCESS);
    assert_int_equal(cuIpcOpenMemHandle_v2(&theirs, handle, LAZY_PEER_ACCESS), CUDA_ERROR_INVALID_CONTEXT);
    handle.reserved[SECRET_AT] ^= 1;
    assert_int_equal(cuIpcOpenMemHandle_v2(&theirs, handle, LAZY_PEER_ACCESS),
                     CUDA_ERROR_INVALID_VALUE); /* there is no such process */
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

/* --- Host memory ----------------------------------------------------------------------------------- */

/* Files of memory without a name or a descriptor are there as long as they are mapped. */
static uint64_t mapped_bytes(void)
{
    uint64_t bytes = 0;
    char line[512];
    FILE *file = fopen("/proc/self/maps", "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        unsigned long begin, end;
        if (strstr(line, "memfd:gpuslice-arena") && sscanf(line, "%lx-%lx", &begin, &end) == 2)
            bytes += end - begin;
    }
    fclose(file);
    return bytes;
}

static void host_memory_that_nothing_needs_goes_back(void **state)
{
    const struct arena *arena = &swap_state()->arena;
    while (swap_give_back_chunk(0)) /* of the tests before */
        continue;
    CUdeviceptr large = take(190 * MIB), small = take(10 * MIB);
    fill(small, 10 * MIB, 1);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(arena->ready_bytes, 4 * ARENA_CHUNK_BYTES);
    assert_false(swap_has_spare_chunk());
    assert_int_equal(cuMemFree_v2(large), CUDA_SUCCESS);
    assert_true(swap_has_spare_chunk());
    assert_false(swap_give_back_chunk(UINT64_MAX)); /* the only copy of the other is there */
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(mapped_bytes(), 4 * ARENA_CHUNK_BYTES);
    while (swap_has_spare_chunk())
        assert_true(swap_give_back_chunk(UINT64_MAX));
    assert_int_equal(arena->ready_bytes, 2 * ARENA_CHUNK_BYTES);
    assert_int_equal(mapped_bytes(), 2 * ARENA_CHUNK_BYTES);
    for (unsigned round = 0; round < 2; round++) {
        assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
        assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
        check(small, 10 * MIB, 1);
    }
    large = take(190 * MIB); /* and is made again */
    fill(large, 190 * MIB, 2);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(arena->ready_bytes, 4 * ARENA_CHUNK_BYTES);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(large, 190 * MIB, 2);
    check(small, 10 * MIB, 1);
}

/* --- Unchanged memory ------------------------------------------------------------------------------ */

static uint64_t copied_bytes;

static CUresult count_out(void *place, CUdeviceptr address, size_t bytes, CUstream stream)
{
    copied_bytes += bytes > MIB ? bytes : 0; /* digests are copied too */
    return driver_out(place, address, bytes, stream);
}

static void what_has_not_changed_since_its_restore_is_not_copied_out_again(void **state)
{
    enum { BYTES = 4 << 20 };
    CUdeviceptr changed = take(BYTES), same = take(BYTES);
    unsigned char byte = 77;
    driver_out = real(cuMemcpyDtoHAsync_v2);
    fill(changed, BYTES, 1);
    fill(same, BYTES, 2);
    SET(cuMemcpyDtoHAsync_v2, count_out);
    copied_bytes = 0;
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(copied_bytes, 2 * BYTES);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyHtoD_v2(changed + 1234567, &byte, 1), CUDA_SUCCESS);
    copied_bytes = 0;
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(copied_bytes, BYTES);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    copied_bytes = 0;
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(copied_bytes, 0);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    SET(cuMemcpyDtoHAsync_v2, driver_out);
    check(same, BYTES, 2);
    assert_int_equal(cuMemcpyDtoH_v2(&byte, changed + 1234567, 1), CUDA_SUCCESS);
    assert_int_equal(byte, 77);
}

/* A digest that tells nothing of the bytes, as one of a kernel with a fault would. */
static void memory_is_compared_with_its_copy_where_that_is_asked_for(void **state)
{
    enum { BYTES = 20 << 20 };
    CUdeviceptr address = take(BYTES), other = take(BYTES);
    driver_out = real(cuMemcpyDtoHAsync_v2);
    fill(address, BYTES, 1);
    fill(other, BYTES, 2);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    /* The last byte of the first one's copy, so the digest is that of something else. */
    const struct extent *piece = extents_find(&swap_state()->extents, address + BYTES - 1);
    swap_state()->arena.base[piece->place + piece->bytes - 1] ^= 1;
    swap_state()->clean_mode = CLEAN_VERIFY;
    copied_bytes = 0;
    SET(cuMemcpyDtoHAsync_v2, count_out);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    SET(cuMemcpyDtoHAsync_v2, driver_out);
    assert_int_equal(copied_bytes, 2 * BYTES + piece->bytes); /* both to be compared, and one piece away */
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(address, BYTES, 1);
    check(other, BYTES, 2);
    swap_state()->clean_mode = CLEAN_TRUST;
}

static void all_is_copied_where_that_is_asked_for(void **state)
{
    enum { BYTES = 20 << 20 };
    CUdeviceptr address = take(BYTES);
    driver_out = real(cuMemcpyDtoHAsync_v2);
    fill(address, BYTES, 1);
    swap_state()->clean_mode = CLEAN_COPY;
    SET(cuMemcpyDtoHAsync_v2, count_out);
    for (unsigned round = 0; round < 2; round++) {
        copied_bytes = 0;
        assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
        assert_int_equal(copied_bytes, BYTES);
        assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    }
    SET(cuMemcpyDtoHAsync_v2, driver_out);
    swap_state()->clean_mode = CLEAN_TRUST;
    check(address, BYTES, 1);
}

static void the_environment_says_what_is_trusted(void **state)
{
    setenv("GPUSLICE_UNCHANGED", "verify", 1);
    assert_int_equal(clean_mode_read(), CLEAN_VERIFY);
    setenv("GPUSLICE_UNCHANGED", "copy", 1);
    assert_int_equal(clean_mode_read(), CLEAN_COPY);
    setenv("GPUSLICE_UNCHANGED", "perhaps", 1);
    assert_int_equal(clean_mode_read(), CLEAN_COPY);
    unsetenv("GPUSLICE_UNCHANGED");
    assert_int_equal(clean_mode_read(), CLEAN_TRUST);
}

/* There is no room for digests on the card until something has left it. */
static void unchanged_memory_is_known_on_a_card_without_room(void **state)
{
    enum { COUNT = 16 };
    CUdeviceptr addresses[COUNT];
    uint64_t bytes = card_free() / COUNT;
    driver_out = real(cuMemcpyDtoHAsync_v2);
    for (unsigned i = 0; i < COUNT; i++) {
        addresses[i] = take(bytes);
        fill(addresses[i], bytes, i);
    }
    assert_int_equal(card_free(), 0);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(card_free(), 0);
    copied_bytes = 0;
    SET(cuMemcpyDtoHAsync_v2, count_out);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    SET(cuMemcpyDtoHAsync_v2, driver_out);
    assert_true(copied_bytes <= 3 * bytes);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    for (unsigned i = 0; i < COUNT; i++)
        check(addresses[i], bytes, i);
}

/* The GPU's clock in the tests below: copies take 1 ms for 1 MiB, digests as long as the test says. */
static const struct swap_tools *tools_seen;
static float digest_ms;

static CUresult tell_time(float *ms, CUevent from, CUevent to)
{
    bool is_of_digests = to == tools_seen->digests_done;
    *ms = is_of_digests ? digest_ms : 8;
    return CUDA_SUCCESS;
}

static uint64_t bytes_of_next_eviction(void)
{
    copied_bytes = 0;
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    return copied_bytes;
}

static void what_takes_longer_to_compare_than_to_copy_is_copied(void **state)
{
    enum { BYTES = 8 << 20 };
    CUdeviceptr address = take(BYTES);
    CUresult (*driver_elapsed)(float *, CUevent, CUevent) = real(cuEventElapsedTime);
    struct swap_tools *tools;
    fill(address, BYTES, 1);
    assert_int_equal(tools_find(context, &tools), CUDA_SUCCESS);
    tools_seen = tools;
    driver_out = real(cuMemcpyDtoHAsync_v2);
    SET(cuMemcpyDtoHAsync_v2, count_out);
    SET(cuEventElapsedTime, tell_time);
    digest_ms = 7;
    assert_int_equal(bytes_of_next_eviction(), BYTES);
    for (unsigned move = 0; move < 4; move++)
        assert_int_equal(bytes_of_next_eviction(), 0);
    digest_ms = 9; /* once tells nothing, as the GPU may have had other work */
    assert_int_equal(bytes_of_next_eviction(), 0);
    digest_ms = 7;
    assert_int_equal(bytes_of_next_eviction(), 0);
    digest_ms = 9;
    for (unsigned move = 0; move < 2; move++)
        assert_int_equal(bytes_of_next_eviction(), 0);
    assert_int_equal(bytes_of_next_eviction(), BYTES);
    digest_ms = 7; /* that is found out again, some time */
    unsigned moves = 0;
    while (bytes_of_next_eviction() && moves < 100)
        moves++;
    assert_in_range(moves, 1, 99);
    assert_int_equal(bytes_of_next_eviction(), 0);
    SET(cuMemcpyDtoHAsync_v2, driver_out);
    SET(cuEventElapsedTime, driver_elapsed);
    check(address, BYTES, 1);
}

static CUresult (*driver_launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned, CUstream, void **, void **);
static unsigned launches, blocks_launched;

static CUresult count_launch(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads_x,
                             unsigned threads_y, unsigned threads_z, unsigned shared, CUstream stream,
                             void **arguments, void **extra)
{
    launches++;
    blocks_launched += x;
    return driver_launch(function, x, y, z, threads_x, threads_y, threads_z, shared, stream, arguments,
                         extra);
}

/* 32 extents of a batch. */
/* The images that are loaded, and what the driver says of those that are cubins. */
static struct {
    CUresult (*driver)(CUmodule *, const void *);
    CUresult of_cubins;
    unsigned cubins, texts;
} loaded;

static CUresult count_and_load(CUmodule *module, const void *image)
{
    bool is_cubin = memcmp(image, "\177ELF", 4) == 0;
    loaded.cubins += is_cubin;
    loaded.texts += !is_cubin;
    return is_cubin && loaded.of_cubins != CUDA_SUCCESS ? loaded.of_cubins : loaded.driver(module, image);
}

static bool load_digester_anew(CUresult of_cubins)
{
    struct swap_tools *tools;
    loaded.driver = real(cuModuleLoadData);
    loaded.of_cubins = of_cubins;
    loaded.cubins = loaded.texts = 0;
    guard_lock(&swap_state()->lock);
    assert_int_equal(tools_find(context, &tools), CUDA_SUCCESS);
    digester_unload(tools);
    SET(cuModuleLoadData, count_and_load);
    bool is_loaded = digester_load(tools);
    SET(cuModuleLoadData, loaded.driver);
    guard_unlock(&swap_state()->lock);
    return is_loaded;
}

/* The build has cubins where it found ptxas. */
static void code_of_digests_is_compiled_only_where_no_cubin_runs(void **state)
{
    if (!digest_cubins[0].capability)
        skip();
    assert_true(load_digester_anew(CUDA_SUCCESS));
    assert_int_equal(loaded.cubins, 1);
    assert_int_equal(loaded.texts, 0);
    assert_true(load_digester_anew(CUDA_ERROR_NO_BINARY_FOR_GPU));
    assert_int_equal(loaded.cubins, 1);
    assert_int_equal(loaded.texts, 1);
    assert_false(load_digester_anew(CUDA_ERROR_OUT_OF_MEMORY)); /* the text would take as much */
    assert_int_equal(loaded.texts, 0);
}

static void the_digests_of_a_batch_are_one_launch(void **state)
{
    enum { COUNT = 32 };
    CUdeviceptr addresses[COUNT];
    struct swap_tools *tools;
    for (unsigned i = 0; i < COUNT; i++) {
        addresses[i] = take(2 * MIB);
        fill(addresses[i], 2 * MIB, i);
    }
    assert_int_equal(tools_find(context, &tools), CUDA_SUCCESS);
    assert_true(digester_load(tools));
    driver_launch = real(cuLaunchKernel);
    launches = blocks_launched = 0;
    SET(cuLaunchKernel, count_launch);
    digester_start(tools);
    struct digest digests[COUNT];
    for (unsigned i = 0; i < COUNT; i++)
        assert_true(digester_add(tools, addresses[i], 2 * MIB, &digests[i]));
    assert_true(digester_finish(tools));
    assert_int_equal(launches, 1);
    assert_int_equal(blocks_launched, COUNT * 2 * MIB / DIGEST_PART_BYTES);
    SET(cuLaunchKernel, driver_launch);
    for (unsigned i = 0; i < COUNT; i++)
        for (unsigned other = 0; other < i; other++)
            assert_memory_not_equal(&digests[i], &digests[other], sizeof(digests[i]));
}

/* Together they are more than one launch takes: one of them is cut in two. */
static void a_digest_is_the_same_however_launches_are_cut(void **state)
{
    enum { BYTES = 60 << 20, TIMES = 5 };
    CUdeviceptr address = take(BYTES);
    struct swap_tools *tools;
    struct digest digests[TIMES], other;
    fill(address, BYTES, 1);
    assert_int_equal(tools_find(context, &tools), CUDA_SUCCESS);
    assert_true(digester_load(tools));
    digester_start(tools);
    for (unsigned i = 0; i < TIMES; i++)
        assert_true(digester_add(tools, address, BYTES, &digests[i]));
    assert_true(digester_finish(tools));
    for (unsigned i = 1; i < TIMES; i++)
        assert_memory_equal(&digests[i], &digests[0], sizeof(digests[0]));
    /* Two words change places, in different parts. */
    uint64_t words[2], far = (50 << 20) + 8;
    assert_int_equal(cuMemcpyDtoH_v2(&words[0], address, 8), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH_v2(&words[1], address + far, 8), CUDA_SUCCESS);
    assert_true(words[0] != words[1]);
    assert_int_equal(cuMemcpyHtoD_v2(address, &words[1], 8), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyHtoD_v2(address + far, &words[0], 8), CUDA_SUCCESS);
    digester_start(tools);
    assert_true(digester_add(tools, address, BYTES, &other));
    assert_true(digester_finish(tools));
    assert_memory_not_equal(&other, &digests[0], sizeof(other));
}

static CUresult (*driver_load_module)(CUmodule *, const void *);
static CUresult (*driver_unload_module)(CUmodule);
static CUdeviceptr code;

/* As on a card, where code takes memory (FAKECUDA_MODULE_BYTES). */
static CUresult load_with_code(CUmodule *module, const void *image)
{
    CUresult result = real(cuMemAlloc_v2)(&code, 2 * MIB);
    return result == CUDA_SUCCESS ? driver_load_module(module, image) : result;
}

static CUresult unload_with_code(CUmodule module)
{
    assert_int_equal(real(cuMemFree_v2)(code), CUDA_SUCCESS);
    return driver_unload_module(module);
}

/* The card is full but for what the code of the digests takes. */
static void a_restore_that_lacks_room_gets_that_of_the_digests(void **state)
{
    CUdeviceptr addresses[2];
    struct swap_tools *tools;
    driver_load_module = real(cuModuleLoadData);
    driver_unload_module = real(cuModuleUnload);
    SET(cuModuleLoadData, load_with_code);
    SET(cuModuleUnload, unload_with_code);
    assert_int_equal(tools_find(context, &tools), CUDA_SUCCESS);
    digester_unload(tools);
    uint64_t bytes = card_free() / 2;
    for (unsigned i = 0; i < 2; i++) {
        addresses[i] = take(bytes);
        fill(addresses[i], bytes, i);
    }
    assert_int_equal(card_free(), 0);
    for (unsigned round = 0; round < 2; round++) {
        assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
        assert_non_null(tools->digester.module);
        assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
        assert_null(tools->digester.module);
        assert_int_equal(card_free(), 0);
    }
    SET(cuModuleLoadData, driver_load_module);
    SET(cuModuleUnload, driver_unload_module);
    for (unsigned i = 0; i < 2; i++)
        check(addresses[i], bytes, i);
}

/* What moves memory is there before the program has any: a stream of its own that it destroys is not met again. */
static void moves_make_no_stream_once_there_is_a_context(void **state)
{
    CUdeviceptr address = take(4 * MIB);
    CUstream streams[4];
    fill(address, 4 * MIB, 1);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(real(cuStreamCreate)(&streams[i], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(real(cuStreamDestroy_v2)(streams[i]), CUDA_SUCCESS);
    for (unsigned round = 0; round < 3; round++) {
        assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
        for (unsigned i = 0; i < 4; i++)
            assert_int_equal(real(cuStreamQuery)(streams[i]), CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    }
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(real(cuStreamQuery)(streams[i]), CUDA_ERROR_INVALID_HANDLE);
    check(address, 4 * MIB, 1);
}

/* A program that destroys what it destroyed before, and whose handles were given out again meanwhile. */
static void what_the_program_destroys_by_mistake_is_made_anew(void **state)
{
    CUdeviceptr address = take(4 * MIB);
    struct swap_tools *tools;
    fill(address, 4 * MIB, 1);
    for (unsigned round = 0; round < 4; round++) {
        assert_int_equal(tools_find(context, &tools), CUDA_SUCCESS);
        CUstream stream = round % 2 ? tools->copies : tools->digests;
        assert_int_equal(real(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
        assert_int_equal(real(cuEventDestroy_v2)(tools->done[round % 2]), CUDA_SUCCESS);
        /* It may have it as its own by now, and capture it. */
        if (round > 1) {
            assert_int_equal(real(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
            assert_int_equal(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
        }
        assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
        assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
        check(address, 4 * MIB, 1);
    }
}

/* The copy of changed memory breaks off: what was in the arena before is no copy of it any more. */
static void a_copy_that_broke_off_is_taken_for_none(void **state)
{
    enum { BYTES = 32 << 20 };
    CUdeviceptr address = take(BYTES);
    driver_out = real(cuMemcpyDtoHAsync_v2);
    fill(address, BYTES, 1);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    fill(address, BYTES, 2);
    calls_left = 2; /* of four pieces */
    SET(cuMemcpyDtoHAsync_v2, out_or_fail);
    assert_int_equal(swap_evict(NULL), CUDA_ERROR_UNKNOWN);
    SET(cuMemcpyDtoHAsync_v2, driver_out);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(address, BYTES, 2);
}

/* --- Another GPU ----------------------------------------------------------------------------------- */

static CUresult refuse_peer(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (access[i].location.id == 1)
            return CUDA_ERROR_NOT_SUPPORTED;
    return driver_set_access(address, bytes, access, count);
}

static CUresult reach_nobody(int *can, CUdevice device, CUdevice peer)
{
    *can = 0;
    return CUDA_SUCCESS;
}

static CUresult (*driver_create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                                 unsigned long long);
static CUresult (*driver_attribute)(int *, CUdevice_attribute, CUdevice);
static struct {
    unsigned calls, asked;
    bool is_refused;
} for_rdma;

static CUresult create_for_rdma(CUmemGenericAllocationHandle *handle, size_t bytes,
                                const CUmemAllocationProp *properties, unsigned long long flags)
{
    for_rdma.calls++;
    for_rdma.asked += properties->allocFlags.gpuDirectRDMACapable;
    return properties->allocFlags.gpuDirectRDMACapable && for_rdma.is_refused
               ? CUDA_ERROR_NOT_SUPPORTED
               : driver_create(handle, bytes, properties, flags);
}

static CUresult say_for_rdma(int *value, CUdevice_attribute attribute, CUdevice device)
{
    if (attribute != CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)
        return driver_attribute(value, attribute, device);
    *value = 1;
    return CUDA_SUCCESS;
}

/* As cuMemAlloc's is. Where the driver makes no such memory, it is asked for so once. */
static void memory_is_made_for_rdma_where_the_device_has_it(void **state)
{
    unsigned is_capable = 0;
    driver_create = real(cuMemCreate);
    driver_attribute = real(cuDeviceGetAttribute);
    SET(cuMemCreate, create_for_rdma);
    CUdeviceptr plain = take(3 * MIB);
    assert_int_equal(for_rdma.asked, 0);
    SET(cuDeviceGetAttribute, say_for_rdma);
    swap_state()->for_rdma[0] = RDMA_UNKNOWN;
    swap_state()->is_rdma_proven[0] = false;
    CUdeviceptr capable = take(3 * MIB);
    assert_int_equal(for_rdma.asked, 1);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(
        cuPointerGetAttribute(&is_capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, capable),
        CUDA_SUCCESS);
    assert_int_equal(is_capable, 1);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(for_rdma.asked, 3);
    for_rdma.is_refused = true;
    CUdeviceptr refused = take(3 * MIB), later = take(3 * MIB);
    assert_true(refused && later);
    assert_int_equal(for_rdma.asked, 4);
    assert_int_equal(for_rdma.calls, 7);
    SET(cuMemCreate, driver_create);
    SET(cuDeviceGetAttribute, driver_attribute);
    swap_state()->for_rdma[0] = RDMA_UNKNOWN;
    swap_state()->is_rdma_proven[0] = false;
    const CUdeviceptr taken[] = {plain, capable, refused, later};
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(cuMemFree_v2(taken[i]), CUDA_SUCCESS);
}

static bool is_last_for_rdma;

static CUresult create_noted(CUmemGenericAllocationHandle *handle, size_t bytes,
                             const CUmemAllocationProp *properties, unsigned long long flags)
{
    for_rdma.calls++;
    is_last_for_rdma = properties->allocFlags.gpuDirectRDMACapable;
    return driver_create(handle, bytes, properties, flags);
}

static CUresult refuse_access_for_rdma(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                                       size_t count)
{
    return is_last_for_rdma ? CUDA_ERROR_UNKNOWN : driver_set_access(address, bytes, access, count);
}

/* As WSL2's driver does, whose attribute claims it. The first extent finds that out; nothing of it is left behind. */
static void memory_for_rdma_that_is_out_of_reach_is_made_without_it(void **state)
{
    unsigned is_capable = 1;
    driver_create = real(cuMemCreate);
    driver_attribute = real(cuDeviceGetAttribute);
    driver_set_access = real(cuMemSetAccess);
    SET(cuMemCreate, create_noted);
    SET(cuMemSetAccess, refuse_access_for_rdma);
    SET(cuDeviceGetAttribute, say_for_rdma);
    swap_state()->for_rdma[0] = RDMA_UNKNOWN;
    swap_state()->is_rdma_proven[0] = false;
    for_rdma.calls = 0;
    uint64_t before = used();
    CUdeviceptr first = take(3 * MIB), later = take(3 * MIB);
    assert_true(first && later);
    assert_int_equal(for_rdma.calls, 3);
    assert_int_equal(used() - before, 8 * MIB); /* in extents of 2 MiB */
    fill(first, 3 * MIB, 1);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(
        cuPointerGetAttribute(&is_capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, first),
        CUDA_SUCCESS);
    assert_int_equal(is_capable, 0);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(for_rdma.calls, 5);
    check(first, 3 * MIB, 1);
    SET(cuMemCreate, driver_create);
    SET(cuMemSetAccess, driver_set_access);
    SET(cuDeviceGetAttribute, driver_attribute);
    swap_state()->for_rdma[0] = RDMA_UNKNOWN;
    swap_state()->is_rdma_proven[0] = false;
    assert_int_equal(cuMemFree_v2(first), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(later), CUDA_SUCCESS);
}

/* Else the driver would refuse it when the memory is to come back, and it never could. */
static void a_device_that_cannot_reach_memory_is_refused_while_it_is_away(void **state)
{
    enum { BYTES = 2 << 20 };
    const CUmemAccessDesc peer = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult (*driver_can_access)(int *, CUdevice, CUdevice) = real(cuDeviceCanAccessPeer);
    CUdeviceptr address = reserve(BYTES);
    CUmemGenericAllocationHandle handle = make(BYTES);
    driver_set_access = real(cuMemSetAccess);
    SET(cuMemSetAccess, refuse_peer);
    SET(cuDeviceCanAccessPeer, reach_nobody);
    show(address, BYTES, handle);
    fill(address, BYTES, 1);
    for (unsigned evicted = 0; evicted < 2; evicted++) {
        assert_int_equal(cuMemSetAccess(address, BYTES, &peer, 1), CUDA_ERROR_NOT_SUPPORTED);
        assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    }
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    SET(cuMemSetAccess, driver_set_access);
    SET(cuDeviceCanAccessPeer, driver_can_access);
    check(address, BYTES, 1);
    assert_int_equal(cuMemUnmap(address, BYTES), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(address, BYTES), CUDA_SUCCESS);
}

static void a_peer_reaches_memory_that_has_come_back(void **state)
{
    see_a_peer_reach(3 * MIB, 4 * MIB, 1);
}

/* Allocations, frees and fills at random, with evictions at random moments. */
/* As a driver does with memory that is mapped to addresses: a plain copy knows no way between cards. */
static CUresult copy_inside(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy_inside_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return CUDA_ERROR_INVALID_VALUE;
}

static void copies_between_cards_that_do_not_reach_each_other_arrive(void **state)
{
    CUresult (*driver_copy)(CUdeviceptr, CUdeviceptr, size_t) = real(cuMemcpyDtoD_v2),
                                                      (*driver_unified)(CUdeviceptr, CUdeviceptr, size_t) =
                                                          real(cuMemcpy);
    CUresult (*driver_async)(CUdeviceptr, CUdeviceptr, size_t,
                             CUstream) = real(cuMemcpyDtoDAsync_v2),
                             (*driver_unified_async)(CUdeviceptr, CUdeviceptr, size_t, CUstream) =
                                 real(cuMemcpyAsync);
    CUcontext other;
    CUdeviceptr here = take(4 * MIB), beside = take(4 * MIB), there;
    assert_int_equal(cuCtxCreate_v2(&other, 0, 1), CUDA_SUCCESS);
    assert_int_not_equal(there = take(4 * MIB), 0);
    SET(cuMemcpyDtoD_v2, copy_inside);
    SET(cuMemcpy, copy_inside);
    SET(cuMemcpyDtoDAsync_v2, copy_inside_async);
    SET(cuMemcpyAsync, copy_inside_async);
    for (unsigned way = 0; way < 4; way++) {
        CUdeviceptr from = way % 2 ? there : here, to = way % 2 ? here : there;
        fill(from, 4 * MIB, way);
        uint64_t bytes = 4 * MIB - 100;
        CUresult result = way == 0   ? cuMemcpyDtoD_v2(to + 100, from + 100, bytes)
                          : way == 1 ? cuMemcpy(to + 100, from + 100, bytes)
                          : way == 2 ? cuMemcpyDtoDAsync_v2(to + 100, from + 100, bytes, NULL)
                                     : cuMemcpyAsync(to + 100, from + 100, bytes, NULL);
        assert_int_equal(result, CUDA_SUCCESS);
        assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
        fill(to, 100, way);
        check(to, 4 * MIB, way);
    }
    assert_int_equal(cuMemcpyDtoD_v2(beside, here, 4096),
                     CUDA_SUCCESS); /* the other card cannot reach them */
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoD_v2(beside, here, 4096), CUDA_ERROR_INVALID_VALUE); /* the driver's affair */
    assert_int_equal(cuCtxSetCurrent(other), CUDA_SUCCESS);
    assert_int_equal(cuCtxEnablePeerAccess(context, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoD_v2(there, here, 4096), CUDA_ERROR_INVALID_VALUE); /* so is this now */
    SET(cuMemcpyDtoD_v2, driver_copy);
    SET(cuMemcpy, driver_unified);
    SET(cuMemcpyDtoDAsync_v2, driver_async);
    SET(cuMemcpyAsync, driver_unified_async);
    swap_state()->open_to[0] = 0;
    assert_int_equal(cuMemFree_v2(there), CUDA_SUCCESS);
    assert_int_equal(cuCtxDestroy_v2(other), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(here), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(beside), CUDA_SUCCESS);
}

static void no_byte_is_wrong_after_random_moves(void **state)
{
    enum { KEPT = 40, ROUNDS = 600 };
    struct {
        CUdeviceptr address;
        uint64_t bytes;
        unsigned seed; /* 0: never filled */
    } kept[KEPT] = {0};
    unsigned seed = 7;
    bool is_evicted = false;
    for (unsigned round = 1; round <= ROUNDS; round++) {
        unsigned at = (unsigned)rand_r(&seed) % KEPT, choice = (unsigned)rand_r(&seed) % 16;
        if (choice == 0) {
            assert_int_equal(is_evicted ? swap_restore(NULL) : swap_evict(NULL), CUDA_SUCCESS);
            is_evicted = !is_evicted;
        } else if (!kept[at].address) {
            static const unsigned most[] = {3 << 20, 20000, 20000, 20000, 3 << 20, 20000, 20000, 10 << 20};
            kept[at].bytes = 1 + (unsigned)rand_r(&seed) % most[rand_r(&seed) % 8];
            kept[at].address = take(kept[at].bytes);
            kept[at].seed = 0;
            assert_true(kept[at].address);
        } else if (choice < 6) {
            assert_int_equal(cuMemFree_v2(kept[at].address), CUDA_SUCCESS);
            kept[at].address = 0;
        } else if (!is_evicted && !kept[at].seed) {
            kept[at].seed = round;
            fill(kept[at].address, kept[at].bytes, round);
        } else if (!is_evicted) {
            check(kept[at].address, kept[at].bytes, kept[at].seed);
        }
    }
    if (is_evicted)
        assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    for (unsigned at = 0; at < KEPT; at++) {
        if (kept[at].address && kept[at].seed)
            check(kept[at].address, kept[at].bytes, kept[at].seed);
        if (kept[at].address)
            assert_int_equal(cuMemFree_v2(kept[at].address), CUDA_SUCCESS);
    }
    assert_int_equal(used(), 0);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(card_free(), free_at_first);
    assert_int_equal(swap_bytes().evicted_bytes, 0);
}

/* The simulated machine is this test's alone. */
int main(void)
{
    if (!start_world())
        return 1;
    const struct CMUnitTest tests[] = {
        TEST(an_oversubscribed_session_has_this_engine),
        TEST(small_allocations_share_what_the_driver_would_take_for_one),
        TEST(threads_allocate_and_free_side_by_side),
        TEST(memory_moves_while_threads_allocate_and_free),
        TEST(no_thread_is_cancelled_inside_the_engine),
        TEST(a_full_card_takes_back_what_is_freed),
        TEST(memory_leaves_the_card_and_comes_back_where_it_was),
        TEST(an_evicted_process_allocates_and_frees_without_the_card),
        TEST(addresses_are_answered_for_while_evicted),
        TEST(an_eviction_without_room_changes_nothing),
        TEST(host_memory_is_page_locked_in_pieces_before_it_is_needed),
        TEST(a_move_page_locks_what_it_uses),
        TEST(a_move_page_locks_while_the_copies_before_run),
        TEST(a_driver_that_page_locks_nothing_is_asked_once),
        TEST(page_locks_end_with_their_context),
        TEST(nothing_waits_for_the_driver_to_page_lock_but_the_end_of_its_context),
        TEST(what_there_is_room_for_leaves_first),
        TEST(host_memory_goes_back_where_others_need_it),
        TEST(a_restore_without_room_changes_nothing),
        TEST(a_move_that_fails_at_any_step_loses_nothing),
        TEST(memory_that_came_without_its_contents_is_not_taken_for_restored),
        TEST(a_part_comes_ahead_and_leaves_without_a_copy),
        TEST(what_is_half_evicted_is_whole_again_after_the_next_restore),
        TEST(extents_go_with_their_context),
        TEST(what_the_program_maps_itself_leaves_and_comes_back),
        TEST(each_attribute_of_a_pointer_is_the_same_while_evicted),
        TEST(what_lies_side_by_side_is_opened_by_one_call),
        TEST(memory_that_is_made_anew_at_an_address_has_another_id),
        TEST(nothing_is_mapped_over_memory_of_the_host_while_evicted),
        TEST(nothing_that_stays_is_mapped_over_memory_that_is_away),
        TEST(nothing_is_mapped_over_memory_that_leaves_at_that_moment),
        TEST(a_program_that_unmaps_while_evicted_takes_its_memory_with_it),
        TEST(what_is_made_with_flags_that_we_do_not_know_stays_on_the_card_and_is_counted),
        TEST(a_process_may_have_more_extents_than_16_bits_count),
        TEST(memory_that_others_may_reach_stays_on_the_card),
        TEST(what_has_no_context_to_leave_by_stays_on_the_card),
        TEST(a_handle_is_a_process_s_own_by_more_than_its_number),
        TEST(host_memory_that_nothing_needs_goes_back),
        TEST(what_has_not_changed_since_its_restore_is_not_copied_out_again),
        TEST(memory_is_compared_with_its_copy_where_that_is_asked_for),
        TEST(all_is_copied_where_that_is_asked_for),
        TEST(the_environment_says_what_is_trusted),
        TEST(unchanged_memory_is_known_on_a_card_without_room),
        TEST(what_takes_longer_to_compare_than_to_copy_is_copied),
        TEST(code_of_digests_is_compiled_only_where_no_cubin_runs),
        TEST(the_digests_of_a_batch_are_one_launch),
        TEST(a_digest_is_the_same_however_launches_are_cut),
        TEST(a_restore_that_lacks_room_gets_that_of_the_digests),
        TEST(moves_make_no_stream_once_there_is_a_context),
        TEST(what_the_program_destroys_by_mistake_is_made_anew),
        TEST(a_copy_that_broke_off_is_taken_for_none),
        TEST(a_peer_reaches_memory_that_has_come_back),
        TEST(memory_is_made_for_rdma_where_the_device_has_it),
        TEST(memory_for_rdma_that_is_out_of_reach_is_made_without_it),
        TEST(a_device_that_cannot_reach_memory_is_refused_while_it_is_away),
        TEST(copies_between_cards_that_do_not_reach_each_other_arrive),
        TEST(no_byte_is_wrong_after_random_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
