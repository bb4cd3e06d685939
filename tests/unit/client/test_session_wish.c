#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/session_wish.h"

/* What `wish` asks the daemon for, with this CUDA_VISIBLE_DEVICES. */
static void check_body(const struct session_wish *wish, const char *visible_devices, const char *expected)
{
    json_t *body = NULL;
    assert_int_equal(session_wish_body(wish, visible_devices, &body, NULL), 0);
    char *text = json_dumps(body, JSON_COMPACT);
    assert_string_equal(text, expected);
    free(text);
    json_decref(body);
}

static struct session_wish with_memory(const char *limits)
{
    struct session_wish wish = {0};
    assert_int_equal(memory_limits_parse(&wish.memory, limits, NULL), 0);
    return wish;
}

static void add_gpu(struct session_wish *wish, const char *name)
{
    assert_int_equal(gpu_names_add(&wish->gpus, name, strlen(name), NULL), 0);
}

static void nothing_named_is_nothing_asked(void **state)
{
    check_body(&(struct session_wish){0}, NULL, "{}");
}

static void every_wish_is_a_field(void **state)
{
    struct session_wish wish = {.name = "a",
                                .properties = {.given = 1u << PROPERTY_COMPUTE | 1u << PROPERTY_PRIORITY |
                                                        1u << PROPERTY_TTL | 1u << PROPERTY_IDLE_SUSPEND,
                                               .compute = {2500, 5000},
                                               .priority = PRIORITY_HIGH,
                                               .ttl_seconds = 7200},
                                .wait_usec = UINT64_MAX};
    check_body(&wish, NULL,
               "{\"name\":\"a\",\"compute\":\"25%..50%\",\"priority\":\"high\",\"ttl_seconds\":7200,"
               "\"idle_suspend_seconds\":null}");
}

static void one_limit_is_for_every_gpu(void **state)
{
    struct session_wish wish = with_memory("4GiB");
    check_body(&wish, NULL, "{\"memory_bytes\":4294967296}");
    add_gpu(&wish, "1");
    add_gpu(&wish, "0");
    check_body(&wish, NULL, "{\"gpus\":[{\"gpu\":\"1\"},{\"gpu\":\"0\"}],\"memory_bytes\":4294967296}");
}

static void gpus_with_limits_of_their_own_are_the_sessions_gpus(void **state)
{
    struct session_wish wish = with_memory("0=2B,1=3B");
    check_body(&wish, "5",
               "{\"gpus\":[{\"gpu\":\"0\",\"memory_bytes\":2},{\"gpu\":\"1\",\"memory_bytes\":3}]}");
    wish = with_memory("gpu-AA=3B");
    add_gpu(&wish, "0");
    add_gpu(&wish, "GPU-aa");
    check_body(&wish, NULL, "{\"gpus\":[{\"gpu\":\"0\"},{\"gpu\":\"GPU-aa\",\"memory_bytes\":3}]}");
}

static void visible_devices_count_where_no_gpu_is_named(void **state)
{
    struct session_wish wish = with_memory("1B");
    check_body(&wish, "2,0", "{\"gpus\":[{\"gpu\":\"2\"},{\"gpu\":\"0\"}],\"memory_bytes\":1}");
    add_gpu(&wish, "1");
    check_body(&wish, "2,0", "{\"gpus\":[{\"gpu\":\"1\"}],\"memory_bytes\":1}");
}

static void no_visible_device_is_an_error(void **state)
{
    struct error error = {0};
    json_t *body = NULL;
    assert_int_equal(session_wish_body(&(struct session_wish){0}, "-1", &body, &error), -ENODEV);
    assert_null(body);
}

static void a_limit_for_a_gpu_that_is_not_named_is_refused(void **state)
{
    struct error error = {0};
    struct session_wish wish = with_memory("1=3B");
    assert_int_equal(session_wish_check(&wish, &error), 0);
    add_gpu(&wish, "0");
    assert_int_equal(session_wish_check(&wish, &error), -EINVAL);
    assert_non_null(strstr(error.message, "GPU '1'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_named_is_nothing_asked),
        cmocka_unit_test(every_wish_is_a_field),
        cmocka_unit_test(one_limit_is_for_every_gpu),
        cmocka_unit_test(gpus_with_limits_of_their_own_are_the_sessions_gpus),
        cmocka_unit_test(visible_devices_count_where_no_gpu_is_named),
        cmocka_unit_test(no_visible_device_is_an_error),
        cmocka_unit_test(a_limit_for_a_gpu_that_is_not_named_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
