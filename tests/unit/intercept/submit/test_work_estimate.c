/* How many calls make a mark, and how long they should still take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "intercept/submit/work_estimate.h"

#define MS UINT64_C(1000000)

static void a_chunk_becomes_a_third_of_what_may_be_ahead(void **state)
{
    struct work_estimate estimate;
    (void)state;
    work_estimate_reset(&estimate);
    assert_int_equal(work_estimate_chunk(&estimate), 1);
    assert_int_equal(work_estimate_piece_ns(&estimate), 0);
    for (unsigned i = 0; i < 10; i++)
        work_estimate_measured(&estimate, 1, 50000, AHEAD_LEAST_NS);
    assert_int_equal(work_estimate_piece_ns(&estimate), 50000);
    assert_int_equal(work_estimate_chunk(&estimate), AHEAD_LEAST_NS / 3 / 50000);
}

static void longer_pieces_are_believed_step_by_step(void **state)
{
    struct work_estimate estimate;
    (void)state;
    work_estimate_reset(&estimate);
    work_estimate_measured(&estimate, 1, MS, AHEAD_LEAST_NS);
    work_estimate_measured(&estimate, 1, 100 * MS, AHEAD_LEAST_NS);
    assert_int_equal(work_estimate_piece_ns(&estimate), 2 * MS);
    for (unsigned i = 0; i < 40; i++)
        work_estimate_measured(&estimate, 1, 100 * MS, AHEAD_LEAST_NS);
    assert_in_range(work_estimate_piece_ns(&estimate), 95 * MS, 100 * MS);
}

static void many_pieces_are_believed_more_than_one(void **state)
{
    struct work_estimate estimate;
    (void)state;
    work_estimate_reset(&estimate);
    work_estimate_measured(&estimate, 1, MS, AHEAD_LEAST_NS);
    work_estimate_measured(&estimate, 97, 97 * MS / 10, AHEAD_LEAST_NS);
    assert_int_equal(work_estimate_piece_ns(&estimate), (7 * MS + 97 * MS / 10) / 104);
}

/* As of a program that copies a little before each kernel: a mark is due after so much work, not after so many copies. */
static void marks_follow_the_mean_of_pieces_that_differ(void **state)
{
    struct work_estimate estimate;
    (void)state;
    work_estimate_reset(&estimate);
    for (unsigned i = 0; i < 100; i++)
        work_estimate_measured(&estimate, 1, i % 2 ? MS / 2 : 2000, AHEAD_LEAST_NS);
    assert_in_range(work_estimate_piece_ns(&estimate), MS / 8, MS / 2);
    assert_in_range(work_estimate_chunk(&estimate), 1, 4);
}

static void what_has_an_upper_bound_alone_is_never_taken_for_longer(void **state)
{
    struct work_estimate estimate;
    (void)state;
    work_estimate_reset(&estimate);
    work_estimate_measured(&estimate, 1, MS, AHEAD_LEAST_NS);
    work_estimate_bounded(&estimate, 4, 2 * MS);
    assert_int_equal(work_estimate_piece_ns(&estimate), MS / 2);
    work_estimate_bounded(&estimate, 1, 5 * MS);
    assert_int_equal(work_estimate_piece_ns(&estimate), MS / 2);
}

static void what_is_left_takes_as_long_as_what_was_seen(void **state)
{
    struct work_estimate estimate;
    (void)state;
    work_estimate_reset(&estimate);
    work_estimate_measured(&estimate, 1, MS, AHEAD_LEAST_NS);
    assert_int_equal(work_estimate_left_ns(&estimate, 2, MS / 2, 3), 2 * MS - MS / 2 + 3 * MS);
    /* They take longer than was thought: so will the others. */
    assert_int_equal(work_estimate_left_ns(&estimate, 2, 8 * MS, 3), 4 * MS * 3);
}

static void a_stream_that_ran_dry_may_have_more_ahead_for_a_while(void **state)
{
    uint64_t ns = 0;
    (void)state;
    ns = work_estimate_ahead(ns, AHEAD_LEAST_NS, true);
    assert_int_equal(ns, AHEAD_LEAST_NS * 3 / 2);
    for (unsigned i = 0; i < 10; i++)
        ns = work_estimate_ahead(ns, AHEAD_LEAST_NS, true);
    assert_int_equal(ns, AHEAD_MOST_NS);
    for (unsigned i = 0; i < 5000; i++)
        ns = work_estimate_ahead(ns, AHEAD_LEAST_NS, false);
    assert_in_range(ns, AHEAD_LEAST_NS, AHEAD_LEAST_NS + 1000);
    assert_int_equal(work_estimate_ahead(0, MS / 2, false), MS / 2);
}

/* As below a higher priority: its bursts wait for what is ahead. */
static void what_a_lease_bounds_is_soon_as_little_again(void **state)
{
    uint64_t ns = MS;
    (void)state;
    for (unsigned i = 0; i < 100; i++)
        ns = work_estimate_ahead(ns, MS / 2, false);
    assert_in_range(ns, MS / 2, MS * 5 / 8);
}

/* It is enough once the next gap finds work before the GPU. */
static void a_program_that_runs_ahead_of_its_gaps_may_have_more(void **state)
{
    uint64_t ns = AHEAD_LEAST_NS;
    struct work_estimate estimate;
    (void)state;
    for (unsigned i = 0; i < 4; i++)
        ns = work_estimate_ahead_of_gap(ns);
    assert_int_equal(ns, AHEAD_LEAST_NS * 81 / 16);
    for (unsigned i = 0; i < 10; i++)
        ns = work_estimate_ahead_of_gap(ns);
    assert_int_equal(ns, AHEAD_OF_GAP_MOST_NS);
    assert_int_equal(work_estimate_ahead(ns, AHEAD_LEAST_NS, true), ns);
    work_estimate_reset(&estimate);
    for (unsigned i = 0; i < 10; i++)
        work_estimate_measured(&estimate, 1, 50000, ns);
    assert_int_equal(work_estimate_chunk(&estimate), ns / 6 / 50000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_becomes_a_third_of_what_may_be_ahead),
        cmocka_unit_test(longer_pieces_are_believed_step_by_step),
        cmocka_unit_test(many_pieces_are_believed_more_than_one),
        cmocka_unit_test(marks_follow_the_mean_of_pieces_that_differ),
        cmocka_unit_test(what_has_an_upper_bound_alone_is_never_taken_for_longer),
        cmocka_unit_test(what_is_left_takes_as_long_as_what_was_seen),
        cmocka_unit_test(a_stream_that_ran_dry_may_have_more_ahead_for_a_while),
        cmocka_unit_test(what_a_lease_bounds_is_soon_as_little_again),
        cmocka_unit_test(a_program_that_runs_ahead_of_its_gaps_may_have_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
