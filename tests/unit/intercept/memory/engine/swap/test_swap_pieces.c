/* Large allocations of the swap engine are several extents side by side: they leave and come piece by piece, only what has changed
 * is copied, and the program sees one allocation. The card has 256 MiB here, and pieces 4. */
#include "memory/engine/swap/swap_world.h"

#define PIECE (4 * MIB)
#define LARGE (21 * MIB) /* four pieces, and one of 5 MiB, which has 6 on the card */
#define ON_CARD (22 * MIB)
#define COUNT 5

static struct extent *piece_at(CUdeviceptr address)
{
    return extents_find(&swap_state()->extents, address);
}

static unsigned extent_count_now(void)
{
    unsigned count = 0;
    for (struct extent *extent = extents_next(&swap_state()->extents, NULL); extent;
         extent = extents_next(&swap_state()->extents, extent))
        count++;
    return count;
}

static void assert_nothing_is_left(void)
{
    assert_int_equal(used(), 0);
    assert_int_equal(card_free(), free_at_first);
    assert_int_equal(extent_count_now(), 0);
    assert_int_equal(swap_state()->arena.taken_bytes, 0);
    assert_int_equal(swap_bytes().resident_bytes, 0);
    assert_int_equal(swap_bytes().evicted_bytes, 0);
}

/* --- One allocation -------------------------------------------------------------------------------- */

static void a_large_allocation_is_made_in_pieces_and_charged_by_what_they_take(void **state)
{
    CUdeviceptr address = take(LARGE);
    assert_int_equal(used(), ON_CARD);
    assert_int_equal(card_free(), free_at_first - ON_CARD);
    assert_int_equal(extent_count_now(), COUNT);
    assert_int_equal(piece_at(address)->bytes, PIECE);
    assert_int_equal(piece_at(address + LARGE - 1)->bytes, 6 * MIB);
    CUdeviceptr other = take(2 * PIECE - 2 * MIB); /* too little for two */
    assert_int_equal(extent_count_now(), COUNT + 1);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(other), CUDA_SUCCESS);
    assert_nothing_is_left();
}

static CUresult say_8_gib(size_t *bytes, CUdevice device)
{
    *bytes = 8192 * MIB;
    return CUDA_SUCCESS;
}

/* Nothing is copied back while the first piece is made: of a program that has a sixteenth of the card that is a sixteenth. */
static void the_first_piece_is_a_small_part_of_what_a_program_has(void **state)
{
    CUresult (*driver_total)(size_t *, CUdevice) = real(cuDeviceTotalMem_v2);
    uint64_t known_bytes = swap_state()->piece_bytes[0];
    SET(cuDeviceTotalMem_v2, say_8_gib);
    swap_state()->piece_bytes[0] = 0;
    CUdeviceptr address = take(128 * MIB);
    assert_true(piece_at(address)->bytes <= 32 * MIB);
    assert_true(extent_count_now() >= 4);
    SET(cuDeviceTotalMem_v2, driver_total);
    swap_state()->piece_bytes[0] = known_bytes;
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_nothing_is_left();
}

static void an_address_between_its_pieces_is_not_an_allocation(void **state)
{
    CUdeviceptr address = take(LARGE), base = 0, range = 0;
    size_t bytes = 0;
    CUcontext owner = NULL;
    fill(address, LARGE, 1);
    for (unsigned evicted = 0; evicted < 2; evicted++) {
        assert_int_equal(cuMemFree_v2(address + PIECE), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, address + 3 * PIECE), CUDA_SUCCESS);
        assert_int_equal(base, address);
        assert_int_equal(bytes, LARGE);
        assert_int_equal(
            cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 2 * PIECE + 5),
            CUDA_SUCCESS);
        assert_int_equal(range, address);
        assert_int_equal(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + LARGE - 1),
                         CUDA_SUCCESS);
        assert_int_equal(bytes, LARGE);
        assert_int_equal(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address + 4 * PIECE),
                         CUDA_SUCCESS);
        assert_ptr_equal(owner, context);
        assert_int_equal(used(), ON_CARD);
        assert_int_equal(evicted ? swap_restore(NULL) : swap_evict(NULL), CUDA_SUCCESS);
    }
    check(address, LARGE, 1);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_nothing_is_left();
}

static void copies_and_memsets_cross_from_piece_to_piece(void **state)
{
    CUdeviceptr from = take(LARGE), to = take(LARGE), at = from + PIECE - 1000;
    unsigned char seen[4000];
    size_t pitch;
    CUdeviceptr pitched;
    fill(from, LARGE, 1);
    assert_int_equal(cuMemcpyDtoD_v2(to + 512, from + 512, LARGE - 1024), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoD_v2(to, from, 512), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoD_v2(to + LARGE - 512, from + LARGE - 512, 512), CUDA_SUCCESS);
    check(to, LARGE, 1);
    assert_int_equal(cuMemsetD8_v2(at, 7, 2000), CUDA_SUCCESS);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH_v2(seen, at - 1000, 4000), CUDA_SUCCESS);
    for (unsigned i = 0; i < 4000; i++)
        assert_true((i < 1000 || i >= 3000) || seen[i] == 7);
    assert_int_equal(cuMemAllocPitch_v2(&pitched, &pitch, 5000, 3000, 4), CUDA_SUCCESS);
    fill(pitched, pitch * 3000, 3);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(pitched, pitch * 3000, 3);
    check(to, LARGE, 1);
}

/* --- It moves piece by piece ----------------------------------------------------------------------- */

static uint64_t free_seen[64];
static unsigned seen_count;

static void note_free(void)
{
    if (seen_count < 64)
        free_seen[seen_count++] = card_free();
}

static void room_is_free_while_the_rest_of_one_allocation_still_leaves(void **state)
{
    CUdeviceptr address = take(128 * MIB);
    fill(address, 128 * MIB, 1);
    seen_count = 0;
    assert_int_equal(swap_evict(note_free), CUDA_SUCCESS);
    assert_true(seen_count >= 4);
    for (unsigned i = 1; i < seen_count; i++)
        assert_true(free_seen[i] > free_seen[i - 1]);
    assert_true(free_seen[0] <= free_at_first - 96 * MIB);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(address, 128 * MIB, 1);
}

static void one_allocation_comes_ahead_into_what_room_there_is(void **state)
{
    CUdeviceptr address = take(LARGE), others = 0;
    fill(address, LARGE, 1);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(real(cuMemAlloc_v2)(&others, card_free() - 13 * MIB), CUDA_SUCCESS);
    assert_int_equal(swap_restore_part(0, 13 * MIB, NULL), CUDA_SUCCESS);
    assert_in_range(swap_bytes().resident_bytes, 8 * MIB, 13 * MIB);
    assert_int_equal(swap_restore(NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(real(cuMemFree_v2)(others), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(address, LARGE, 1);
}

static void what_is_freed_while_a_part_came_ahead_leaves_nothing(void **state)
{
    CUdeviceptr address = take(LARGE);
    fill(address, LARGE, 1);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore_part(0, 13 * MIB, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_nothing_is_left();
}

static uint64_t copied_bytes;
static CUresult (*driver_out)(void *, CUdeviceptr, size_t, CUstream);

static CUresult count_out(void *place, CUdeviceptr address, size_t bytes, CUstream stream)
{
    copied_bytes += bytes >= MIB ? bytes : 0; /* digests are copied too */
    return driver_out(place, address, bytes, stream);
}

static void only_the_piece_that_changed_is_copied_again(void **state)
{
    CUdeviceptr address = take(LARGE);
    unsigned char byte = 77;
    fill(address, LARGE, 1);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyHtoD_v2(address + 3 * PIECE + 3, &byte, 1), CUDA_SUCCESS);
    driver_out = real(cuMemcpyDtoHAsync_v2);
    SET(cuMemcpyDtoHAsync_v2, count_out);
    copied_bytes = 0;
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    SET(cuMemcpyDtoHAsync_v2, driver_out);
    assert_int_equal(copied_bytes, PIECE);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    byte = 0;
    assert_int_equal(cuMemcpyDtoH_v2(&byte, address + 3 * PIECE + 3, 1), CUDA_SUCCESS);
    assert_int_equal(byte, 77);
    check(address, 3 * PIECE, 1);
}

/* --- What fails changes nothing -------------------------------------------------------------------- */

static unsigned calls_left; /* until all fail */
static unsigned created_count;
static CUresult (*driver_create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                                 unsigned long long);
static CUresult (*driver_map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
static CUresult (*driver_unmap)(CUdeviceptr, size_t);

static bool is_served(void)
{
    return calls_left && calls_left--;
}

static CUresult create_or_fail(CUmemGenericAllocationHandle *handle, size_t bytes,
                               const CUmemAllocationProp *properties, unsigned long long flags)
{
    created_count++;
    return is_served() ? driver_create(handle, bytes, properties, flags) : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult map_or_fail(CUdeviceptr address, size_t bytes, size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    return is_served() ? driver_map(address, bytes, offset, handle, flags) : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult unmap_or_fail(CUdeviceptr address, size_t bytes)
{
    return is_served() ? driver_unmap(address, bytes) : CUDA_ERROR_UNKNOWN;
}

static CUdeviceptr take_async(uint64_t bytes)
{
    CUdeviceptr address = 0;
    return cuMemAllocAsync(&address, bytes, NULL) == CUDA_SUCCESS ? address : 0;
}

/* Of linear memory, and of a pool. */
static void what_cannot_be_made_to_the_end_is_taken_back(void **state)
{
    driver_create = real(cuMemCreate);
    driver_map = real(cuMemMap);
    CUdeviceptr (*const ways[])(uint64_t) = {take, take_async};
    for (unsigned way = 0; way < 2; way++)
        for (unsigned step = 0; step < COUNT; step++) {
            calls_left = step;
            SET(cuMemCreate, create_or_fail);
            assert_int_equal(ways[way](LARGE), 0);
            SET(cuMemCreate, driver_create);
            assert_nothing_is_left();
            calls_left = step;
            SET(cuMemMap, map_or_fail);
            assert_int_equal(ways[way](LARGE), 0);
            SET(cuMemMap, driver_map);
            assert_nothing_is_left();
        }
    CUdeviceptr address = take(LARGE), other = take_async(LARGE);
    assert_true(address && other);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(other), CUDA_SUCCESS);
}

/* Others would miss it meanwhile. */
static void nothing_is_taken_of_a_card_without_room_for_all(void **state)
{
    CUdeviceptr others, address;
    driver_create = real(cuMemCreate);
    assert_int_equal(real(cuMemAlloc_v2)(&others, card_free() - LARGE), CUDA_SUCCESS);
    calls_left = UINT32_MAX;
    created_count = 0;
    SET(cuMemCreate, create_or_fail);
    assert_int_equal(take(LARGE + PIECE), 0);
    assert_int_equal(created_count, 1); /* the driver said so */
    SET(cuMemCreate, driver_create);
    assert_int_equal(used(), 0);
    assert_int_equal(real(cuMemFree_v2)(others), CUDA_SUCCESS);
    assert_true((address = take(LARGE + PIECE)));
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_nothing_is_left();
}

static void what_the_driver_does_not_take_back_is_whole_as_before(void **state)
{
    CUdeviceptr address = take(LARGE);
    fill(address, LARGE, 1);
    driver_unmap = real(cuMemUnmap);
    for (unsigned step = 0; step < COUNT; step++) {
        calls_left = step;
        SET(cuMemUnmap, unmap_or_fail);
        assert_int_equal(cuMemFree_v2(address), CUDA_ERROR_UNKNOWN);
        SET(cuMemUnmap, driver_unmap);
        assert_int_equal(used(), ON_CARD);
        assert_int_equal(card_free(), free_at_first - ON_CARD);
        check(address, LARGE, 1);
    }
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_nothing_is_left();
}

/* --- Who else has it ------------------------------------------------------------------------------- */

static void what_is_handed_out_stays_as_a_whole(void **state)
{
    CUipcMemHandle handle;
    CUdeviceptr address = take(LARGE), other = take(LARGE);
    fill(address, LARGE, 1);
    fill(other, LARGE, 2);
    assert_int_equal(cuIpcGetMemHandle(&handle, address + 2 * PIECE), CUDA_SUCCESS);
    assert_int_equal(pinned_bytes(), ON_CARD);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(card_free(), free_at_first - ON_CARD);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(address, LARGE, 1);
    check(other, LARGE, 2);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(other), CUDA_SUCCESS);
    assert_int_equal(pinned_bytes(), 0);
    assert_nothing_is_left();
}

static unsigned set_count;
static CUresult (*driver_set)(const void *, CUpointer_attribute, CUdeviceptr);

/* A driver that has SYNC_MEMOPS for memory of cuMemCreate. */
static CUresult count_set(const void *value, CUpointer_attribute which, CUdeviceptr address)
{
    set_count++;
    return CUDA_SUCCESS;
}

/* A program names an address in it, and then has all of it registered by somebody else. */
static void what_rdma_may_reach_stays_as_a_whole(void **state)
{
    unsigned sync = 1;
    CUdeviceptr linear = take(LARGE), async = take_async(LARGE);
    fill(linear, LARGE, 1);
    fill(async, LARGE, 2);
    driver_set = real(cuPointerSetAttribute);
    SET(cuPointerSetAttribute, count_set);
    for (unsigned i = 0; i < 2; i++) {
        set_count = 0;
        assert_int_equal(cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                               (i ? async : linear) + 2 * PIECE + 100),
                         CUDA_SUCCESS);
        assert_int_equal(set_count, i ? COUNT : 0); /* what stands for memory of cuMemAlloc is ours to mark */
        assert_int_equal(pinned_bytes(), (i + 1) * ON_CARD);
    }
    SET(cuPointerSetAttribute, driver_set);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(card_free(), free_at_first - 2 * ON_CARD);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(linear, LARGE, 1);
    check(async, LARGE, 2);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(linear), CUDA_SUCCESS);
    assert_int_equal(pinned_bytes(), ON_CARD);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(async), CUDA_SUCCESS);
}

static void a_peer_reaches_all_pieces(void **state)
{
    see_a_peer_reach(LARGE, ON_CARD, COUNT);
}

/* --- Pools ----------------------------------------------------------------------------------------- */

static void a_pool_grows_by_pieces_and_gives_them_back_one_by_one(void **state)
{
    CUmemoryPool pool;
    CUdeviceptr address = take_async(LARGE);
    assert_int_equal(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
    assert_int_equal(extent_count_now(), COUNT);
    fill(address, LARGE, 1);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore_part(0, 13 * MIB, NULL), CUDA_SUCCESS);
    assert_in_range(swap_bytes().resident_bytes, 8 * MIB, 13 * MIB);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(address, LARGE, 1);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolTrimTo(pool, 10 * MIB), CUDA_SUCCESS);
    assert_in_range(free_at_first - card_free(), 10 * MIB, 14 * MIB);
    assert_int_equal(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
    assert_nothing_is_left();
}

/* The simulated machine is this test's alone. */
int main(void)
{
    if (!start_world())
        return 1;
    const struct CMUnitTest tests[] = {
        TEST(a_large_allocation_is_made_in_pieces_and_charged_by_what_they_take),
        TEST(the_first_piece_is_a_small_part_of_what_a_program_has),
        TEST(an_address_between_its_pieces_is_not_an_allocation),
        TEST(copies_and_memsets_cross_from_piece_to_piece),
        TEST(room_is_free_while_the_rest_of_one_allocation_still_leaves),
        TEST(one_allocation_comes_ahead_into_what_room_there_is),
        TEST(what_is_freed_while_a_part_came_ahead_leaves_nothing),
        TEST(only_the_piece_that_changed_is_copied_again),
        TEST(what_cannot_be_made_to_the_end_is_taken_back),
        TEST(nothing_is_taken_of_a_card_without_room_for_all),
        TEST(what_the_driver_does_not_take_back_is_whole_as_before),
        TEST(what_is_handed_out_stays_as_a_whole),
        TEST(what_rdma_may_reach_stays_as_a_whole),
        TEST(a_peer_reaches_all_pieces),
        TEST(a_pool_grows_by_pieces_and_gives_them_back_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
