/* The range map: which range an address lies in, against a plain table of which address belongs to whom. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "intercept/memory/ranges.h"

#define BASE UINT64_C(0x7f0000000000)
enum { POINTER = 1, MAPPING = 2 };

static bool put(struct ranges *ranges, uint64_t begin, uint64_t bytes, unsigned kind)
{
    return ranges_put(ranges, (struct range){begin, bytes, kind});
}

static void an_address_is_found_from_the_first_byte_to_the_last(void **state)
{
    static struct ranges ranges;
    struct range found;
    assert_false(ranges_find(&ranges, BASE, &found));
    assert_false(ranges_next(&ranges, 0, &found));
    assert_true(put(&ranges, BASE, 100, POINTER));
    assert_true(put(&ranges, BASE + 100, 50, MAPPING));
    assert_false(ranges_find(&ranges, BASE - 1, &found));
    for (uint64_t offset = 0; offset < 150; offset++) {
        assert_true(ranges_find(&ranges, BASE + offset, &found));
        assert_int_equal(found.begin, offset < 100 ? BASE : BASE + 100);
        assert_int_equal(found.bytes, offset < 100 ? 100 : 50);
        assert_int_equal(found.kind, offset < 100 ? POINTER : MAPPING);
    }
    assert_false(ranges_find(&ranges, BASE + 150, &found));
}

static void the_next_range_begins_there_or_above(void **state)
{
    static struct ranges ranges;
    struct range found;
    for (uint64_t i = 0; i < 100; i++)
        assert_true(put(&ranges, BASE + i * 1000, 10, MAPPING));
    for (uint64_t i = 0; i < 100; i++) {
        assert_true(ranges_next(&ranges, BASE + i * 1000, &found));
        assert_int_equal(found.begin, BASE + i * 1000);
        assert_int_equal(ranges_next(&ranges, BASE + i * 1000 + 1, &found), i < 99);
        assert_int_equal(found.begin, BASE + (i < 99 ? i + 1 : i) * 1000);
    }
}

static void only_the_kind_that_is_named_is_removed(void **state)
{
    static struct ranges ranges;
    struct range found;
    assert_true(put(&ranges, BASE, 100, MAPPING));
    ranges_remove(&ranges, BASE, POINTER);
    ranges_remove(&ranges, BASE + 1, MAPPING);
    assert_true(ranges_find(&ranges, BASE, &found));
    ranges_remove(&ranges, BASE, MAPPING);
    assert_false(ranges_find(&ranges, BASE, &found));
}

static void a_new_range_takes_the_place_of_those_it_touches(void **state)
{
    static struct ranges ranges;
    struct range found;
    for (uint64_t i = 0; i < 10; i++)
        assert_true(put(&ranges, BASE + i * 100, 100, POINTER));
    assert_true(put(&ranges, BASE + 250, 500, MAPPING));
    assert_true(ranges_find(&ranges, BASE + 199, &found));
    assert_int_equal(found.begin, BASE + 100);
    assert_false(ranges_find(&ranges, BASE + 200, &found)); /* the rest of what it touched */
    assert_true(ranges_find(&ranges, BASE + 749, &found));
    assert_int_equal(found.begin, BASE + 250);
    assert_false(ranges_find(&ranges, BASE + 750, &found));
    assert_true(ranges_find(&ranges, BASE + 800, &found));
    assert_int_equal(found.begin, BASE + 800);
}

/* Random ranges over 4,096 bytes; `owner[i]` is the number of the range that has byte i. */
static void random_changes_agree_with_a_plain_table(void **state)
{
    enum { BYTES = 4096, CHANGES = 20000 };
    static struct ranges ranges;
    static unsigned owner[BYTES];
    static struct range known[CHANGES + 1];
    unsigned seed = 20;
    for (unsigned change = 1; change <= CHANGES; change++) {
        struct range found, range = {.begin = (unsigned)rand_r(&seed) % BYTES, .kind = MAPPING};
        range.bytes = 1 + (unsigned)rand_r(&seed) % 64;
        if (range.begin + range.bytes > BYTES)
            range.bytes = BYTES - range.begin;
        uint64_t probe = (unsigned)rand_r(&seed) % BYTES;
        bool is_put = rand_r(&seed) % 3 != 0;
        uint64_t from = is_put ? range.begin : probe, bytes = is_put ? range.bytes : 1;
        for (uint64_t at = from; at < from + bytes; at++) {
            unsigned gone = owner[at];
            for (unsigned i = 0; gone && i < BYTES; i++)
                owner[i] = owner[i] == gone ? 0 : owner[i];
            if (gone && !is_put)
                ranges_remove(&ranges, known[gone].begin, MAPPING);
        }
        if (is_put) {
            assert_true(ranges_put(&ranges, range));
            known[change] = range;
            for (uint64_t at = range.begin; at < range.begin + range.bytes; at++)
                owner[at] = change;
        }
        probe = (unsigned)rand_r(&seed) % BYTES;
        assert_int_equal(ranges_find(&ranges, probe, &found), owner[probe] != 0);
        if (owner[probe])
            assert_memory_equal(&found, &known[owner[probe]], sizeof(found));
    }
}

static struct ranges common;

static void *put_find_and_remove(void *argument)
{
    uint64_t own = BASE + ((uint64_t)(uintptr_t)argument << 32);
    struct range found;
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t begin = own + (i * 7919 % 512 << 12);
        if (!put(&common, begin, 4096, POINTER))
            return "put";
        if (!ranges_find(&common, begin + 4095, &found) || found.begin != begin)
            return "find";
        if (i % 3)
            ranges_remove(&common, begin, POINTER);
    }
    return NULL;
}

static void threads_do_not_disturb_each_other(void **state)
{
    pthread_t threads[4];
    void *failure;
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, put_find_and_remove, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], &failure);
        assert_null(failure);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_is_found_from_the_first_byte_to_the_last),
        cmocka_unit_test(the_next_range_begins_there_or_above),
        cmocka_unit_test(only_the_kind_that_is_named_is_removed),
        cmocka_unit_test(a_new_range_takes_the_place_of_those_it_touches),
        cmocka_unit_test(random_changes_agree_with_a_plain_table),
        cmocka_unit_test(threads_do_not_disturb_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
