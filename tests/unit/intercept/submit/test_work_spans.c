/* For how long several streams have work, from the times of what was measured. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "intercept/submit/work_spans.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define SLICE_NS (8 * MS)

static void what_is_at_the_same_time_counts_once(void **state)
{
    struct work_spans spans = {0};
    (void)state;
    work_spans_add(&spans, 10 * MS, 14 * MS, UINT64_MAX);
    work_spans_add(&spans, 12 * MS, 16 * MS, UINT64_MAX);
    work_spans_add(&spans, 20 * MS, 21 * MS, UINT64_MAX);
    work_spans_add(&spans, 20 * MS, 21 * MS, UINT64_MAX);
    work_spans_add(&spans, 18 * MS, 19 * MS, UINT64_MAX);
    assert_int_equal(work_spans_take(&spans, 11 * MS), 8 * MS);
    assert_int_equal(work_spans_take(&spans, 0), 0);
}

static void spans_become_one_when_what_lay_between_them_is_told(void **state)
{
    struct work_spans spans = {0};
    (void)state;
    work_spans_add(&spans, 10 * MS, 11 * MS, UINT64_MAX);
    work_spans_add(&spans, 14 * MS, 15 * MS, UINT64_MAX);
    work_spans_add(&spans, 12 * MS, 13 * MS, UINT64_MAX);
    work_spans_add(&spans, 10 * MS, 15 * MS, UINT64_MAX);
    assert_int_equal(spans.count, 1);
    assert_int_equal(work_spans_take(&spans, 8 * MS), 5 * MS);
}

/* One stream tells of its work later than the other. */
static void what_was_taken_before_is_not_taken_again(void **state)
{
    struct work_spans spans = {0};
    (void)state;
    work_spans_add(&spans, 10 * MS, 20 * MS, UINT64_MAX);
    assert_int_equal(work_spans_take(&spans, 10 * MS), 10 * MS);
    work_spans_add(&spans, 12 * MS, 22 * MS, UINT64_MAX);
    assert_int_equal(work_spans_take(&spans, 10 * MS), 2 * MS);
}

static void more_spans_than_there_is_room_for_lose_nothing(void **state)
{
    struct work_spans spans = {0};
    (void)state;
    for (uint64_t i = 1; i <= 10 * WORK_SPANS; i++)
        work_spans_add(&spans, i * MS, i * MS + 300 * US, UINT64_MAX);
    assert_int_equal(work_spans_take(&spans, 10 * WORK_SPANS * 300 * US), 10 * WORK_SPANS * 300 * US);
    /* What is told too late lies in what was told. */
    work_spans_add(&spans, 2 * MS, 2 * MS + 300 * US, UINT64_MAX);
    assert_int_equal(work_spans_take(&spans, 300 * US), 0);
}

/* `streams` streams have work for 300 us of each ms, each at a time of its own. Of `every` slices, one is measured. Returns the
 * part of the time for which any stream had work, in the last half of the time. */
static double part_of_time(unsigned streams, const uint64_t *from_ns, unsigned every)
{
    struct work_spans spans = {0};
    uint64_t any_ns = 0;
    for (uint64_t slice = 1; slice <= 400; slice++) {
        for (uint64_t ms = 0; ms < 8 && slice % every == 0; ms++)
            for (unsigned i = 0; i < streams; i++) {
                uint64_t at_ns = slice * SLICE_NS + ms * MS + from_ns[i];
                work_spans_add(&spans, at_ns, at_ns + 300 * US, UINT64_MAX);
            }
        uint64_t told_ns = work_spans_take(&spans, streams * 8 * 300 * US);
        any_ns += slice > 200 ? told_ns : 0;
    }
    return (double)any_ns / (200.0 * (double)SLICE_NS);
}

static void calls_that_were_not_measured_are_at_the_same_time_as_often(void **state)
{
    const uint64_t apart[] = {0, 400 * US}, half[] = {0, 150 * US},
                   together[] = {100 * US, 100 * US, 100 * US};
    (void)state;
    for (unsigned every = 1; every <= 8; every *= 2) {
        assert_in_range((uint64_t)(1000 * part_of_time(2, apart, every)), 590, 610);
        assert_in_range((uint64_t)(1000 * part_of_time(2, half, every)), 440, 460);
        assert_in_range((uint64_t)(1000 * part_of_time(3, together, every)), 290, 310);
    }
}

static void without_a_measured_call_all_work_is_taken_to_be_apart(void **state)
{
    struct work_spans spans = {0};
    (void)state;
    assert_int_equal(work_spans_take(&spans, 5 * MS), 5 * MS);
}

/* Two streams have calls of 16 ms, one right behind the other, the second by 8 ms later than the first: both always have work. They are
 * measured from 24 ms to 72 ms of each 96 ms. */
static void what_outlasts_the_measuring_of_others_is_taken_to_be_beside_them(void **state)
{
    struct work_spans spans = {0};
    (void)state;
    for (uint64_t i = 1; i <= 100; i++) {
        uint64_t at_ns = i * 96 * MS, until_ns = at_ns + 72 * MS;
        for (uint64_t k = 0; k < 3; k++) {
            work_spans_add(&spans, at_ns + 24 * MS + k * 16 * MS, at_ns + 40 * MS + k * 16 * MS, until_ns);
            work_spans_add(&spans, at_ns + 32 * MS + k * 16 * MS, at_ns + 48 * MS + k * 16 * MS, until_ns);
        }
        uint64_t any_ns = work_spans_take(&spans, 2 * 96 * MS);
        /* Nothing is known of the call that the second stream had from 24 ms to 32 ms. */
        assert_in_range(any_ns, 96 * MS, 96 * MS * 48 / 44);
    }
}

static void after_a_change_new_times_count_at_once(void **state)
{
    struct work_spans spans = {0};
    (void)state;
    for (uint64_t i = 1; i <= 100; i++) {
        work_spans_add(&spans, i * 20 * MS, i * 20 * MS + 10 * MS, UINT64_MAX);
        work_spans_add(&spans, i * 20 * MS, i * 20 * MS + 10 * MS, UINT64_MAX);
        assert_int_equal(work_spans_take(&spans, 20 * MS), 10 * MS);
    }
    work_spans_change(&spans);
    for (uint64_t i = 101; i <= 103; i++) {
        work_spans_add(&spans, i * 20 * MS, i * 20 * MS + 5 * MS, UINT64_MAX);
        work_spans_add(&spans, i * 20 * MS + 5 * MS, i * 20 * MS + 10 * MS, UINT64_MAX);
        uint64_t any_ns = work_spans_take(&spans, 20 * MS); /* as much again was not measured */
        assert_true(i == 101 || any_ns > 18 * MS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_at_the_same_time_counts_once),
        cmocka_unit_test(spans_become_one_when_what_lay_between_them_is_told),
        cmocka_unit_test(what_was_taken_before_is_not_taken_again),
        cmocka_unit_test(more_spans_than_there_is_room_for_lose_nothing),
        cmocka_unit_test(calls_that_were_not_measured_are_at_the_same_time_as_often),
        cmocka_unit_test(without_a_measured_call_all_work_is_taken_to_be_apart),
        cmocka_unit_test(what_outlasts_the_measuring_of_others_is_taken_to_be_beside_them),
        cmocka_unit_test(after_a_change_new_times_count_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
