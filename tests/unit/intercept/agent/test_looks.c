/* What looks tell of streams that work side by side, with and without an error of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "intercept/agent/looks.h"

#define MS UINT64_C(1000000)
#define REPORT_NS (20 * MS)
#define REPORTS 500u

/* Two streams, which work for a part of each ms; of the moments at which one has work, some looks see none. `waits`: for so long
 * of its time the second one waits for the first, which marks do not count. */
struct program {
    uint64_t from_ns[2], busy_ns[2], waits_ns;
    uint32_t missed_percent, looks_per_report;
};

static uint32_t chance(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*state >> 32) * below >> 32);
}

static void look(struct looks *looks, uint32_t times, uint32_t streams)
{
    while (times-- > 0)
        looks_add(looks, streams);
}

/* The part of the last half of the time, by looks; `briefly`: by those of stretches without company. */
static double part_of_time(const struct program *program, bool briefly)
{
    struct looks looks = {0};
    uint64_t state = 7, busy_ns = 0,
             told_ns = (program->busy_ns[0] + program->busy_ns[1] - program->waits_ns) * REPORT_NS / MS;
    for (uint32_t i = 0; i < REPORTS; i++) {
        looks_count_anew(&looks);
        for (uint32_t j = 0; j < program->looks_per_report; j++) {
            uint64_t at_ns = chance(&state, MS);
            uint32_t streams = 0;
            for (int k = 0; k < 2; k++)
                streams += (at_ns + MS - program->from_ns[k]) % MS < program->busy_ns[k];
            looks_add(&looks, chance(&state, 100) < program->missed_percent ? 0 : streams);
        }
        uint64_t ns = briefly ? looks_merged_ns(&looks, REPORT_NS, told_ns)
                              : looks_busy_ns(&looks, REPORT_NS, told_ns, false);
        assert_in_range(ns, 0, REPORT_NS);
        busy_ns += i < REPORTS / 2 ? 0 : ns;
    }
    return (double)busy_ns / (double)(REPORT_NS * (REPORTS - REPORTS / 2));
}

static double busy_part(const struct program *program)
{
    return part_of_time(program, false);
}

#define assert_near(a, b) assert_in_range((uint64_t)(1000 * (a)), 1000 * (b)-10, 1000 * (b) + 10)

static void what_is_at_the_same_time_counts_once(void **state)
{
    assert_near(busy_part(&(struct program){{0, 500000}, {300000, 300000}, 0, 0, 20}), 0.6);
    assert_near(busy_part(&(struct program){{0, 200000}, {400000, 400000}, 0, 0, 20}), 0.6);
    assert_near(busy_part(&(struct program){{0, 0}, {400000, 400000}, 0, 0, 20}), 0.4);
}

static void looks_that_miss_some_are_put_right_by_what_streams_tell(void **state)
{
    assert_near(busy_part(&(struct program){{0, 500000}, {300000, 300000}, 0, 8, 20}), 0.6);
    assert_near(busy_part(&(struct program){{0, 200000}, {400000, 400000}, 0, 8, 20}), 0.6);
    assert_near(busy_part(&(struct program){{0, 0}, {1000000, 500000}, 0, 1, 20}), 1.0);
}

static void a_stream_that_waits_for_another_takes_nothing_off(void **state)
{
    assert_near(busy_part(&(struct program){{0, 100000}, {600000, 700000}, 500000, 0, 20}), 0.8);
    /* Nobody works for longer than streams have told, in all. */
    assert_near(busy_part(&(struct program){{0, 100000}, {600000, 700000}, 600000, 0, 20}), 0.7);
}

/* Of a program that seldom has work, a few looks find any by chance: what its streams told is nearly all of it. */
static void a_few_looks_tell_what_is_at_the_same_time(void **state)
{
    const struct program seldom = {{0, 30000}, {60000, 60000}, 0, 0, 2},
                         always = {{0, 0}, {1000000, 1000000}, 0, 0, 2};
    assert_near(part_of_time(&seldom, true), 0.09);
    assert_near(part_of_time(&always, true), 1.0);
    assert_near(part_of_time(&(struct program){{0, 100000}, {600000, 700000}, 600000, 0, 2}, true), 0.7);
    struct looks looks = {0};
    look(&looks, 5, 2);
    assert_in_range(looks_merged_ns(&looks, REPORT_NS, 2 * MS), MS, 2 * MS);
}

static void few_looks_tell_nothing(void **state)
{
    struct looks looks = {0};
    look(&looks, 2, 0);
    assert_int_equal(looks_busy_ns(&looks, 5 * MS, 4 * MS, false), 4 * MS);
    assert_int_equal(looks_busy_ns(&looks, 5 * MS, 8 * MS, false), 5 * MS);
    look(&looks, 3, 1);
    assert_true(looks_busy_ns(&looks, 6 * MS, 3 * MS, false) < 4 * MS);
}

static void guesses_say_nothing_of_looks(void **state)
{
    struct looks looks = {0};
    look(&looks, 4, 1);
    look(&looks, 6, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(looks_busy_ns(&looks, 10 * MS, 9 * MS, true), 4 * MS);
    for (int i = 0; i < 1000; i++)
        looks_busy_ns(&looks, 10 * MS, 9 * MS, false);
    assert_int_equal(looks_busy_ns(&looks, 10 * MS, 9 * MS, false), 5 * MS); /* a quarter more at most */
}

/* Two streams that always have work, each call of which takes 0.4 ms, tell late of what was done. */
static void calls_are_told_of_beside_the_time_in_which_they_were_done(void **state)
{
    struct looks looks = {0};
    for (int i = 0; i < 1000; i++) {
        looks_count_anew(&looks);
        look(&looks, 5, 2);
        looks_busy_ns(&looks, 20 * MS, 40 * MS, false);
    }
    /* Of 100 calls, marks have told of 70; of the other 30, in the 10 ms that follow, with 50 more. */
    assert_in_range(looks_calls(&looks, 20 * MS, 28 * MS, 70, 0, 40), 98, 100);
    assert_in_range(looks_calls(&looks, 10 * MS, 32 * MS, 80, 30, 0), 50, 50);
    /* What was done was done, and no more than there is can have been. */
    assert_int_equal(looks_calls(&looks, 20 * MS, 60 * MS, 150, 0, 10), 150);
    assert_int_equal(looks_calls(&looks, 20 * MS, 28 * MS, 70, 0, 10), 80);
    assert_int_equal(looks_calls(&looks, 20 * MS, 4 * MS, 10, 20, 0), 0);
}

static void before_looks_tell_calls_count_as_they_are_known_to_be_done(void **state)
{
    struct looks looks = {0};
    assert_int_equal(looks_calls(&looks, 20 * MS, 28 * MS, 70, 0, 40), 70);
    assert_int_equal(looks_calls(&looks, 20 * MS, 28 * MS, 70, 20, 40), 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_at_the_same_time_counts_once),
        cmocka_unit_test(looks_that_miss_some_are_put_right_by_what_streams_tell),
        cmocka_unit_test(a_stream_that_waits_for_another_takes_nothing_off),
        cmocka_unit_test(a_few_looks_tell_what_is_at_the_same_time),
        cmocka_unit_test(few_looks_tell_nothing),
        cmocka_unit_test(guesses_say_nothing_of_looks),
        cmocka_unit_test(calls_are_told_of_beside_the_time_in_which_they_were_done),
        cmocka_unit_test(before_looks_tell_calls_count_as_they_are_known_to_be_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
