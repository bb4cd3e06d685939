/* What a process holds: found, displaced, counted, swept, by many threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "intercept/memory/records.h"

static struct records records;

static bool put_pointer(uint64_t key, uint64_t bytes, uint64_t owner, struct record *displaced)
{
    const struct record record = {
        .key = key, .kind = RECORD_POINTER, .references = 1, .charged = {.bytes = bytes, .context = owner}};
    return records_put(&records, &record, displaced);
}

static void put(uint64_t key, uint64_t bytes, uint64_t owner)
{
    struct record displaced;
    assert_true(put_pointer(key, bytes, owner, &displaced));
    assert_int_equal(displaced.kind, RECORD_FREE);
}

static void add_up(const struct record *record, void *sum)
{
    *(uint64_t *)sum += record->charged.bytes;
}

static uint64_t all_bytes(void)
{
    uint64_t sum = 0;
    records_each(&records, add_up, &sum);
    return sum;
}

static void what_is_put_is_taken_once(void **state)
{
    struct record taken;
    put(0x7f0000000000, 100, 1);
    assert_true(records_take(&records, RECORD_POINTER, 0x7f0000000000, &taken));
    assert_int_equal(taken.charged.bytes, 100);
    assert_false(records_take(&records, RECORD_POINTER, 0x7f0000000000, &taken));
}

static void kinds_do_not_meet(void **state)
{
    struct record taken;
    put(7, 100, 1);
    assert_false(records_take(&records, RECORD_HANDLE, 7, &taken));
    assert_true(records_take(&records, RECORD_POINTER, 7, &taken));
}

static void an_address_given_out_again_displaces_the_old_record(void **state)
{
    struct record displaced, taken;
    put(0x1000, 100, 1);
    assert_true(put_pointer(0x1000, 30, 2, &displaced));
    assert_int_equal(displaced.kind, RECORD_POINTER);
    assert_int_equal(displaced.charged.bytes, 100);
    assert_true(records_take(&records, RECORD_POINTER, 0x1000, &taken));
    assert_int_equal(taken.charged.bytes, 30);
    assert_false(records_take(&records, RECORD_POINTER, 0x1000, &taken));
}

static void a_record_is_not_restored_over_a_newer_one(void **state)
{
    struct record taken;
    put(0x1000, 100, 1);
    assert_true(records_take(&records, RECORD_POINTER, 0x1000, &taken));
    put(0x1000, 30, 1);
    assert_false(records_restore(&records, &taken));
    assert_true(records_take(&records, RECORD_POINTER, 0x1000, &taken));
    assert_int_equal(taken.charged.bytes, 30);
}

static void the_last_reference_takes_the_record_out(void **state)
{
    struct record after;
    put(5, 100, 1);
    assert_true(records_count(&records, RECORD_POINTER, 5, 1, &after));
    assert_int_equal(after.references, 2);
    assert_true(records_count(&records, RECORD_POINTER, 5, -1, &after));
    assert_true(records_find(&records, RECORD_POINTER, 5, &after));
    assert_true(records_count(&records, RECORD_POINTER, 5, -1, &after));
    assert_int_equal(after.references, 0);
    assert_false(records_find(&records, RECORD_POINTER, 5, &after));
}

/* In an order other than they came, so that searches go through what erasing moved. */
static void a_hundred_thousand_records_are_all_found_again(void **state)
{
    enum { COUNT = 100000 };
    struct record taken;
    for (uint64_t i = 0; i < COUNT; i++)
        put(0x7f0000000000 + i * (2u << 20), i + 1, i % 7);
    for (uint64_t step = 0; step < 3; step++) {
        for (uint64_t i = step; i < COUNT; i += 3) {
            assert_true(records_take(&records, RECORD_POINTER, 0x7f0000000000 + i * (2u << 20), &taken));
            assert_int_equal(taken.charged.bytes, i + 1);
        }
    }
    assert_int_equal(all_bytes(), 0);
}

static bool owned_by(const struct record *record, void *owner)
{
    return record->charged.context == *(uint64_t *)owner;
}

static uint64_t swept_bytes;

static void sweep_up(const struct record *record, void *owner)
{
    assert_int_equal(record->charged.context, *(uint64_t *)owner);
    swept_bytes += record->charged.bytes;
}

static void a_sweep_takes_all_of_an_owner_and_nothing_else(void **state)
{
    for (uint64_t i = 1; i <= 9000; i++)
        put(i << 9, 1, i % 3);
    uint64_t owner = 1;
    swept_bytes = 0;
    records_sweep(&records, owned_by, sweep_up, &owner);
    assert_int_equal(swept_bytes, 3000);
    assert_int_equal(all_bytes(), 6000);
    for (owner = 0; owner < 3; owner++)
        records_sweep(&records, owned_by, sweep_up, &owner);
    assert_int_equal(swept_bytes, 9000);
}

static bool put_mapping(uint64_t begin, uint64_t length)
{
    const struct record record = {.key = begin,
                                  .kind = RECORD_MAPPING,
                                  .flags = RECORD_IN_RANGES,
                                  .references = 1,
                                  .hold = {.physical = begin >> 21, .length = length}};
    struct record displaced;
    return records_put(&records, &record, &displaced);
}

static void a_mapping_is_found_by_any_address_inside_for_as_long_as_its_record_is_there(void **state)
{
    const uint64_t begin = 0x7f0000200000, length = 4u << 20;
    struct record found;
    assert_true(put_mapping(begin, length));
    assert_true(put_mapping(begin + length, length));
    assert_true(records_find_around(&records, begin + length - 1, &found));
    assert_int_equal(found.key, begin);
    assert_int_equal(found.hold.length, length);
    assert_true(records_find_between(&records, begin + 1, begin + length + 1, &found));
    assert_int_equal(found.key, begin + length);
    assert_false(records_find_between(&records, begin + 1, begin + length, &found));

    assert_true(records_take(&records, RECORD_MAPPING, begin, &found));
    struct record taken = found;
    assert_false(records_find_around(&records, begin + 5, &found));
    assert_true(records_restore(&records, &taken));
    assert_true(records_find_around(&records, begin + 5, &found));
    assert_true(records_count(&records, RECORD_MAPPING, begin, -1, &found));
    assert_false(records_find_around(&records, begin + 5, &found));
    records_count_back(&records, &found);
    assert_true(records_find_around(&records, begin + 5, &found));
    assert_int_equal(found.references, 1);
    assert_true(records_take(&records, RECORD_MAPPING, begin, &found));
    assert_true(records_take(&records, RECORD_MAPPING, begin + length, &found));
    assert_false(records_find_between(&records, 0, UINT64_MAX, &found));
}

static void *put_and_take(void *argument)
{
    uint64_t thread = (uint64_t)(uintptr_t)argument;
    struct record record;
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t key = (thread << 40) + (i % 512 << 21);
        if (!put_pointer(key, thread, thread, &record) || record.kind != RECORD_FREE)
            return "put";
        if (!records_take(&records, RECORD_POINTER, key, &record) || record.charged.bytes != thread)
            return "take";
    }
    return NULL;
}

static void threads_do_not_disturb_each_other(void **state)
{
    pthread_t threads[8];
    void *failure;
    for (uintptr_t i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, put_and_take, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < 8; i++) {
        pthread_join(threads[i], &failure);
        assert_null(failure);
    }
    assert_int_equal(all_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_is_taken_once),
        cmocka_unit_test(kinds_do_not_meet),
        cmocka_unit_test(an_address_given_out_again_displaces_the_old_record),
        cmocka_unit_test(a_record_is_not_restored_over_a_newer_one),
        cmocka_unit_test(the_last_reference_takes_the_record_out),
        cmocka_unit_test(a_hundred_thousand_records_are_all_found_again),
        cmocka_unit_test(a_sweep_takes_all_of_an_owner_and_nothing_else),
        cmocka_unit_test(a_mapping_is_found_by_any_address_inside_for_as_long_as_its_record_is_there),
        cmocka_unit_test(threads_do_not_disturb_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
