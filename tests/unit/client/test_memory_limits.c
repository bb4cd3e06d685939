#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/memory_limits.h"

static void one_size_is_for_every_gpu(void **state)
{
    struct memory_limits limits;
    assert_int_equal(memory_limits_parse(&limits, "4GiB", NULL), 0);
    assert_int_equal(limits.every_bytes, 4ull << 30);
    assert_int_equal(limits.gpus.count, 0);

    assert_int_equal(memory_limits_parse(&limits, "1B", NULL), 0);
    assert_int_equal(limits.every_bytes, 1);

    assert_int_equal(memory_limits_parse(&limits, "9223372036854775807", NULL), 0);
    assert_int_equal(limits.every_bytes, INT64_MAX);
}

static void gpus_are_set_apart(void **state)
{
    struct memory_limits limits;
    assert_int_equal(memory_limits_parse(&limits, "0=4GiB,1=512M,GPU-8f2d0c6e=17B", NULL), 0);
    assert_int_equal(limits.every_bytes, 0);
    assert_int_equal(limits.gpus.count, 3);
    assert_string_equal(limits.gpus.names[0], "0");
    assert_int_equal(limits.gpu_bytes[0], 4ull << 30);
    assert_string_equal(limits.gpus.names[1], "1");
    assert_int_equal(limits.gpu_bytes[1], 512ull << 20);
    assert_string_equal(limits.gpus.names[2], "GPU-8f2d0c6e");
    assert_int_equal(limits.gpu_bytes[2], 17);
}

static void a_part_of_the_card_is_a_limit(void **state)
{
    struct memory_limits limits;
    assert_int_equal(memory_limits_parse(&limits, "50%", NULL), 0);
    assert_int_equal(limits.every_part, 5000);
    assert_int_equal(limits.every_bytes, 0);
    assert_true(memory_limits_given(&limits));
    assert_int_equal(memory_limits_parse(&limits, "0=12.5%,1=2GiB", NULL), 0);
    assert_int_equal(limits.gpu_parts[0], 1250);
    assert_int_equal(limits.gpu_bytes[0], 0);
    assert_int_equal(limits.gpu_parts[1], 0);
    assert_int_equal(limits.gpu_bytes[1], 2ull << 30);
}

static void what_is_not_a_limit_is_refused_and_changes_nothing(void **state)
{
    static const struct {
        const char *text;
        int status;
    } rows[] = {
        {"", EINVAL},
        {"0", EINVAL},
        {"0GiB", EINVAL},
        {"0.0001", EINVAL},
        {"-1", EINVAL},
        {"12XB", EINVAL},
        {"1e30", EINVAL},
        {"abc", EINVAL},
        {"9223372036854775808", ERANGE},
        {"18446744073709551616", ERANGE},
        {"99999999999999999999999999", ERANGE},
        {"0%", EINVAL},
        {"101%", EINVAL},
        {"20%..50%", EINVAL},
        {"%", EINVAL},
        {"0=", EINVAL},
        {"=4GiB", EINVAL},
        {"0=0", EINVAL},
        {"0=4GiB,", EINVAL},
        {",0=4GiB", EINVAL},
        {"0=4GiB,2GiB", EINVAL},
        {"0=4GiB,0=2GiB", EINVAL},
        {"x=4GiB", EINVAL},
        {"0=4GiB 1=2GiB", EINVAL},
        {"0==1", EINVAL},
        {"0=1GiB,1=16E", EINVAL},
        {"0=16384P", ERANGE},
        {"0=00000000000000000000000000000000000000000000000000000000000000000000000000000000000001", EINVAL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct memory_limits limits = {.every_bytes = 77};
        struct error error = {0};
        assert_int_equal(memory_limits_parse(&limits, rows[i].text, &error), -rows[i].status);
        assert_int_equal(error.status, rows[i].status);
        assert_true(strlen(error.message) > 20);
        assert_int_equal(limits.every_bytes, 77);
        assert_int_equal(limits.gpus.count, 0);
    }
}

static void gpus_are_named_by_index_or_uuid(void **state)
{
    static const char *const good[] = {
        "0",        "12",  "GPU-8", "gpu-8F2D0c6e-2f0b-5d2c-9a51-0d7a6f1c3b42",        "8f2d",
        "MIG-8f2d", "0:1", "12:6",  "MIG-GPU-8f2d0c6e-2f0b-5d2c-9a51-0d7a6f1c3b42/1/0"};
    static const char *const bad[] = {"",     "-1",   "x",       "0:", ":1", "0:1:2", "0:x", "GPU-8f:1",
                                      "GPU-", "MIG-", "GPU-xyz", "0 ", " 0", "0,1",   "/",   "1.0"};
    struct gpu_names names = {0};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_int_equal(gpu_names_add(&names, good[i], strlen(good[i]), NULL), 0);
    assert_int_equal(names.count, 9);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(gpu_names_add(&names, bad[i], strlen(bad[i]), NULL), -EINVAL);
    assert_int_equal(names.count, 9);
    assert_int_equal(gpu_names_add(&names, "gpu-8", 5, NULL), -EINVAL); /* there already */
    assert_true(gpu_names_contain(&names, "gpu-8"));
    assert_false(gpu_names_contain(&names, "1"));
}

static void a_sixty_fifth_gpu_is_refused(void **state)
{
    struct gpu_names names = {0};
    char name[8];
    for (int i = 0; i < 64; i++) {
        snprintf(name, sizeof(name), "%d", i);
        assert_int_equal(gpu_names_add(&names, name, strlen(name), NULL), 0);
    }
    assert_int_equal(gpu_names_add(&names, "64", 2, NULL), -EINVAL);
}

static void visible_devices_end_at_what_is_not_a_gpu(void **state)
{
    static const struct {
        const char *value;
        unsigned count;
    } rows[] = {
        {"0", 1},    {"1,0", 2},   {" 2 , 3 ", 2}, {"0,-1,1", 1},
        {"0,,1", 1}, {"0,x,1", 1}, {"0,", 1},      {"GPU-8f2d,MIG-77", 2},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gpu_names names = {0};
        assert_int_equal(gpu_names_from_visible_devices(&names, rows[i].value, NULL), 0);
        assert_int_equal(names.count, rows[i].count);
    }
}

static void visible_devices_that_hide_all_are_an_error(void **state)
{
    static const char *const rows[] = {"", "-1", "NoDevFiles", ",0"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gpu_names names = {0};
        assert_int_equal(gpu_names_from_visible_devices(&names, rows[i], NULL), -ENODEV);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_size_is_for_every_gpu),
        cmocka_unit_test(gpus_are_set_apart),
        cmocka_unit_test(a_part_of_the_card_is_a_limit),
        cmocka_unit_test(what_is_not_a_limit_is_refused_and_changes_nothing),
        cmocka_unit_test(gpus_are_named_by_index_or_uuid),
        cmocka_unit_test(a_sixty_fifth_gpu_is_refused),
        cmocka_unit_test(visible_devices_end_at_what_is_not_a_gpu),
        cmocka_unit_test(visible_devices_that_hide_all_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
