#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "cli/verbs.h"
#include "client/sessions.h"

#define WORDS(...)                                                                                           \
    (char *[])                                                                                               \
    {                                                                                                        \
        __VA_ARGS__, NULL                                                                                    \
    }

/* What the words of `create` ask the daemon for, with this CUDA_VISIBLE_DEVICES. */
static void check_body(char **words, const char *visible_devices, const char *expected)
{
    struct cli_arguments arguments;
    json_t *body = NULL;
    assert_int_equal(cli_parse(&verb_create, words, &arguments, NULL), 0);
    assert_int_equal(sessions_body(&arguments, visible_devices, &body, NULL), 0);
    char *text = json_dumps(body, JSON_COMPACT);
    assert_string_equal(text, expected);
    free(text);
    json_decref(body);
}

static void nothing_named_is_nothing_asked(void **state)
{
    check_body(WORDS(NULL), NULL, "{}");
}

static void one_limit_is_for_every_gpu(void **state)
{
    check_body(WORDS("--memory", "4GiB", "--name", "a"), NULL,
               "{\"name\":\"a\",\"memory_bytes\":4294967296}");
    check_body(WORDS("--gpu", "1", "--gpu", "0", "--memory", "1"), NULL,
               "{\"gpus\":[{\"gpu\":\"1\"},{\"gpu\":\"0\"}],\"memory_bytes\":1}");
}

static void gpus_set_apart_are_the_sessions_gpus(void **state)
{
    check_body(WORDS("--memory", "0=2,1=3"), "5",
               "{\"gpus\":[{\"gpu\":\"0\",\"memory_bytes\":2},{\"gpu\":\"1\",\"memory_bytes\":3}]}");
    check_body(WORDS("--gpu", "0", "--gpu", "GPU-aa", "--memory", "gpu-AA=3"), NULL,
               "{\"gpus\":[{\"gpu\":\"0\"},{\"gpu\":\"GPU-aa\",\"memory_bytes\":3}]}");
}

static void visible_devices_count_where_no_gpu_is_named(void **state)
{
    check_body(WORDS("--memory", "1"), "2,0",
               "{\"gpus\":[{\"gpu\":\"2\"},{\"gpu\":\"0\"}],\"memory_bytes\":1}");
    check_body(WORDS("--gpu", "1"), "2,0", "{\"gpus\":[{\"gpu\":\"1\"}]}");
}

static void no_visible_device_is_an_error(void **state)
{
    struct cli_arguments arguments = {0};
    struct error error = {0};
    json_t *body = NULL;
    assert_int_equal(sessions_body(&arguments, "-1", &body, &error), -ENODEV);
    assert_null(body);
}

static void times_are_written_for_people(void **state)
{
    char text[SESSIONS_TIME_TEXT];
    assert_string_equal(sessions_time("2026-01-31T12:00:00Z", text), "2026-01-31 12:00:00 UTC");
    assert_string_equal(sessions_time("", text), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_named_is_nothing_asked),
        cmocka_unit_test(one_limit_is_for_every_gpu),
        cmocka_unit_test(gpus_set_apart_are_the_sessions_gpus),
        cmocka_unit_test(visible_devices_count_where_no_gpu_is_named),
        cmocka_unit_test(no_visible_device_is_an_error),
        cmocka_unit_test(times_are_written_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
