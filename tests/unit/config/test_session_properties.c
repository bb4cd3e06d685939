/* Every property goes through text and JSON by its row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "config/session_properties.h"

/* Texts of each kind: one that can be read, and one that cannot. */
static const struct {
    const char *good, *wrong;
} texts[] = {
    [PROPERTY_KIND_SHARE] = {"12.5%..60%", "60%..20%"},
    [PROPERTY_KIND_FLAG] = {"yes", "perhaps"},
    [PROPERTY_KIND_SECONDS] = {"90s", "1500ms"},
    [PROPERTY_KIND_SIZE] = {"4GiB", "0"},
    [PROPERTY_KIND_LABELS] = {"team=vision,stage=test", "team=vision,"},
    [PROPERTY_KIND_NAME] = {"train-0.lab", "a b"},
};

static const char *good_text(const struct property *row)
{
    return row->words ? row->words[1] : texts[row->kind].good;
}

static void what_is_read_is_given_and_comes_back_from_json(void **state)
{
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++) {
        struct session_properties one = {0}, other = {0};
        assert_int_equal(property_parse(row, good_text(row), &one, NULL), 0);
        assert_int_equal(one.given, 1u << row->id);
        json_t *value = property_json(row, &one);
        assert_int_equal(property_from_json(row, value, &other, NULL), 0);
        json_decref(value);
        assert_true(property_is_same(row, &one, &other));
        assert_true(property_is_given(&other, row->id));
    }
}

static void what_cannot_be_read_changes_nothing(void **state)
{
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++) {
        static const struct session_properties nothing;
        struct session_properties properties = {0};
        struct error error = {0};
        json_t *value = json_array();
        const char *wrong = row->words ? "none of these" : texts[row->kind].wrong;
        assert_true(property_parse(row, wrong, &properties, &error) < 0 && error.message[0]);
        assert_true(property_from_json(row, value, &properties, &error) < 0);
        assert_string_equal(error.code, "ERR_BAD_REQUEST");
        assert_memory_equal(&properties, &nothing, sizeof(nothing));
        json_decref(value);
    }
}

static void the_rows_are_found_by_their_names(void **state)
{
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++) {
        assert_ptr_equal(property_find_name(row->name, strlen(row->name)), row);
        assert_ptr_equal(property_find_json(row->json), row);
    }
    assert_null(property_find_name("comput", 6));
    assert_null(property_find_json("compute_"));
}

static void never_is_null(void **state)
{
    const struct property *row = &session_properties[PROPERTY_TTL];
    struct session_properties properties = {0};
    assert_int_equal(property_parse(row, "never", &properties, NULL), 0);
    json_t *value = property_json(row, &properties);
    assert_true(json_is_null(value));
    json_decref(value);
}

static void only_what_is_given_is_taken_over(void **state)
{
    struct session_properties to = {.priority = PRIORITY_HIGH, .ttl_seconds = 9},
                              from = {
                                  .given = 1u << PROPERTY_TTL, .priority = PRIORITY_LOW, .ttl_seconds = 5};
    properties_take_given(&to, &from);
    assert_int_equal(to.priority, PRIORITY_HIGH);
    assert_int_equal(to.ttl_seconds, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_is_given_and_comes_back_from_json),
        cmocka_unit_test(what_cannot_be_read_changes_nothing),
        cmocka_unit_test(the_rows_are_found_by_their_names),
        cmocka_unit_test(never_is_null),
        cmocka_unit_test(only_what_is_given_is_taken_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
