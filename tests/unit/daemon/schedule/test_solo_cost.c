#include "daemon/schedule/estimate/solo_cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MS 1e6

static struct cost_stretch stretch(double busy_ms, double calls)
{
    return (struct cost_stretch){busy_ms * MS, calls};
}

static struct solo_cost learned(void)
{
    struct solo_cost cost = {0};
    for (unsigned i = 0; i < 10; i++)
        assert_false(solo_cost_learn(&cost, stretch(10, 100), false));
    return cost;
}

static void calls_cost_what_they_took_alone(void **state)
{
    struct solo_cost cost = {0};
    assert_true(solo_cost_of(&cost, 1) < 0);
    solo_cost_learn(&cost, stretch(0.2, 2), true);
    assert_true(solo_cost_of(&cost, 1) == 0.1 * MS);
    assert_false(solo_cost_is_sure(&cost)); /* as far as two calls tell */
    cost = learned();
    assert_true(solo_cost_is_sure(&cost));
    assert_true(solo_cost_is_steady(&cost));
    assert_true(solo_cost_of(&cost, 30) == 3 * MS);
}

/* Calls that take now this and now that. */
static void many_calls_make_a_cost_sure_that_is_not_steady(void **state)
{
    struct solo_cost cost = {0};
    for (unsigned i = 0; i < 30; i++) {
        assert_false(solo_cost_is_sure(&cost) && i >= 5 && i < 15);
        solo_cost_learn(&cost, stretch(i % 2 ? 12 : 4, 4), true);
        assert_false(solo_cost_is_steady(&cost) && i >= 5);
    }
    assert_true(solo_cost_is_sure(&cost));
    assert_true(solo_cost_of(&cost, 1) == 2 * MS);
}

/* As of a session's processes that run different programs, of which each stretch has as many. */
static void calls_are_not_alike_that_take_much_less_than_others(void **state)
{
    struct solo_cost cost = {0};
    struct cost_stretch both = stretch(16, 12);
    both.least_ns = 0.3 * MS;
    solo_cost_learn(&cost, both, true);
    solo_cost_learn(&cost, both, true);
    assert_false(solo_cost_is_alike(&cost));
    assert_false(solo_cost_is_sure(&cost));
    cost = (struct solo_cost){0};
    both.least_ns = 1.3 * MS;
    solo_cost_learn(&cost, both, true);
    solo_cost_learn(&cost, both, true);
    assert_true(solo_cost_is_alike(&cost));
}

/* Calls that differ, of which the first stretches agreed by chance. */
static void two_stretches_about_alike_make_no_cost_that_is_charged_by(void **state)
{
    struct solo_cost cost = {0};
    solo_cost_learn(&cost, stretch(10, 10), true);
    assert_false(solo_cost_is_steady(&cost));
    solo_cost_learn(&cost, stretch(12, 10), true);
    assert_false(solo_cost_is_steady(&cost));
    cost = (struct solo_cost){0};
    solo_cost_learn(&cost, stretch(10, 10), true);
    solo_cost_learn(&cost, stretch(10.1, 10), true);
    assert_true(solo_cost_is_steady(&cost));
}

/* Of which single calls tell that they differ. */
static void stretches_that_agree_by_chance_make_no_cost_that_is_charged_by(void **state)
{
    struct solo_cost cost = {0};
    for (unsigned i = 0; i < 10; i++) {
        struct cost_stretch tailed = stretch(16 + 0.3 * (i % 2), 12);
        tailed.least_ns = i == 1 ? 0.1 * MS : MS;
        assert_false(solo_cost_is_steady(&cost) && i < 6);
        solo_cost_learn(&cost, tailed, true);
    }
    assert_true(solo_cost_is_steady(&cost)); /* ten are no chance */
    cost = (struct solo_cost){0};
    for (unsigned i = 0; i < 2; i++) {
        struct cost_stretch alike = stretch(16 + 0.3 * (i % 2), 12);
        alike.least_ns = 1.3 * MS;
        solo_cost_learn(&cost, alike, true);
    }
    assert_true(solo_cost_is_steady(&cost));
}

static void a_cost_of_calls_that_differ_is_charged_by_once_many_were_measured(void **state)
{
    struct solo_cost cost = {0};
    unsigned count = 0;
    for (; !solo_cost_is_steady(&cost) && count < 1000; count++)
        solo_cost_learn(&cost, stretch(count % 3 ? 4 : 12, 4), true);
    assert_in_range(count, 50, 200);
    struct solo_cost alike = learned();
    assert_true(solo_cost_learn(&alike, stretch(20, 100), true));
    assert_false(solo_cost_is_steady(&alike)); /* of one stretch, nobody knows */
    solo_cost_learn(&alike, stretch(20, 100), true);
    assert_true(solo_cost_is_steady(&alike));
}

static void one_odd_stretch_changes_nothing_and_three_do(void **state)
{
    struct solo_cost cost = learned();
    assert_false(solo_cost_learn(&cost, stretch(20, 100), false));
    assert_true(solo_cost_of(&cost, 1) == 0.1 * MS);
    assert_false(solo_cost_learn(&cost, stretch(10, 100), false));
    for (unsigned i = 0; i < 2; i++)
        assert_false(solo_cost_learn(&cost, stretch(20, 100), false));
    assert_true(solo_cost_learn(&cost, stretch(20, 100), false));
    assert_true(solo_cost_of(&cost, 1) == 0.2 * MS);
}

static void what_is_measured_on_purpose_is_believed_at_once(void **state)
{
    struct solo_cost cost = learned();
    assert_true(solo_cost_learn(&cost, stretch(20, 100), true));
    assert_true(solo_cost_of(&cost, 1) == 0.2 * MS);
}

/* The waiting for others makes calls longer, and says nothing as long as it stays the same. */
/* The stretch in which a program changed has calls of both kinds: it is measured once more. */
static void a_measure_of_both_kinds_is_replaced_by_the_next(void **state)
{
    struct solo_cost cost = learned();
    assert_true(solo_cost_learn(&cost, stretch(20, 40), true));
    assert_true(solo_cost_learn(&cost, stretch(5, 100), true));
    assert_true(solo_cost_of(&cost, 1) == 0.05 * MS);
    cost = (struct solo_cost){0}; /* also where little was learned before */
    solo_cost_learn(&cost, stretch(20, 4), true);
    solo_cost_learn(&cost, stretch(20, 4), true);
    assert_true(solo_cost_learn(&cost, stretch(20, 40), true));
    assert_true(solo_cost_of(&cost, 1) == 0.5 * MS);
}

static void company_is_not_a_doubt_but_a_turn_in_it_is(void **state)
{
    struct solo_cost cost = learned();
    for (unsigned i = 0; i < 20; i++)
        assert_false(solo_cost_is_doubtful(&cost, stretch(15 + i % 2, 50)));
    unsigned doubts = 0;
    for (unsigned i = 0; i < 10; i++)
        doubts += solo_cost_is_doubtful(&cost, stretch(16, 8));
    assert_int_equal(doubts, 1);
    assert_true(solo_cost_of(&cost, 1) == 0.1 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_cost_what_they_took_alone),
        cmocka_unit_test(many_calls_make_a_cost_sure_that_is_not_steady),
        cmocka_unit_test(calls_are_not_alike_that_take_much_less_than_others),
        cmocka_unit_test(two_stretches_about_alike_make_no_cost_that_is_charged_by),
        cmocka_unit_test(stretches_that_agree_by_chance_make_no_cost_that_is_charged_by),
        cmocka_unit_test(a_cost_of_calls_that_differ_is_charged_by_once_many_were_measured),
        cmocka_unit_test(one_odd_stretch_changes_nothing_and_three_do),
        cmocka_unit_test(what_is_measured_on_purpose_is_believed_at_once),
        cmocka_unit_test(a_measure_of_both_kinds_is_replaced_by_the_next),
        cmocka_unit_test(company_is_not_a_doubt_but_a_turn_in_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
