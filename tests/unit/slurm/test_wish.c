#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "slurm/wish.h"

static void check_body(const char *text, const char *expected)
{
    json_t *body = NULL;
    struct error error = {0};
    assert_int_equal(wish_parse(text, &body, &error), 0);
    char *found = json_dumps(body, JSON_SORT_KEYS | JSON_COMPACT);
    assert_string_equal(found, expected);
    free(found);
    json_decref(body);
}

static void an_option_is_the_body_of_a_session(void **state)
{
    check_body("memory=4GiB", "{\"memory_bytes\":4294967296}");
    check_body("compute=20%..60%,memory=1KiB", "{\"compute\":\"20%..60%\",\"memory_bytes\":1024}");
    check_body(
        "memory=1K,compute=25%,priority=high,gpu=0",
        "{\"compute\":\"25%\",\"gpus\":[{\"gpu\":\"0\"}],\"memory_bytes\":1024,\"priority\":\"high\"}");
    check_body(",memory=1K,,", "{\"memory_bytes\":1024}");
}

static void what_is_wrong_is_named(void **state)
{
    static const char *const wrong[][2] = {
        {"", "memory is missing"},
        {"compute=10%", "memory is missing"},
        {"memory", "memory has no value"},
        {"memory=", "memory has no value"},
        {"memory=0", "'0'"},
        {"memory=4096", "did you mean 4096MiB or 4096B?"},
        {"memory=lots", "lots"},
        {"memory=1K,memory=2K", "twice"},
        {"memory=1K,compute=200%", "200%"},
        {"memory=1K,priority=urgent", "urgent"},
        {"memory=1K,mem=2K", "'mem=2K'"},
        {"=,memory=1K", "'='"},
        {"memoryx=1K", "'memoryx=1K'"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        json_t *body = NULL;
        struct error error = {0};
        assert_true(wish_parse(wrong[i][0], &body, &error) < 0);
        assert_null(body);
        if (!strstr(error.message, wrong[i][1]))
            fail_msg("of '%s': '%s' lacks '%s'", wrong[i][0], error.message, wrong[i][1]);
    }
    char long_text[600];
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    json_t *body = NULL;
    assert_true(wish_parse(long_text, &body, NULL) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_option_is_the_body_of_a_session),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
