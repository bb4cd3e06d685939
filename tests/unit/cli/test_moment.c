#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "cli/moment.h"

#define SECOND UINT64_C(1000000)
#define NOON ((time_t)1769860800) /* 2026-01-31T12:00:00Z */

static void check(const char *text, uint64_t seconds)
{
    uint64_t usec = 0;
    assert_int_equal(moment_parse(text, NOON, &usec, NULL), 0);
    assert_int_equal(usec, seconds * SECOND);
}

static void a_moment_is_a_duration_or_a_time(void **state)
{
    check("90m", 5400);
    check("7d", 7 * 86400);
    check("11:30", 1800);
    check("11:59:58", 2);
    check("2026-01-31", 43200);
    check("2026-01-30T12:00", 86400);
    check("2026-01-30 11:59:59", 86401);
    check("2020-01-31", UINT64_C(365) * 86400);
}

static void what_is_no_moment_is_refused(void **state)
{
    static const char *const texts[] = {"", "noon", "12:00", "13:00", "2027-01-01", "2026-01-31T", "11:30x"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        uint64_t usec = 7;
        assert_int_equal(moment_parse(texts[i], NOON, &usec, NULL), -EINVAL);
        assert_int_equal(usec, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_moment_is_a_duration_or_a_time),
        cmocka_unit_test(what_is_no_moment_is_refused),
    };
    setenv("TZ", "UTC", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
