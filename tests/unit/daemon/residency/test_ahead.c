/* How much host memory is made ahead of need, and who gives some back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/residency/ahead.h"

#define GIB (UINT64_C(1) << 30)

static const struct ahead_host host = {
    .is_allowed = true, .bound_bytes = 100 * GIB, .chunk_bytes = GIB, .given_bytes = 20 * GIB};
static const struct ahead_process process = {
    .movable_bytes = 10 * GIB, .steady_usec = UINT64_C(10000000), .may_have_to_leave = true};

static void what_may_have_to_leave_gets_what_it_lacks(void **state)
{
    struct ahead_process some = process;
    assert_true(ahead_is_due(&some, &host));
    some.given_bytes = 10 * GIB - 1;
    assert_true(ahead_is_due(&some, &host));
    some.given_bytes = 10 * GIB;
    assert_false(ahead_is_due(&some, &host));
}

static void nothing_is_made_where_it_does_not_help(void **state)
{
    struct ahead_process stays = process, grows = process;
    struct ahead_host forbids = host;
    stays.may_have_to_leave = false;
    grows.steady_usec = 1000000;
    forbids.is_allowed = false;
    assert_false(ahead_is_due(&stays, &host));
    assert_false(ahead_is_due(&grows, &host));
    assert_false(ahead_is_due(&process, &forbids));
}

static void half_of_the_bound_is_left_for_needs(void **state)
{
    struct ahead_host nearly = host;
    nearly.given_bytes = 49 * GIB;
    assert_true(ahead_is_due(&process, &nearly));
    nearly.given_bytes = 49 * GIB + 1;
    assert_false(ahead_is_due(&process, &nearly));
    nearly.given_bytes = 80 * GIB;
    assert_false(ahead_is_due(&process, &nearly));
}

static void a_process_that_hardly_has_to_leave_gives_back_first(void **state)
{
    struct ahead_holder holders[] = {{.given_bytes = 30 * GIB, .may_have_to_leave = true},
                                     {.given_bytes = 5 * GIB},
                                     {.given_bytes = 8 * GIB}};
    assert_int_equal(ahead_take_back(holders, 3, 10 * GIB), 10 * GIB);
    assert_int_equal(holders[0].keep_bytes, 30 * GIB);
    assert_int_equal(holders[1].keep_bytes, 3 * GIB);
    assert_int_equal(holders[2].keep_bytes, 0);
    assert_int_equal(ahead_take_back(holders, 3, 20 * GIB), 20 * GIB);
    assert_int_equal(holders[0].keep_bytes, 23 * GIB);
    assert_int_equal(holders[1].keep_bytes, 0);
}

static void what_holds_memory_that_is_away_is_kept(void **state)
{
    struct ahead_holder holders[] = {{.given_bytes = 8 * GIB, .away_bytes = 6 * GIB},
                                     {.given_bytes = 4 * GIB, .away_bytes = 5 * GIB}};
    assert_int_equal(ahead_take_back(holders, 2, 10 * GIB), 2 * GIB);
    assert_int_equal(holders[0].keep_bytes, 6 * GIB);
    assert_int_equal(holders[1].keep_bytes, 4 * GIB);
    assert_int_equal(ahead_take_back(NULL, 0, GIB), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_may_have_to_leave_gets_what_it_lacks),
        cmocka_unit_test(nothing_is_made_where_it_does_not_help),
        cmocka_unit_test(half_of_the_bound_is_left_for_needs),
        cmocka_unit_test(a_process_that_hardly_has_to_leave_gives_back_first),
        cmocka_unit_test(what_holds_memory_that_is_away_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
