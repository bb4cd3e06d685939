#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <errno.h>

#include <cmocka.h>

#include "base/units.h"

static void sizes_are_read_in_every_unit(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } rows[] = {
        {"0", 0},
        {"1048576", 1048576},
        {"17B", 17},
        {"512M", 512ull << 20},
        {"512MB", 512ull << 20},
        {"4GiB", 4ull << 30},
        {"4gib", 4ull << 30},
        {"1.5G", 3ull << 29},
        {"0.5k", 512},
        {"2TiB", 2ull << 40},
        {"3P", 3ull << 50},
        {"18446744073709551615", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t bytes = 1;
        assert_int_equal(units_parse_bytes(rows[i].text, &bytes, NULL), 0);
        assert_int_equal(bytes, rows[i].bytes);
    }
}

static void what_is_not_a_size_is_refused_and_changes_nothing(void **state)
{
    static const char *const rows[] = {"",    "-1",  "+1",   "12XB", "1e30", "abc", " 1",  "1 ",
                                       ".5G", "1.G", "1KKB", "0x10", "GiB",  "1iB", "1Bi", "1,5G"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t bytes = 77;
        struct error error = {0};
        assert_int_equal(units_parse_bytes(rows[i], &bytes, &error), -EINVAL);
        assert_int_equal(error.status, EINVAL);
        assert_int_equal(bytes, 77);
    }
}

static void a_number_without_a_unit_is_refused_with_what_it_may_mean(void **state)
{
    static const struct {
        const char *text, *told;
    } sizes[] = {{"4", "did you mean 4GiB or 4MiB?"},
                 {"4096", "did you mean 4096MiB or 4096B?"},
                 {"1048575", "did you mean 1048575MiB or 1048575B?"}};
    uint64_t number;
    struct error error;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        assert_int_equal(units_parse_bytes(sizes[i].text, &number, &error), -EINVAL);
        assert_non_null(strstr(error.message, sizes[i].told));
        assert_int_equal(units_parse_bare_bytes(sizes[i].text, &number, &error), 0);
    }
    assert_int_equal(units_parse_bytes("1048576", &number, NULL), 0); /* nobody has as many MiB */
    assert_int_equal(units_parse_duration("8", &number, &error), -EINVAL);
    assert_non_null(strstr(error.message, "did you mean 8s or 8m?"));
    assert_int_equal(units_parse_quantum("5", &number, &error), -EINVAL);
    assert_non_null(strstr(error.message, "did you mean 5ms or 5s?"));
}

static void sizes_beyond_64_bits_are_refused(void **state)
{
    static const char *const rows[] = {"18446744073709551616", "16384P",
                                       "99999999999999999999999999999999999999999G"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t bytes = 77;
        assert_int_equal(units_parse_bytes(rows[i], &bytes, NULL), -ERANGE);
        assert_int_equal(bytes, 77);
    }
}

static void shares_are_read_and_written_the_same(void **state)
{
    static const struct {
        const char *text;
        struct share share;
        const char *written;
    } rows[] = {
        {"25%", {2500, 2500}, "25%"},         {"20%..60%", {2000, 6000}, "20%..60%"},
        {"12.5%", {1250, 1250}, "12.5%"},     {"0.05%..33.33%", {5, 3333}, "0.05%..33.33%"},
        {"0%..100%", {0, 10000}, "0%..100%"}, {"100.00%", {10000, 10000}, "100%"},
        {"007.10%", {710, 710}, "7.1%"},      {"25", {2500, 2500}, "25%"},
        {"20..60", {2000, 6000}, "20%..60%"}, {"20..62.5%", {2000, 6250}, "20%..62.5%"},
        {"0..50", {0, 5000}, "0%..50%"},      {"1", {100, 100}, "1%"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct share share = {1, 2};
        char text[UNITS_SHARE_TEXT];
        assert_int_equal(units_parse_share(rows[i].text, &share, NULL), 0);
        assert_int_equal(share.min, rows[i].share.min);
        assert_int_equal(share.max, rows[i].share.max);
        assert_string_equal(units_format_share(share, text), rows[i].written);
    }
}

static void what_is_not_a_share_is_refused_and_changes_nothing(void **state)
{
    static const struct {
        const char *text;
        int status;
    } rows[] = {
        {"", EINVAL},
        {"0.25", EINVAL},
        {"0.2..0.6", EINVAL},
        {"25..", EINVAL},
        {"%", EINVAL},
        {"-5%", EINVAL},
        {"25%..", EINVAL},
        {"..25%", EINVAL},
        {"25%-50%", EINVAL},
        {"2.%", EINVAL},
        {"1.234%", EINVAL},
        {"25%..50% ", EINVAL},
        {"1e1%", EINVAL},
        {"0%", ERANGE},
        {"0%..0%", ERANGE},
        {"100.01%", ERANGE},
        {"50%..25%", ERANGE},
        {"10%..101%", ERANGE},
        {"99999999999999999999%", ERANGE},
        {"200%..300%", ERANGE},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct share share = {1, 2};
        struct error error = {0};
        assert_int_equal(units_parse_share(rows[i].text, &share, &error), -rows[i].status);
        assert_int_equal(share.min, 1);
        assert_int_equal(share.max, 2);
        assert_true(error.message[0]);
    }
}

static void sizes_are_written_in_the_largest_unit(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        {0, "0B"},
        {1023, "1023B"},
        {1024, "1KiB"},
        {1536, "1.5KiB"},
        {4ull << 30, "4GiB"},
        {(1ull << 30) - 1, "1023.9MiB"},
        {UINT64_MAX, "16383.9PiB"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[UNITS_BYTES_TEXT];
        assert_string_equal(units_format_bytes(rows[i].bytes, text), rows[i].text);
    }
}

static void numbers_stop_at_their_bound(void **state)
{
    uint64_t number = 0;
    assert_int_equal(units_parse_number("65535", 65535, &number, NULL), 0);
    assert_int_equal(number, 65535);
    assert_int_equal(units_parse_number("65536", 65535, &number, NULL), -ERANGE);
    assert_int_equal(units_parse_number("18446744073709551616", UINT64_MAX, &number, NULL), -ERANGE);
    assert_int_equal(units_parse_number("1a", 65535, &number, NULL), -EINVAL);
    assert_int_equal(units_parse_number("", 65535, &number, NULL), -EINVAL);
    assert_int_equal(number, 65535);
}

static void durations_have_units(void **state)
{
    static const struct {
        const char *text;
        uint64_t usec;
    } good[] = {{"500ms", 500000},  {"30s", 30000000},    {"5m", 300000000},
                {"2h", 7200000000}, {"7d", 604800000000}, {"366d", 31622400000000}};
    static const char *const bad[] = {"",      "s",    "0",  "30", "0s",   "-1s",
                                      "1.5s",  "367d", "1w", "5M", "10 s", "99999999999999999999s",
                                      "9999h9"};
    uint64_t usec;
    struct error error;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(units_parse_duration(good[i].text, &usec, NULL), 0);
        assert_int_equal(usec, good[i].usec);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(units_parse_duration(bad[i], &usec, &error), -EINVAL);
}

static void a_turn_has_a_length_or_none(void **state)
{
    static const struct {
        const char *text;
        uint64_t usec;
    } good[] = {{"auto", 0},     {"1ms", 1000},     {"20ms", 20000},
                {"1s", 1000000}, {"30s", 30000000}, {"1h", 3600000000}};
    static const char *const bad[] = {"", "0", "0ms", "2h", "3601s", "fast", "Auto", "1us"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        uint64_t usec = 7;
        assert_int_equal(units_parse_quantum(good[i].text, &usec, NULL), 0);
        assert_int_equal(usec, good[i].usec);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct error error = {0};
        uint64_t usec;
        assert_int_equal(units_parse_quantum(bad[i], &usec, &error), -EINVAL);
        assert_non_null(strstr(error.message, "expected 1ms to 1h, or auto"));
    }
}

static void what_stays_is_told_by_its_parts(void **state)
{
    static const struct units_part parts[] = {{UINT64_C(256) << 20, "exported"},
                                              {UINT64_C(64) << 20, "arrays"}};
    char text[80], little[16];
    assert_string_equal(units_format_stays(parts, 0, text, sizeof(text)), "");
    assert_string_equal(units_format_stays(parts, 1, text, sizeof(text)), "256MiB stay (exported)");
    assert_string_equal(units_format_stays(parts, 2, text, sizeof(text)),
                        "320MiB stay (256MiB exported, 64MiB arrays)");
    assert_string_equal(units_format_stays(parts, 2, little, sizeof(little)), "320MiB stay (25");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_have_units),
        cmocka_unit_test(a_turn_has_a_length_or_none),
        cmocka_unit_test(shares_are_read_and_written_the_same),
        cmocka_unit_test(what_is_not_a_share_is_refused_and_changes_nothing),
        cmocka_unit_test(sizes_are_read_in_every_unit),
        cmocka_unit_test(what_is_not_a_size_is_refused_and_changes_nothing),
        cmocka_unit_test(a_number_without_a_unit_is_refused_with_what_it_may_mean),
        cmocka_unit_test(sizes_beyond_64_bits_are_refused),
        cmocka_unit_test(sizes_are_written_in_the_largest_unit),
        cmocka_unit_test(what_stays_is_told_by_its_parts),
        cmocka_unit_test(numbers_stop_at_their_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
