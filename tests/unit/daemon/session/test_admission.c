/* Whether limits fit on a card, in numbers. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/session/admission.h"

#define GIB (UINT64_C(1) << 30)

static void what_exactly_fits_is_admitted(void **state)
{
    struct error error = {0};
    assert_int_equal(admission_check("0", 8 * GIB, 5 * GIB, 0, 3 * GIB, &error), 0);
    assert_int_equal(admission_check("0", 8 * GIB, 0, 0, 8 * GIB, &error), 0);
    assert_int_equal(error.status, 0);
}

static void one_byte_more_is_refused_with_the_numbers(void **state)
{
    struct error error = {0};
    assert_int_equal(admission_check("3", 8 * GIB, 5 * GIB, 0, 3 * GIB + 1, &error), -EBUSY);
    assert_string_equal(error.code, "ERR_ADMISSION");
    assert_non_null(strstr(error.message, "3221225473")); /* asked */
    assert_non_null(strstr(error.message, "3221225472")); /* left */
    assert_non_null(strstr(error.message, "GPU 3"));
}

static void what_processes_outside_hold_is_left_to_them(void **state)
{
    struct error error = {0};
    assert_int_equal(admission_check("0", 8 * GIB, 5 * GIB, GIB, 2 * GIB, &error), 0);
    assert_int_equal(admission_check("0", 8 * GIB, 5 * GIB, GIB, 2 * GIB + 1, &error), -EBUSY);
    assert_non_null(strstr(error.message, "processes in no session here hold 1GiB"));
}

static void more_than_the_card_is_refused_as_such(void **state)
{
    struct error error = {0};
    assert_int_equal(admission_check("0", 8 * GIB, 0, 0, 9 * GIB, &error), -EBUSY);
    assert_non_null(strstr(error.message, "more than GPU 0 has"));
}

static void minimum_shares_are_promised_up_to_the_whole(void **state)
{
    struct error error = {0};
    assert_int_equal(admission_check_share("0", 7500, 2500, &error), 0);
    assert_int_equal(admission_check_share("0", 10000, 0, &error), 0);
    assert_int_equal(admission_check_share("2", 7500, 2501, &error), -EBUSY);
    assert_string_equal(error.code, "ERR_ADMISSION");
    assert_non_null(strstr(error.message, "25.01%"));
    assert_non_null(strstr(error.message, "GPU 2"));
    assert_non_null(strstr(error.message, "leaves 25%"));
}

static void an_overbooked_card_has_nothing_left(void **state)
{
    assert_int_equal(admission_unreserved(8 * GIB, 9 * GIB, 0), 0);
    assert_int_equal(admission_unreserved(8 * GIB, UINT64_MAX, 1), 0);
    assert_int_equal(admission_unreserved(8 * GIB, 8 * GIB - 1, 0), 1);
}

static void the_roomiest_card_is_the_first_of_equals(void **state)
{
    assert_int_equal(admission_roomiest((uint64_t[]){1, 5, 5, 2}, 4), 1);
    assert_int_equal(admission_roomiest((uint64_t[]){0, 0}, 2), 0);
    assert_int_equal(admission_roomiest((uint64_t[]){1, 2, UINT64_MAX}, 3), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minimum_shares_are_promised_up_to_the_whole),
        cmocka_unit_test(what_exactly_fits_is_admitted),
        cmocka_unit_test(one_byte_more_is_refused_with_the_numbers),
        cmocka_unit_test(what_processes_outside_hold_is_left_to_them),
        cmocka_unit_test(more_than_the_card_is_refused_as_such),
        cmocka_unit_test(an_overbooked_card_has_nothing_left),
        cmocka_unit_test(the_roomiest_card_is_the_first_of_equals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
