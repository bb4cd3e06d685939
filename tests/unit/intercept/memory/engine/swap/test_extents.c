/* Which addresses of the swap engine are whose: blocks of shared extents, and the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "intercept/memory/engine/swap/extents/extents.h"

#define BASE UINT64_C(0x500000000000)

static struct extents extents;

static struct extent *add(uint64_t address, uint64_t bytes, bool is_shared)
{
    return extents_add(&extents,
                       &(struct extent){.address = address, .bytes = bytes, .is_shared = is_shared});
}

static int remove_all(void **state)
{
    for (struct extent *extent = extents_next(&extents, NULL); extent;
         extent = extents_next(&extents, extent))
        extents_remove(&extents, extent);
    return extents_find(&extents, BASE) ? -1 : 0;
}

static void small_allocations_lie_side_by_side(void **state)
{
    struct extent *extent = add(BASE, EXTENT_SHARED_BYTES, true);
    assert_int_equal(extent_take(extent, 1), BASE);
    assert_int_equal(extent_take(extent, 513), BASE + 512);
    assert_int_equal(extent_take(extent, 512), BASE + 3 * 512);
    assert_true(extent_has(extent, BASE + 512));
    assert_false(extent_has(extent, BASE + 2 * 512)); /* the middle of one */
    assert_false(extent_has(extent, BASE + 513));
    assert_false(extent_has(extent, BASE + 4 * 512));
    extent_give_back(extent, BASE + 512);
    assert_false(extent_has(extent, BASE + 512));
    assert_true(extent_has(extent, BASE + 3 * 512));
    assert_int_equal(extent_take(extent, 1024), BASE + 512); /* the gap is used again */
    extent_give_back(extent, BASE);
    extent_give_back(extent, BASE + 512);
    extent_give_back(extent, BASE + 3 * 512);
    assert_true(extent_is_empty(extent));
}

static void a_shared_extent_is_used_to_its_last_block(void **state)
{
    struct extent *extent = add(BASE, EXTENT_SHARED_BYTES, true);
    for (uint64_t i = 0; i < EXTENT_BLOCKS; i++)
        assert_int_equal(extent_take(extent, EXTENT_BLOCK_BYTES), BASE + i * EXTENT_BLOCK_BYTES);
    assert_int_equal(extent_take(extent, 1), 0);
    extent_give_back(extent, BASE + 100 * EXTENT_BLOCK_BYTES);
    extent_give_back(extent, BASE + 102 * EXTENT_BLOCK_BYTES);
    assert_int_equal(extent_take(extent, 2 * EXTENT_BLOCK_BYTES), 0); /* not in one piece */
    extent_give_back(extent, BASE + 101 * EXTENT_BLOCK_BYTES);
    assert_int_equal(extent_take(extent, 3 * EXTENT_BLOCK_BYTES), BASE + 100 * EXTENT_BLOCK_BYTES);
}

/* Random sizes against a plain table of blocks. */
static void random_allocations_never_overlap(void **state)
{
    enum { KEPT = 64 };
    static unsigned char owner[EXTENT_BLOCKS];
    struct {
        uint64_t first, count;
    } kept[KEPT] = {0};
    struct extent *extent = add(BASE, EXTENT_SHARED_BYTES, true);
    unsigned seed = 4;
    for (unsigned round = 0; round < 20000; round++) {
        unsigned at = (unsigned)rand_r(&seed) % KEPT;
        if (kept[at].count) {
            extent_give_back(extent, BASE + kept[at].first * EXTENT_BLOCK_BYTES);
            memset(owner + kept[at].first, 0, kept[at].count);
            kept[at].count = 0;
            continue;
        }
        uint64_t bytes = 1 + (unsigned)rand_r(&seed) % (64 << 10);
        uint64_t address = extent_take(extent, bytes);
        if (!address)
            continue;
        kept[at].first = (address - BASE) / EXTENT_BLOCK_BYTES;
        kept[at].count = (bytes + EXTENT_BLOCK_BYTES - 1) / EXTENT_BLOCK_BYTES;
        for (uint64_t block = kept[at].first; block < kept[at].first + kept[at].count; block++) {
            assert_int_equal(owner[block], 0);
            owner[block] = 1;
        }
    }
}

static void an_extent_is_found_by_any_address_inside(void **state)
{
    struct extent *first = add(BASE, 4 << 20, false), *second = add(BASE + (4 << 20), 2 << 20, true);
    assert_ptr_equal(extents_find(&extents, BASE + (4 << 20) - 1), first);
    assert_ptr_equal(extents_find(&extents, BASE + (4 << 20)), second);
    assert_null(extents_find(&extents, BASE + (6 << 20)));
    assert_true(extent_has(first, BASE));
    assert_false(extent_has(first, BASE + 512));
    extents_remove(&extents, first);
    assert_null(extents_find(&extents, BASE));
    assert_ptr_equal(add(BASE + (64 << 20), 2 << 20, false), first); /* its place is used again */
    assert_ptr_equal(extents_next(&extents, NULL), first);
    assert_ptr_equal(extents_next(&extents, first), second);
    assert_null(extents_next(&extents, second));
}

/* Each is what a mistake of the engine's would leave. */
static void what_does_not_go_together_is_not_valid(void **state)
{
    const struct extent whole = {
        .is_used = true, .address = BASE, .bytes = 4 << 20, .residence = EXTENT_HERE};
    struct extent wrong[] = {whole, whole, whole, whole, whole, whole, whole, whole};
    assert_true(extent_is_valid(&whole));
    wrong[0].is_used = false;
    wrong[1].bytes = 0;
    wrong[2].residence = EXTENT_STUCK + 1;
    wrong[3].has_digest = true;
    wrong[4].is_pinned = true;
    wrong[5].pins[WIRE_STAYS_EXPORTED] = 1;
    wrong[6].has_place = true;
    wrong[6].residence = EXTENT_AWAY;
    wrong[7].is_shared = true;
    for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(extent_is_valid(&wrong[i]));
    wrong[6].has_copy = true;
    assert_true(extent_is_valid(&wrong[6]));
}

#define TEST(name) cmocka_unit_test_teardown(name, remove_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(small_allocations_lie_side_by_side),     TEST(a_shared_extent_is_used_to_its_last_block),
        TEST(random_allocations_never_overlap),       TEST(an_extent_is_found_by_any_address_inside),
        TEST(what_does_not_go_together_is_not_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
