#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/gslice.h"

#define WORDS(...)                                                                                           \
    (char *[])                                                                                               \
    {                                                                                                        \
        __VA_ARGS__, NULL                                                                                    \
    }

static void only_two_numbers_and_a_library_are_its_form_of_run(void **state)
{
    assert_true(gslice_is_run(WORDS("1", "2", "/a/libgpuslice.so", "/a", "true"), 5));
    assert_false(gslice_is_run(WORDS("1", "2", "/a/libgpuslice.so", "/a"), 4));
    assert_false(gslice_is_run(WORDS("python", "2", "/a/libgpuslice.so", "/a", "true"), 5));
    assert_false(gslice_is_run(WORDS("1", "2s", "/a/libgpuslice.so", "/a", "true"), 5));
    assert_false(gslice_is_run(WORDS("1", "2", "/a/program", "/a", "true"), 5));
}

static void run_means_options(void **state)
{
    char *words[] = {"134217728", "120", "/a/libgpuslice.so", "/nowhere", "true", "-x", NULL};
    const struct cli_arguments given = {.operands = words, .operand_count = 6};
    struct cli_arguments meant;
    setenv("LD_LIBRARY_PATH", "/before", 1);
    assert_int_equal(gslice_read_run(&given, &meant, NULL), 0);
    assert_int_equal(meant.wish.memory.every_bytes, 134217728);
    assert_int_equal(meant.wish.properties.ttl_seconds, 120);
    assert_false(meant.simulated);
    assert_int_equal(meant.operand_count, 2);
    assert_string_equal(meant.operands[0], "true");
    assert_string_equal(meant.operands[1], "-x");
    assert_string_equal(getenv("LD_LIBRARY_PATH"), "/nowhere:/before");
}

static void run_existing_means_a_session(void **state)
{
    char *words[] = {"train", "/a/libgpuslice.so", "/nowhere", "true", NULL};
    const struct cli_arguments given = {.operands = words, .operand_count = 4};
    struct cli_arguments meant;
    assert_int_equal(gslice_read_run_existing(&given, &meant, NULL), 0);
    assert_string_equal(meant.session, "train");
    assert_int_equal(meant.operand_count, 1);
}

static void wrong_numbers_are_refused(void **state)
{
    char *none[] = {NULL}, *zero[] = {"0", "120", NULL}, *words[] = {"1", "soon", NULL};
    struct cli_arguments meant;
    struct error error;
    assert_int_equal(gslice_read_allocate(&(struct cli_arguments){.operands = none}, &meant, &error), 0);
    assert_int_equal(meant.wish.memory.every_bytes, 0);
    const struct cli_arguments nothing = {.operands = zero, .operand_count = 2};
    assert_int_equal(gslice_read_allocate(&nothing, &meant, &error), -EINVAL);
    const struct cli_arguments no_time = {.operands = words, .operand_count = 2};
    assert_int_equal(gslice_read_allocate(&no_time, &meant, &error), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_two_numbers_and_a_library_are_its_form_of_run),
        cmocka_unit_test(run_means_options),
        cmocka_unit_test(run_existing_means_a_session),
        cmocka_unit_test(wrong_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
