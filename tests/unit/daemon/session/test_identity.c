/* Names, IDs, tokens and times. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/session/identity.h"

static void random_hex_has_the_length_asked_for_and_differs(void **state)
{
    for (size_t digits = 1; digits <= 130; digits += 43) {
        char first[132], second[132];
        memset(first, 'z', sizeof(first));
        identity_random_hex(first, digits);
        identity_random_hex(second, digits);
        assert_int_equal(strspn(first, "0123456789abcdef"), digits);
        assert_int_equal(first[digits], '\0');
        if (digits > 8)
            assert_string_not_equal(first, second);
    }
}

static void an_id_is_12_lower_case_hex_digits(void **state)
{
    assert_true(identity_is_id("0123456789ab"));
    assert_false(identity_is_id("0123456789a"));
    assert_false(identity_is_id("0123456789abc"));
    assert_false(identity_is_id("0123456789AB"));
    assert_false(identity_is_id("../456789ab"));
    assert_false(identity_is_id(""));
}

static void a_name_has_1_to_63_harmless_characters(void **state)
{
    char name[66];
    memset(name, 'a', sizeof(name));
    name[63] = '\0';
    assert_true(identity_is_valid(name));
    name[63] = 'a';
    name[64] = '\0';
    assert_false(identity_is_valid(name));
    assert_true(identity_is_valid("Train-1.b_2"));
    assert_false(identity_is_valid(""));
    assert_false(identity_is_valid("a b"));
    assert_false(identity_is_valid("a/b"));
    assert_false(identity_is_valid("a\"b"));
    assert_false(identity_is_valid("gr\xc3\xbc\xc3\x9f"));
}

static void a_token_matches_itself_alone(void **state)
{
    assert_true(identity_token_matches("secret", "secret"));
    assert_false(identity_token_matches("secret", "secreT"));
    assert_false(identity_token_matches("secret", "secre"));
    assert_false(identity_token_matches("secret", "secretsecret"));
    assert_false(identity_token_matches("secret", ""));
    assert_false(identity_token_matches("", ""));
    assert_false(identity_token_matches("", "x"));
}

static void a_requests_key_is_32_lower_case_hex_digits(void **state)
{
    assert_true(identity_is_key("0123456789abcdef0123456789abcdef"));
    assert_false(identity_is_key("0123456789abcdef0123456789abcde"));
    assert_false(identity_is_key("0123456789abcdef0123456789abcdef0"));
    assert_false(identity_is_key("0123456789abcdef0123456789ABCDEF"));
}

static void a_name_that_means_something_else_is_not_given(void **state)
{
    assert_false(identity_may_be_given("."));
    assert_false(identity_may_be_given(".."));
    assert_false(identity_may_be_given("-"));
    assert_false(identity_may_be_given("-x"));
    assert_true(identity_may_be_given("..."));
    assert_true(identity_may_be_given("a-"));
    assert_true(identity_is_valid("..")); /* sessions that were made before are kept */
}

static void times_are_utc_in_rfc_3339(void **state)
{
    char text[TIME_TEXT];
    assert_string_equal(identity_format_time(0, text), "1970-01-01T00:00:00Z");
    assert_string_equal(identity_format_time(1769860800, text), "2026-01-31T12:00:00Z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_hex_has_the_length_asked_for_and_differs),
        cmocka_unit_test(an_id_is_12_lower_case_hex_digits),
        cmocka_unit_test(a_requests_key_is_32_lower_case_hex_digits),
        cmocka_unit_test(a_name_has_1_to_63_harmless_characters),
        cmocka_unit_test(a_name_that_means_something_else_is_not_given),
        cmocka_unit_test(a_token_matches_itself_alone),
        cmocka_unit_test(times_are_utc_in_rfc_3339),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
