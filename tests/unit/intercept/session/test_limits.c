/* Limits as the environment gives them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "intercept/session/limits.h"

static struct limits limits;

static void a_size_holds_for_every_gpu(void **state)
{
    assert_int_equal(limits_parse("2GiB", &limits, NULL), 0);
    assert_true(limits.every_gpu);
    assert_int_equal(limits.every_gpu_amount, UINT64_C(2) << 30);
    assert_int_equal(limits_parse("1073741824", &limits, NULL), 0);
    assert_int_equal(limits.every_gpu_amount, 1 << 30);
}

static void a_star_is_each_gpu_that_no_row_names(void **state)
{
    static const uint8_t uuid[16] = {0xab};
    uint64_t amount = 0;
    assert_int_equal(limits_parse("{\"1\": \"1k\", \"*\": \"2k\"}", &limits, NULL), 0);
    assert_true(limits_find(&limits, uuid, 1, &amount));
    assert_int_equal(amount, 1024);
    assert_true(limits_find(&limits, uuid, 0, &amount));
    assert_int_equal(amount, 2048);
    assert_int_equal(limits_parse("{\"*\": \"2k\"}", &limits, NULL), 0);
    assert_true(limits_find(&limits, uuid, -1, &amount));
    assert_int_equal(limits_parse("{\"*\": \"2k\" \"1\": 3}", &limits, NULL), -EINVAL);
}

static void an_object_names_gpus_by_index_and_uuid_in_any_case(void **state)
{
    static const uint8_t uuid[16] = {0xab, 0xcd, 0xef, 0x01, 0x02, 0x03, 0x04, 0x05,
                                     0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d};
    assert_int_equal(
        limits_parse(" { \"0\" : \"512MiB\" ,\n\"gpu-ABCDEF01-0203-0405-0607-08090A0B0C0D\":4096, "
                     "\"12\": 1 } ",
                     &limits, NULL),
        0);
    assert_false(limits.every_gpu);
    assert_int_equal(limits.count, 3);
    assert_false(limits.rows[0].by_uuid);
    assert_int_equal(limits.rows[0].index, 0);
    assert_int_equal(limits.rows[0].amount, 512 << 20);
    assert_true(limits.rows[1].by_uuid);
    assert_memory_equal(limits.rows[1].uuid, uuid, 16);
    assert_int_equal(limits.rows[1].amount, 4096);
    assert_int_equal(limits.rows[2].index, 12);
}

static void shares_are_percentages(void **state)
{
    static const uint8_t uuid[16] = {0xab, 0xcd, 0xef, 0x01, 0x02, 0x03, 0x04, 0x05,
                                     0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d};
    uint64_t cap = 1;
    assert_int_equal(limits_parse_shares("12.5%", &limits, NULL), 0);
    assert_true(limits_find(&limits, uuid, -1, &cap));
    assert_int_equal(cap, 1250);
    assert_int_equal(limits_parse_shares("20%..60%", &limits, NULL), 0);
    assert_true(limits_find(&limits, uuid, 3, &cap));
    assert_int_equal(cap, 6000);
    assert_int_equal(limits_parse_shares("{\"1\": 30, \"GPU-abcdef01-0203-0405-0607-08090a0b0c0d\": \"5%\"}",
                                         &limits, NULL),
                     0);
    assert_true(limits_find(&limits, (const uint8_t[16]){0}, 1, &cap));
    assert_int_equal(cap, 3000);
    assert_true(limits_find(&limits, uuid, 0, &cap));
    assert_int_equal(cap, 500);
    cap = 77;
    assert_false(limits_find(&limits, (const uint8_t[16]){0}, 0, &cap));
    assert_false(limits_find(&limits, (const uint8_t[16]){0}, -1, &cap));
    assert_int_equal(cap, 77);
    static const char *const wrong[] = {
        "", "0%", "101%", "half", "{\"0\": 0}", "{\"0\": 101}", "{\"0\": \"1GiB\"}"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct error error = {0};
        assert_true(limits_parse_shares(wrong[i], &limits, &error) < 0 && error.message[0]);
    }
}

static void an_empty_object_allows_no_gpu(void **state)
{
    assert_int_equal(limits_parse("{}", &limits, NULL), 0);
    assert_false(limits.every_gpu);
    assert_int_equal(limits.count, 0);
}

static void what_is_not_a_limit_is_refused_and_changes_nothing(void **state)
{
    static const char *const wrong[] = {
        "",
        "lots",
        "-1",
        "2GiB 3",
        "{",
        "{\"0\"}",
        "{\"0\":}",
        "{\"0\": 1",
        "{\"0\": 1,}",
        "{\"0\": 1 \"1\": 2}",
        "{0: 1}",
        "{\"x\": 1}",
        "{\"0\": -1}",
        "{\"0\": 1.5}",
        "{\"0\": {}}",
        "{\"0\":1}x",
        "{\"0\": \"1Q\"}",
        "[1]",
        "{\"0\": \"1}",
        "{\"0\\u0030\": 1}",
        "{\"GPU-abcdef01-0203-0405-0607-08090a0b0c0d-and-what-does-not-belong-to-it-at-all\": 1}",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct error error = {0};
        limits.every_gpu_amount = 77;
        if (limits_parse(wrong[i], &limits, &error) != -EINVAL || !error.message[0])
            fail_msg("'%s' was accepted, or refused without a word", wrong[i]);
        assert_int_equal(limits.every_gpu_amount, 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_size_holds_for_every_gpu),
        cmocka_unit_test(shares_are_percentages),
        cmocka_unit_test(a_star_is_each_gpu_that_no_row_names),
        cmocka_unit_test(an_object_names_gpus_by_index_and_uuid_in_any_case),
        cmocka_unit_test(an_empty_object_allows_no_gpu),
        cmocka_unit_test(what_is_not_a_limit_is_refused_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
