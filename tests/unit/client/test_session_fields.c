#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/session_fields.h"

static void a_field_of_another_type_is_nothing(void **state)
{
    json_t *document = json_pack("{s:i,s:s,s:i}", "limit", 5, "name", "a", "below", -1);
    assert_int_equal(session_number(document, "limit"), 5);
    assert_int_equal(session_number(document, "name"), 0);
    assert_int_equal(session_number(document, "below"), 0);
    assert_int_equal(session_number(document, "missing"), 0);
    assert_string_equal(session_text(document, "name"), "a");
    assert_string_equal(session_text(document, "limit"), "");
    assert_string_equal(session_text(NULL, "name"), "");
    json_decref(document);
}

static void shares_are_written_as_options_take_them(void **state)
{
    char text[UNITS_SHARE_TEXT];
    json_t *document = json_pack("{s:f,s:f}", "compute_min_ratio", 0.2, "compute_max_ratio", 0.625);
    assert_string_equal(session_share(document, text), "20%..62.5%");
    json_decref(document);
}

static void times_are_written_for_people(void **state)
{
    char text[SESSION_TIME_TEXT];
    assert_string_equal(session_time("2026-01-31T12:00:00Z", text), "2026-01-31 12:00:00 UTC");
    assert_string_equal(session_time("2026-01-31T12:00:00.123Z", text), "2026-01-31 12:00:00.123 UTC");
    assert_string_equal(session_time("", text), "");
}

static void milliseconds_are_written_without_an_exponent(void **state)
{
    static const struct {
        double seconds;
        const char *two, *three;
    } rows[] = {
        {0, "0", "0"},        {0.0000252, "0.025", "0.0252"}, {0.000755, "0.76", "0.755"},
        {0.021, "21", "21"},  {0.0994, "99", "99.4"},         {0.0996, "100", "99.6"},
        {0.46, "460", "460"}, {0.9996, "1000", "1000"},       {4.25, "4250", "4250"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[SESSION_MS_TEXT];
        json_t *document = json_pack("{s:f}", "p50_seconds", rows[i].seconds);
        assert_string_equal(session_ms(document, "p50_seconds", 2, text), rows[i].two);
        assert_string_equal(session_ms(document, "p50_seconds", 3, text), rows[i].three);
        json_decref(document);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_field_of_another_type_is_nothing),
        cmocka_unit_test(shares_are_written_as_options_take_them),
        cmocka_unit_test(milliseconds_are_written_without_an_exponent),
        cmocka_unit_test(times_are_written_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
