/* Blocks of memory pools: at random, against a model that knows every grain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "intercept/memory/engine/swap/pools/pool_blocks.h"

#define MIB (UINT64_C(1) << 20)
#define STEP (2 * MIB)
#define BASE (UINT64_C(7) << 40)

static struct blocks blocks;
static unsigned orders_out;

static void forget(const struct order *order)
{
    assert_non_null(order->event);
    orders_out--;
}

/* An event is a number: those up to `happened` have happened. */
static uintptr_t happened;

static bool is_over(const struct order *order)
{
    return (uintptr_t)order->event <= happened;
}

static struct order order_of(uint64_t stream)
{
    static uint64_t number;
    number++;
    orders_out++;
    return (struct order){.event = (CUevent)(uintptr_t)number, .stream = stream, .number = number};
}

/* All that nobody has is one block again, and no order is left. */
static void end(struct pool_blocks *pool)
{
    uint64_t address, bytes;
    for (uint32_t i = 0; i < blocks.end; i++)
        if (blocks.table[i].state == BLOCK_TAKEN && blocks.table[i].pool == pool->number)
            blocks_free(&blocks, pool, &blocks.table[i], &(struct order){0});
    assert_int_equal(pool->taken_bytes, 0);
    happened = UINTPTR_MAX;
    blocks_settle(&blocks, pool, is_over);
    happened = 0;
    for (struct block *block; (block = blocks_next_idle(&blocks, pool, NULL));)
        assert_true(blocks_send(&blocks, pool, block, block->address, block->bytes));
    assert_int_equal(pool->present_bytes, 0);
    assert_true(blocks_remove_region(&blocks, pool, &address, &bytes));
    assert_int_equal(address, BASE);
    assert_false(blocks_remove_region(&blocks, pool, &address, &bytes));
    assert_int_equal(orders_out, 0);
}

static struct block *bring(struct pool_blocks *pool, uint64_t bytes, uint64_t stream)
{
    struct block *absent = blocks_next_absent(&blocks, pool, NULL);
    return absent && absent->bytes >= bytes ? blocks_bring(&blocks, pool, absent, bytes, stream) : NULL;
}

static uint64_t take(struct pool_blocks *pool, uint64_t bytes, uint64_t stream)
{
    struct block *block = blocks_find_free(&blocks, pool, bytes, stream, false);
    if (!block)
        return 0;
    assert_true(blocks_take(&blocks, pool, block, bytes, bytes));
    return block->address;
}

static void give(struct pool_blocks *pool, uint64_t address, const struct order *order)
{
    blocks_free(&blocks, pool, blocks_find_taken(&blocks, address), order);
}

static void what_a_stream_freed_is_that_stream_s_at_once_and_others_when_it_got_there(void **state)
{
    struct pool_blocks pool = {.number = 1};
    assert_true(blocks_add_region(&blocks, &pool, BASE, 64 * MIB));
    assert_non_null(bring(&pool, STEP, 1));
    uint64_t address = take(&pool, STEP, 1);
    assert_int_equal(address, BASE);
    struct order order = order_of(1);
    give(&pool, address, &order);
    assert_int_equal(take(&pool, STEP, 2), 0);
    assert_int_equal(take(&pool, STEP, 0), 0);
    assert_non_null(blocks_find_free(&blocks, &pool, STEP, 2, true));
    assert_int_equal(take(&pool, STEP, 1), address);
    order = order_of(1);
    give(&pool, address, &order);
    happened = order.number;
    blocks_settle(&blocks, &pool, is_over);
    assert_int_equal(take(&pool, STEP, 2), address);
    end(&pool);
}

static void blocks_of_one_stream_beside_each_other_are_one(void **state)
{
    struct pool_blocks pool = {.number = 1};
    assert_true(blocks_add_region(&blocks, &pool, BASE, 64 * MIB));
    assert_non_null(bring(&pool, 2 * STEP, 1));
    uint64_t first = take(&pool, STEP, 1), second = take(&pool, MIB, 1);
    struct order order = order_of(1);
    give(&pool, second, &order);
    assert_int_equal(take(&pool, STEP, 1), 0); /* half of it waits, half does not */
    blocks_join(&blocks, &pool, 1);
    assert_int_equal(take(&pool, STEP, 1), second);
    order = order_of(2);
    give(&pool, first, &order);
    order = order_of(1);
    give(&pool, second, &order);
    blocks_join(&blocks, &pool, 1);
    assert_int_equal(take(&pool, 2 * STEP, 1), 0); /* of two streams */
    happened = order.number;
    blocks_settle(&blocks, &pool, is_over);
    assert_int_equal(take(&pool, 2 * STEP, 3), first);
    end(&pool);
}

static void growing_takes_what_is_free_before_it(void **state)
{
    struct pool_blocks pool = {.number = 1};
    assert_true(blocks_add_region(&blocks, &pool, BASE, 64 * MIB));
    assert_non_null(bring(&pool, STEP, 1));
    uint64_t first = take(&pool, MIB, 1);
    struct block *block = bring(&pool, STEP, 1);
    assert_int_equal(block->address, first + MIB);
    assert_int_equal(block->bytes, MIB + STEP);
    assert_int_equal(pool.present_bytes, 2 * STEP);
    end(&pool);
}

#define HELD 64
#define GRAINS (64 * MIB / BLOCK_GRAIN_BYTES)

/* Whose each grain is: 0 nobody's. */
static uint8_t owner[GRAINS];

static void mark(uint64_t address, uint64_t bytes, uint8_t was, uint8_t is)
{
    for (uint64_t at = (address - BASE) / BLOCK_GRAIN_BYTES, left = bytes / BLOCK_GRAIN_BYTES; left--; at++) {
        assert_int_equal(owner[at], was);
        owner[at] = is;
    }
}

static void no_grain_is_two_owners_whatever_happens(void **state)
{
    struct pool_blocks pool = {.number = 1}, other = {.number = 2};
    struct {
        uint64_t address, bytes;
    } held[HELD] = {0};
    uint64_t kept;
    assert_true(blocks_add_region(&blocks, &pool, BASE, 64 * MIB));
    assert_true(blocks_add_region(&blocks, &other, BASE + 64 * MIB, 64 * MIB));
    assert_non_null(bring(&other, STEP, 1));
    kept = take(&other, MIB, 1);
    srand(1);
    for (unsigned round = 0; round < 200000; round++) {
        unsigned at = (unsigned)rand() % HELD, what = (unsigned)rand() % 100;
        uint64_t stream = (uint64_t)rand() % 4;
        if (what < 70 && held[at].address) {
            struct order order = rand() % 3 ? order_of(stream) : (struct order){0};
            mark(held[at].address, held[at].bytes, (uint8_t)(at + 1), 0);
            give(&pool, held[at].address, &order);
            held[at].address = 0;
        } else if (what < 70) {
            uint64_t bytes = BLOCK_GRAIN_BYTES * (1 + (uint64_t)rand() % (rand() % 4 ? 200 : 6000));
            uint64_t address = take(&pool, bytes, stream);
            if (!address && bring(&pool, STEP * (1 + (uint64_t)rand() % 2), stream))
                address = take(&pool, bytes, stream);
            if (!address)
                continue;
            held[at].address = address;
            held[at].bytes = bytes;
            mark(address, bytes, 0, (uint8_t)(at + 1));
        } else if (what < 90) {
            happened += (uintptr_t)rand() % 40;
            blocks_settle(&blocks, &pool, is_over);
        } else if (what < 95) {
            blocks_join(&blocks, &pool, stream);
        } else {
            struct block *block = blocks_next_idle(&blocks, &pool, NULL);
            uint64_t from = block ? (block->address + STEP - 1) & ~(STEP - 1) : 0;
            if (block && from + STEP <= block->address + block->bytes)
                assert_true(blocks_send(&blocks, &pool, block, from, STEP));
        }
    }
    end(&pool);
    assert_non_null(blocks_find_taken(&blocks, kept + MIB - 1));
    assert_null(blocks_find_taken(&blocks, kept + MIB));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_stream_freed_is_that_stream_s_at_once_and_others_when_it_got_there),
        cmocka_unit_test(blocks_of_one_stream_beside_each_other_are_one),
        cmocka_unit_test(growing_takes_what_is_free_before_it),
        cmocka_unit_test(no_grain_is_two_owners_whatever_happens),
    };
    blocks.forget = forget;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
