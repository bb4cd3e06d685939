/* Closings of a session of two processes beside a rival, message by message: steps, and who leaves of its own accord. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "daemon/schedule/arbiter.h"

#define MS UINT64_C(1000000)
#define QUANTUM_NS (5 * MS)
/* As long as the arbiter has others' slices for. */
#define LONG_NS (20 * MS)

/* A process, and what its agent was told. */
struct told {
    struct arbiter_process *process;
    uint64_t lease;
    bool open, revoked;
    unsigned steps;
};

static struct arbiter *arbiter;
static struct arbiter_session *pair, *rival;
static struct told first, second, other;
static uint64_t now;

static void on_grant(void *owner, uint64_t lease, uint32_t flags, uint64_t ahead_ns)
{
    struct told *told = owner;
    (void)ahead_ns;
    told->lease = lease;
    told->open = true;
    told->revoked = false;
    told->steps += (flags & WIRE_LEASE_STEP) != 0;
}

static void on_revoke(void *owner, uint64_t lease, uint64_t patience_ns)
{
    struct told *told = owner;
    (void)patience_ns;
    told->revoked = told->lease == lease;
}

static void on_event(void *owner, enum arbiter_event event, uint64_t ns)
{
    (void)owner, (void)event, (void)ns;
}

static void on_mode(void *context, unsigned gpu, enum arbiter_mode mode)
{
    (void)context, (void)gpu, (void)mode;
}

static const struct arbiter_calls calls = {
    .grant = on_grant, .revoke = on_revoke, .event = on_event, .mode = on_mode};

static void want(struct told *told)
{
    arbiter_want(told->process, 1, now);
}

static void closed(struct told *told, uint64_t left_ns)
{
    arbiter_closed(told->process, &(struct wire_closed){.lease = told->lease, .left_ns = left_ns}, now);
}

static void return_lease(struct told *told, enum wire_outcome outcome)
{
    told->open = told->revoked = false;
    arbiter_returned(told->process, &(struct wire_returned){.lease = told->lease, .outcome = outcome}, now);
}

static void drain(struct told *told)
{
    return_lease(told, WIRE_OUTCOME_DRAINED);
    want(told);
}

/* A millisecond in which whoever may has work before the GPU all the time. */
static void pass_ms(void)
{
    struct told *all[] = {&first, &second, &other};
    now += MS;
    for (unsigned i = 0; i < 3; i++)
        if (all[i]->open && !all[i]->revoked)
            arbiter_report(
                all[i]->process,
                &(struct wire_report){.lease = all[i]->lease, .busy_ns = MS, .calls = 4, .measured = 4}, now);
    arbiter_tick(arbiter, now);
}

/* Until the pair's turn is over, and both have to close. The rival closes at once. */
static void run_to_closing(void)
{
    for (unsigned ms = 0; ms < 10000; ms++) {
        if (first.revoked && second.revoked)
            return;
        if (other.revoked)
            drain(&other);
        pass_ms();
    }
    fail_msg("the pair's turn does not end");
}

static int begin_measuring(void **state)
{
    struct share share = {.min = 5000, .max = 10000};
    (void)state;
    now = 1000 * MS;
    first = second = other = (struct told){0};
    arbiter = arbiter_new(&calls, NULL, now);
    arbiter_set_quantum(arbiter, QUANTUM_NS);
    pair = arbiter_session_add(arbiter, &pair, 1, share, ARBITER_PRIORITY_NORMAL);
    rival = arbiter_session_add(arbiter, &rival, 2, share, ARBITER_PRIORITY_NORMAL);
    first.process = arbiter_process_add(pair, &first, now);
    second.process = arbiter_process_add(pair, &second, now);
    other.process = arbiter_process_add(rival, &other, now);
    struct told *all[] = {&first, &second, &other};
    for (unsigned i = 0; i < 3; i++) {
        if (all[i]->revoked)
            return_lease(all[i], WIRE_OUTCOME_DRAINED);
        want(all[i]);
    }
    return 0;
}

static int begin(void **state)
{
    begin_measuring(state);
    /* So that the first turns, which measure, are over. */
    for (unsigned turns = 0; turns < 20; turns++) {
        run_to_closing();
        drain(&first);
        drain(&second);
    }
    run_to_closing();
    return 0;
}

static int end(void **state)
{
    (void)state;
    arbiter_process_remove(first.process, now);
    arbiter_process_remove(second.process, now);
    arbiter_process_remove(other.process, now);
    arbiter_session_remove(pair);
    arbiter_session_remove(rival);
    arbiter_free(arbiter);
    return 0;
}

/* The first process says so again and again, for so long. Returns after how long the second was given a step, or 0. */
static uint64_t stall(uint64_t ns)
{
    uint64_t from = now;
    unsigned before = second.steps;
    while (now - from < ns && second.steps == before) {
        closed(&first, WIRE_LEFT_ENDLESS);
        now += MS / 5;
    }
    return second.steps == before ? 0 : now - from;
}

static void a_drained_process_takes_a_step_where_work_outlives_the_slices_of_others(void **state)
{
    (void)state;
    closed(&first, MS);
    drain(&second);
    uint64_t after_ns = stall(LONG_NS);
    assert_in_range(after_ns, 3 * MS, LONG_NS); /* its own time, and at least a slice */
    assert_true(second.open && second.revoked); /* it is waited for at once */
    assert_int_equal(second.steps, 1);
    /* And another, as soon as it has drained again and that was not enough. */
    unsigned steps;
    uint64_t asked = arbiter_session_asked(pair, &steps);
    assert_in_range(asked, 1, now - 3 * MS);
    assert_int_equal(steps, 1);
    drain(&second);
    assert_in_range(stall(LONG_NS), 1, MS);
    drain(&second);
    drain(&first);
    assert_int_equal(arbiter_session_asked(pair, &steps), 0);
    pass_ms();
    assert_true(other.open);
    assert_int_equal(second.steps, 2);
}

static void no_process_steps_that_does_not_want_to(void **state)
{
    (void)state;
    closed(&first, MS);
    return_lease(&second, WIRE_OUTCOME_DRAINED);
    assert_int_equal(stall(LONG_NS), 0);
}

static void work_that_ends_in_time_needs_no_step(void **state)
{
    (void)state;
    closed(&first, 3 * MS);
    drain(&second);
    assert_int_equal(stall(3 * MS), 0);
    drain(&first);
    assert_int_equal(second.steps, 0);
}

static void a_closing_that_steps_do_not_end_goes_on_without(void **state)
{
    (void)state;
    uint64_t from = now;
    closed(&first, MS);
    drain(&second);
    while (stall(LONG_NS))
        drain(&second);
    assert_in_range(now - from, 50 * MS, 50 * MS + 2 * LONG_NS);
}

/* A closing that needs a step, before the first has drained; then how many there are until the other is let in early again. */
static unsigned closings_alone(void)
{
    unsigned closings = 0;
    closed(&first, MS);
    drain(&second);
    assert_int_not_equal(stall(LONG_NS), 0);
    drain(&second);
    drain(&first);
    for (bool early = false; !early; closings++) {
        assert_true(closings < 100);
        run_to_closing();
        closed(&second, 0);
        closed(&first, MS); /* within the lead */
        early = other.open;
        drain(&second);
        drain(&first);
    }
    return closings;
}

/* Each step would wait for a slice of whoever was let in. */
static void nobody_is_let_in_early_while_a_session_has_needed_steps(void **state)
{
    (void)state;
    assert_in_range(closings_alone(), 10, 30);
}

static void a_session_that_needs_steps_again_is_thought_to_for_longer(void **state)
{
    (void)state;
    unsigned closings = closings_alone();
    run_to_closing();
    assert_in_range(closings_alone(), closings + 10, 2 * closings);
}

static void a_session_that_has_needed_steps_takes_them_sooner(void **state)
{
    (void)state;
    closed(&first, MS);
    drain(&second);
    uint64_t unknown_ns = stall(LONG_NS);
    drain(&second);
    drain(&first);
    run_to_closing();
    closed(&first, MS);
    drain(&second);
    uint64_t known_ns = stall(LONG_NS);
    assert_in_range(known_ns, MS, unknown_ns / 2);
}

/* Nobody says anything: how long until the second takes a step, or 0. */
static uint64_t wait_for_step(uint64_t ns)
{
    uint64_t from = now;
    unsigned before = second.steps;
    while (now - from < ns && second.steps == before) {
        uint64_t next = arbiter_next(arbiter);
        now = next > now && next < now + MS ? next : now + MS;
        arbiter_tick(arbiter, now);
    }
    return second.steps == before ? 0 : now - from;
}

static void a_session_that_has_needed_steps_takes_them_when_work_is_late(void **state)
{
    (void)state;
    closed(&first, MS);
    drain(&second);
    assert_int_equal(wait_for_step(LONG_NS), 0); /* it has not needed any yet */
    assert_int_not_equal(stall(LONG_NS), 0);
    drain(&second);
    drain(&first);
    run_to_closing();
    closed(&first, MS);
    drain(&second);
    unsigned before = second.steps;
    assert_in_range(wait_for_step(LONG_NS), MS, 3 * MS);
    drain(&second); /* that was not enough */
    assert_int_equal(second.steps, before + 2);
    drain(&first);
    drain(&second);
    assert_int_equal(wait_for_step(LONG_NS), 0);
}

/* What is behind a wait for another process takes no longer for that. */
static void a_session_that_has_needed_steps_takes_them_however_much_is_said_to_be_left(void **state)
{
    (void)state;
    closed(&first, MS);
    drain(&second);
    assert_int_not_equal(stall(LONG_NS), 0);
    drain(&second);
    drain(&first);
    run_to_closing();
    closed(&first, 400 * MS);
    drain(&second);
    assert_int_not_equal(wait_for_step(LONG_NS), 0);
}

static void an_agent_that_answers_late_leaves_as_much_time_for_steps(void **state)
{
    (void)state;
    drain(&second);
    now += 80 * MS;
    closed(&first, MS);
    assert_int_not_equal(stall(LONG_NS), 0);
}

/* Its own step may leave more before the GPU than it had when it was done. */
static void a_process_let_in_stays_so_whatever_steps_leave(void **state)
{
    (void)state;
    closed(&first, 0);
    drain(&second);
    assert_true(other.open);
    assert_int_not_equal(stall(LONG_NS), 0);
    closed(&second, 3 * MS);
    assert_true(other.open && !other.revoked);
}

/* --- Of its own accord ----------------------------------------------------------------------------- */

/* The pair's turn has just begun. */
static void begin_turn(void)
{
    drain(&second);
    drain(&first);
    for (unsigned ms = 0; !(first.open && second.open); ms++) {
        assert_true(ms < 1000);
        if (other.revoked)
            drain(&other);
        pass_ms();
    }
    assert_false(first.revoked || other.open);
}

static void a_turn_goes_on_without_a_process_that_leaves(void **state)
{
    (void)state;
    begin_turn();
    closed(&first, 0);
    assert_false(second.revoked);
    assert_false(other.open);
    return_lease(&first, WIRE_OUTCOME_IDLE);
    assert_false(second.revoked);
    assert_false(other.open);
}

static void the_last_to_leave_is_followed_before_it_has_drained(void **state)
{
    (void)state;
    begin_turn();
    return_lease(&first, WIRE_OUTCOME_IDLE);
    assert_false(other.open);
    closed(&second, 0);
    assert_true(other.open);
    return_lease(&second, WIRE_OUTCOME_IDLE);
    assert_true(other.open && !other.revoked);
}

/* --- Measuring ------------------------------------------------------------------------------------- */

static void drain_revoked(void)
{
    struct told *all[] = {&first, &second, &other};
    for (unsigned i = 0; i < 3; i++)
        if (all[i]->revoked)
            drain(all[i]);
}

static void one_process_after_the_other_is_measured(void **state)
{
    bool was_first = false, was_second = false;
    (void)state;
    for (unsigned ms = 0; !(first.open && second.open); ms++) {
        assert_true(ms < 1000);
        was_first |= first.open;
        was_second |= second.open;
        drain_revoked();
        pass_ms();
    }
    assert_true(was_first && was_second);
}

/* What the one does may wait for the other. */
static void a_measured_process_makes_way_for_another_of_its_session(void **state)
{
    bool rests = false;
    (void)state;
    for (unsigned ms = 0; !rests || !(first.open || second.open); ms++) {
        assert_true(ms < 1000);
        rests |= other.open;
        if (other.open)
            return_lease(&other, WIRE_OUTCOME_IDLE); /* and wants nothing more */
        drain_revoked();
        pass_ms();
    }
    const struct told *measured = first.open ? &first : &second, *waits = first.open ? &second : &first;
    for (unsigned ms = 0; !measured->revoked; ms++) {
        assert_true(ms < 100);
        assert_false(waits->open);
        pass_ms();
    }
    drain_revoked();
    assert_true(waits->open);
}

/* The work of the next one would spoil what was measured. */
static void nobody_is_let_in_before_a_newcomer_that_is_measured_has_left(void **state)
{
    struct arbiter_session *session;
    struct told newcomer = {0};
    (void)state;
    session =
        arbiter_session_add(arbiter, &session, 3, (struct share){.max = 10000}, ARBITER_PRIORITY_NORMAL);
    newcomer.process = arbiter_process_add(session, &newcomer, now);
    want(&newcomer);
    for (unsigned ms = 0; !newcomer.open || newcomer.revoked; ms++) {
        assert_true(ms < 1000);
        if (newcomer.revoked)
            drain(&newcomer);
        drain_revoked();
        pass_ms();
    }
    closed(&newcomer, 0);
    assert_false(first.open || second.open || other.open);
    return_lease(&newcomer, WIRE_OUTCOME_IDLE);
    assert_true(first.open || second.open || other.open);
    arbiter_process_remove(newcomer.process, now);
    arbiter_session_remove(session);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
#define MEASURED(name) cmocka_unit_test_setup_teardown(name, begin_measuring, end)
    const struct CMUnitTest tests[] = {
        TEST(a_drained_process_takes_a_step_where_work_outlives_the_slices_of_others),
        TEST(no_process_steps_that_does_not_want_to),
        TEST(work_that_ends_in_time_needs_no_step),
        TEST(a_closing_that_steps_do_not_end_goes_on_without),
        TEST(nobody_is_let_in_early_while_a_session_has_needed_steps),
        TEST(a_session_that_needs_steps_again_is_thought_to_for_longer),
        TEST(a_session_that_has_needed_steps_takes_them_sooner),
        TEST(a_session_that_has_needed_steps_takes_them_when_work_is_late),
        TEST(a_session_that_has_needed_steps_takes_them_however_much_is_said_to_be_left),
        TEST(an_agent_that_answers_late_leaves_as_much_time_for_steps),
        TEST(a_process_let_in_stays_so_whatever_steps_leave),
        TEST(a_turn_goes_on_without_a_process_that_leaves),
        TEST(the_last_to_leave_is_followed_before_it_has_drained),
        TEST(nobody_is_let_in_before_a_newcomer_that_is_measured_has_left),
        MEASURED(one_process_after_the_other_is_measured),
        MEASURED(a_measured_process_makes_way_for_another_of_its_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
