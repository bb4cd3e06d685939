/* What sessions get of a GPU's time, over a simulated world of programs, agents and GPUs: see
 * arbiter_world.h. Errors are in percentage points of the time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "arbiter_world.h"
#include "base/units.h"

#define NORMAL ARBITER_PRIORITY_NORMAL

static struct world world;

static int begin(void **state)
{
    world_begin(&world);
    return 0;
}

static int end(void **state)
{
    assert_int_equal(world.breaches, 0);
    world_end(&world);
    return 0;
}

/* Percent of the last `ns` that each member had, after a run of that long. */
static void run_and_measure(uint64_t ns, double *percent)
{
    uint64_t before[WORLD_PROCESSES];
    for (unsigned i = 0; i < world.member_count; i++)
        before[i] = world.members[i].device_ns;
    world_run(&world, ns);
    for (unsigned i = 0; i < world.member_count; i++)
        percent[i] = 100 * (double)(world.members[i].device_ns - before[i]) / (double)ns;
}

static void assert_near(double value, double expected, double error)
{
    if (fabs(value - expected) > error)
        fail_msg("it is %.3f, expected %.3f within %.3f", value, expected, error);
}

/* Windows of 10 s after a first second: each member within 0.3 points of what it is due of what all of them
 * have, and that is at least 98.5 %. */
static void assert_shares(const double *due)
{
    double percent[WORLD_PROCESSES], together;
    world_run(&world, SECOND);
    for (unsigned window = 0; window < 2; window++) {
        run_and_measure(10 * SECOND, percent);
        together = 0;
        for (unsigned i = 0; i < world.member_count; i++)
            together += percent[i];
        for (unsigned i = 0; i < world.member_count; i++) {
            /* What hand-overs cost, all lose alike. */
            assert_near(percent[i], due[i] * together / 100, 0.3);
            assert_near(percent[i], due[i], 0.55);
            assert_near(100 * arbiter_session_achieved(world.members[i].session, 0, world.now), due[i], 1);
        }
        assert_true(together >= 98.5 && together <= 100);
    }
}

static void add_all(const char *const *shares, unsigned count, struct program program)
{
    for (unsigned i = 0; i < count; i++)
        world_add(&world, shares[i], NORMAL, program);
}

static const char *const ascending[] = {"10%", "20%", "30%", "40%"};
static const char *const ascending_open[] = {"10%..100%", "20%..100%", "30%..100%", "40%..100%"};
static const double ascending_due[] = {10, 20, 30, 40};

static void four_sessions_with_small_kernels_get_what_they_are_due(void **state)
{
    add_all(ascending, 4, (struct program){.piece_ns = 50000});
    assert_shares(ascending_due);
}

static void four_sessions_with_long_kernels_get_what_they_are_due(void **state)
{
    add_all(ascending, 4, (struct program){.piece_ns = 20 * MS});
    assert_shares(ascending_due);
}

static void four_sessions_with_kernels_of_any_length_get_what_they_are_due(void **state)
{
    const uint64_t pieces[] = {20 * MS, 50000, 3 * MS, 500000};
    for (unsigned i = 0; i < 4; i++)
        world_add(&world, ascending[i], NORMAL, (struct program){.piece_ns = pieces[i]});
    assert_shares(ascending_due);
}

static void four_minima_without_maxima_get_what_they_are_due(void **state)
{
    add_all(ascending_open, 4, (struct program){.piece_ns = 500000});
    assert_shares(ascending_due);
}

/* Messages on a loaded machine take long; what is in flight bridges that. */
static void a_process_that_says_when_it_is_done_leaves_the_gpu_no_gap(void **state)
{
    const uint64_t pieces[] = {20 * MS, 50000, 3 * MS, 500000};
    double percent[4], together = 0;
    world.latency_ns = MS / 2;
    for (unsigned i = 0; i < 4; i++)
        world_add(&world, ascending_open[i], NORMAL,
                  (struct program){.piece_ns = pieces[i], .says_when_closed = true});
    world_run(&world, SECOND);
    run_and_measure(10 * SECOND, percent);
    for (unsigned i = 0; i < 4; i++) {
        assert_near(percent[i], ascending_due[i], 0.5);
        together += percent[i];
    }
    assert_true(together >= 99.5);
}

static void a_holder_that_is_wrong_about_when_it_is_done_is_charged_for_what_it_takes(void **state)
{
    double percent[2];
    struct member *liar =
        world_add(&world, "50%", NORMAL, (struct program){.piece_ns = 500000, .says_when_closed = true});
    world_add(&world, "50%", NORMAL, (struct program){.piece_ns = 500000, .says_when_closed = true});
    liar->understates = true;
    liar->program.piece_ns = 20 * MS;
    world_run(&world, SECOND);
    run_and_measure(10 * SECOND, percent);
    assert_near(percent[0], 50, 2);
    assert_near(percent[1], 50, 2);
    world.breaches = 0; /* they did run side by side */
}

static void two_equal_sessions_get_half(void **state)
{
    add_all((const char *const[]){"50%", "50%"}, 2, (struct program){.piece_ns = 50000});
    assert_shares((double[]){50, 50});
}

static void a_ninth_and_a_tenth_are_told_apart(void **state)
{
    add_all((const char *const[]){"90%", "10%"}, 2, (struct program){.piece_ns = 50000});
    assert_shares((double[]){90, 10});
}

static void eight_sessions_get_an_eighth(void **state)
{
    for (unsigned i = 0; i < 8; i++)
        world_add(&world, "12.5%", NORMAL, (struct program){.piece_ns = 500000});
    assert_shares((double[]){12.5, 12.5, 12.5, 12.5, 12.5, 12.5, 12.5, 12.5});
}

/* Whatever others were promised: a hundredth of the time, in turns that are never further apart than a hundred
 * of the longest. */
static void nobody_is_starved(void **state)
{
    world_add(&world, "100%", NORMAL, (struct program){.piece_ns = 500000});
    struct member *last = world_add(&world, "0%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_run(&world, SECOND);
    for (unsigned i = 0; i < 4; i++) {
        uint64_t before = last->device_ns;
        world_run(&world, 100 * 50 * MS);
        assert_true(last->device_ns - before >= 100 * 50 * MS / 125);
    }
}

static void processes_of_a_session_share_what_it_is_due(void **state)
{
    double percent[WORLD_PROCESSES];
    struct program program = {.piece_ns = 500000};
    struct member *first = world_add(&world, "30%..100%", NORMAL, program);
    world_add_process(&world, first->session, program);
    world_add_process(&world, first->session, program);
    world_add(&world, "70%..100%", NORMAL, program);
    world_run(&world, SECOND);
    run_and_measure(10 * SECOND, percent);
    assert_near(percent[0] + percent[1] + percent[2], 30, 0.5);
    assert_near(percent[3], 70, 1);
}

/* While one session leaves and the next begins, the GPU goes round among all their processes. */
static void more_processes_get_no_more_where_turns_overlap(void **state)
{
    const struct program program = {.piece_ns = 500000, .says_when_closed = true};
    double percent[4];
    struct member *first = world_add(&world, "50%..100%", NORMAL, program);
    world_add(&world, "50%..100%", NORMAL, program);
    for (unsigned i = 0; i < 2; i++)
        world_add_process(&world, first->session, program);
    world_run(&world, SECOND);
    run_and_measure(10 * SECOND, percent);
    assert_near(percent[1], 50, 1);
    assert_near(percent[0] + percent[2] + percent[3], 50, 1);
    world.breaches = 0; /* they did run side by side */
}

static double used_s(const struct member *member)
{
    return (double)arbiter_session_used(member->session, 0) / (double)SECOND;
}

static uint64_t computed_by(struct member *const members[3])
{
    return members[0]->device_ns + members[1]->device_ns + members[2]->device_ns;
}

/* The processes of a session, over 10 s, in percent. */
static void assert_charged_for_what_they_did(struct member *const members[3])
{
    double charged = used_s(members[0]);
    uint64_t computed = computed_by(members);
    world_run(&world, 10 * SECOND);
    charged = used_s(members[0]) - charged;
    computed = computed_by(members) - computed;
    assert_near(10 * charged, 10 * (double)computed / (double)SECOND, 0.5);
    world.breaches = 0;
}

static const struct program dense_neighbour = {.piece_ns = 400000, .says_when_closed = true};

static void assert_three_are_charged_for_what_they_did(struct program program)
{
    struct member *members[3] = {world_add(&world, "40%..100%", NORMAL, program)};
    members[1] = world_add_process(&world, members[0]->session, program);
    members[2] = world_add_process(&world, members[0]->session, program);
    world_add(&world, "40%..100%", NORMAL, dense_neighbour);
    world_run(&world, SECOND);
    assert_charged_for_what_they_did(members);
}

/* Each of them works while the others rest, more often than by chance. */
static void processes_that_keep_step_are_charged_for_what_they_did(void **state)
{
    const struct program program = {.piece_ns = 200000, .burst = 1, .idle_ns = 300000};
    assert_three_are_charged_for_what_they_did(program);
}

/* Each tells of the time in which it waits for the others, which is nearly all. */
static void processes_that_begin_together_are_charged_for_what_they_did(void **state)
{
    const struct program program = {.piece_ns = 700000, .burst = 3, .idle_ns = 12600000};
    assert_three_are_charged_for_what_they_did(program);
}

/* What is used follows from who makes how many calls; a process that comes later is measured too. */
static void processes_that_differ_are_charged_for_what_they_did(void **state)
{
    struct member *members[3] = {world_add(
        &world, "40%..100%", NORMAL, (struct program){.piece_ns = 50000, .burst = 2, .idle_ns = 900000})};
    members[1] = world_add_process(&world, members[0]->session,
                                   (struct program){.piece_ns = 5000000, .burst = 1, .idle_ns = 46000000});
    world_add(&world, "40%..100%", NORMAL, dense_neighbour);
    world_run(&world, 4 * SECOND);
    members[2] = world_add_process(&world, members[0]->session,
                                   (struct program){.piece_ns = 700000, .burst = 2, .idle_ns = 9000000});
    world_run(&world, 6 * SECOND);
    assert_charged_for_what_they_did(members);
}

/* Where an agent looks now and then whether there is work, it finds too little in one report and too much in the next. */
static void a_session_whose_reports_are_uneven_is_charged_for_its_calls(void **state)
{
    const struct program program = {.piece_ns = 100000, .burst = 1, .idle_ns = 400000};
    struct member *members[] = {world_add(&world, "50%..100%", NORMAL, program),
                                world_add(&world, "50%..100%", NORMAL, program)};
    world_run(&world, SECOND);
    members[0]->jitter = members[1]->jitter = 0.9;
    double charged = used_s(members[0]);
    uint64_t computed = members[0]->device_ns;
    world_run(&world, 10 * SECOND);
    assert_near(10 * (used_s(members[0]) - charged), (double)(members[0]->device_ns - computed) / 1e8, 0.2);
}

/* What an average tells of calls that are not alike may be wrong, and in company nothing tells that it is. */
static void no_more_is_charged_than_the_time_that_passed(void **state)
{
    const struct program program = {.piece_ns = 300000, .burst = 1, .idle_ns = 600000};
    struct member *members[4];
    for (unsigned i = 0; i < 4; i++) {
        members[i] = world_add(&world, "5%..100%", NORMAL, program);
        members[i]->misjudges = 1.8;
    }
    world_run(&world, 2 * SECOND);
    double charged = 0;
    for (unsigned i = 0; i < 4; i++)
        charged -= used_s(members[i]);
    world_run(&world, 10 * SECOND);
    for (unsigned i = 0; i < 4; i++)
        charged += used_s(members[i]);
    assert_true(charged > 9);
    assert_near(charged > 10 ? charged : 10, 10, 0.2);
}

/* Nor is it held against the next session of the user. */
static void a_guest_that_dies_long_after_it_has_worked_is_not_charged_for_that(void **state)
{
    struct member *guest = world_add_of(&world, 7, "0%..50%", NORMAL,
                                        (struct program){.piece_ns = 100000, .burst = 1, .idle_ns = 100000});
    world_add(&world, "20%..100%", NORMAL,
              (struct program){.piece_ns = 100000, .burst = 1, .idle_ns = 400000});
    world_run(&world, 2 * SECOND);
    assert_int_equal(arbiter_session_lease(guest->session), LEASE_GUEST);
    guest->program.idle_ns = 3600 * SECOND;
    world_run(&world, 5 * SECOND);
    double charged = used_s(guest);
    world_kill(guest);
    assert_true(used_s(guest) - charged < 0.03);
    struct member *next = world_add_of(&world, 7, "0%..50%", NORMAL,
                                       (struct program){.piece_ns = 100000, .burst = 1, .idle_ns = 100000});
    world_run(&world, 100 * MS);
    assert_true(next->device_ns > 20 * MS);
}

static void a_guest_that_dies_is_not_charged_for_its_gaps(void **state)
{
    struct member *guest = world_add(&world, "20%..100%", NORMAL,
                                     (struct program){.piece_ns = 100000, .burst = 1, .idle_ns = 1900000});
    world_add(&world, "20%..100%", NORMAL, guest->program);
    world_run(&world, 5 * SECOND);
    assert_int_equal(arbiter_session_lease(guest->session), LEASE_GUEST);
    double charged = used_s(guest);
    world_kill(guest);
    assert_true(used_s(guest) - charged < 0.01);
}

static void a_session_without_a_minimum_gets_what_is_not_promised(void **state)
{
    add_all((const char *const[]){"25%..100%", "0%..100%", "0%..100%"}, 3,
            (struct program){.piece_ns = 500000});
    assert_shares((double[]){25, 37.5, 37.5});
}

static void a_minimum_that_is_not_used_goes_to_the_others(void **state)
{
    double percent[WORLD_PROCESSES];
    struct member *first = world_add(&world, "60%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_add(&world, "20%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_add(&world, "20%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_run(&world, SECOND);
    world_kill(first);
    run_and_measure(10 * SECOND, percent);
    assert_near(percent[1], 50, 0.5);
    assert_near(percent[2], 50, 0.5);
}

static void a_maximum_is_kept_on_an_idle_gpu(void **state)
{
    static const struct {
        const char *share;
        double due;
        uint64_t piece_ns;
    } rows[] = {{"0%..5%", 5, 50000},     {"0%..25%", 25, 500000}, {"0%..50%", 50, 500000},
                {"0%..25%", 25, 20 * MS}, {"0%..90%", 90, 50000},  {"0%..99%", 99, 500000}};
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double percent[WORLD_PROCESSES];
        struct member *member =
            world_add(&world, rows[i].share, NORMAL, (struct program){.piece_ns = rows[i].piece_ns});
        world_run(&world, SECOND);
        run_and_measure(10 * SECOND, percent);
        assert_near(percent[i], rows[i].due, 0.5);
        world_kill(member);
    }
}

/* An agent may let a program run ahead of its gaps, but not where others wait for the end of its work, or it is charged for too
 * much. */
static void what_may_be_before_the_gpu_is_the_agents_choice_where_nobody_waits_for_its_end(void **state)
{
    (void)state;
    struct member *member = world_add(&world, "50%..100%", NORMAL, (struct program){.piece_ns = 500000});
    struct member *dense = world_add(&world, "30%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_run(&world, 3 * SECOND);
    assert_int_equal(member->ahead_ns, 0);
    assert_int_equal(dense->ahead_ns, 0);
    assert_true(member->flags & dense->flags & WIRE_LEASE_OVERLAPS);
    world_add(&world, "20%..100%", NORMAL,
              (struct program){.piece_ns = 80000, .burst = 1, .idle_ns = 120000});
    world_run(&world, 3 * SECOND);
    assert_int_equal(member->ahead_ns, 1500000);
    assert_int_equal(dense->ahead_ns, 1500000);
    assert_false((member->flags | dense->flags) & WIRE_LEASE_OVERLAPS);
}

/* What one says late is not what a change of turns costs. */
static void the_quantum_does_not_follow_what_nobody_waits_for(void **state)
{
    (void)state;
    world.calm_ns = 400000;
    add_all((const char *const[]){"50%", "50%"}, 2,
            (struct program){.piece_ns = 500000, .says_when_closed = true});
    world_run(&world, 5 * SECOND);
    assert_true(world.members[0].flags & WIRE_LEASE_OVERLAPS);
    assert_true(arbiter_gap(world.arbiter) < 300000);
}

static void what_may_be_before_the_gpu_is_bounded_where_a_maximum_is(void **state)
{
    (void)state;
    struct member *member = world_add(&world, "0%..25%", NORMAL, (struct program){.piece_ns = 500000});
    struct member *unbothered = world_add(
        &world, "0%..50%", NORMAL, (struct program){.piece_ns = 500000, .burst = 1, .idle_ns = 4500000});
    world_run(&world, 3 * SECOND);
    assert_int_equal(member->ahead_ns, 1500000);
    assert_int_equal(unbothered->ahead_ns, 0);
}

static void what_a_maximum_leaves_goes_to_the_others(void **state)
{
    double percent[WORLD_PROCESSES];
    world_add(&world, "0%..20%", NORMAL, (struct program){.piece_ns = 500000});
    world_add(&world, "0%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_run(&world, SECOND);
    run_and_measure(10 * SECOND, percent);
    assert_near(percent[0], 20, 0.5);
    assert_near(percent[1], 80, 1);
}

static void set_share(struct member *member, const char *words)
{
    struct error error = {0};
    struct share share;
    assert_int_equal(units_parse_share(words, &share, &error), 0);
    arbiter_session_set(member->session, share, NORMAL, world.now);
}

static void a_share_that_is_set_owes_nothing_for_before(void **state)
{
    double percent[WORLD_PROCESSES];
    struct member *first = world_add(&world, "60%..100%", NORMAL, (struct program){.piece_ns = 20 * MS});
    struct member *second = world_add(&world, "30%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_run(&world, 10 * SECOND);
    set_share(first, "20%");
    world_run(&world, SECOND);
    run_and_measure(2 * SECOND, percent);
    assert_near(percent[0], 20, 1.5);
    assert_near(percent[1], 80, 2);
    set_share(first, "0%..100%");
    set_share(second, "10%..30%");
    world_run(&world, SECOND);
    run_and_measure(2 * SECOND, percent);
    assert_near(percent[0], 90, 2.6);
    assert_near(percent[1], 10, 2.6);
}

static double world_used(const struct world *of)
{
    double sum = 0;
    for (unsigned i = 0; i < of->member_count; i++)
        sum += (double)of->members[i].device_ns;
    return sum;
}

/* --- Guests ---------------------------------------------------------------------------------------- */

static void two_sessions_that_are_busy_half_the_time_fill_the_gpu(void **state)
{
    double percent[WORLD_PROCESSES], alone;
    struct program program = {.piece_ns = 500000, .burst = 10, .idle_ns = 5 * MS};
    /* What the same pair reaches without us: gates always open. */
    world_add(&world, "0%..100%", NORMAL, program);
    world_add(&world, "0%..100%", NORMAL, program);
    run_and_measure(10 * SECOND, percent);
    alone = percent[0] + percent[1];
    world_end(&world);
    world_begin(&world);
    world_add(&world, "50%..100%", NORMAL, program);
    world_add(&world, "50%..100%", NORMAL, program);
    world_run(&world, SECOND);
    run_and_measure(10 * SECOND, percent);
    assert_true(alone > 70);
    if (percent[0] + percent[1] < 0.95 * alone)
        fail_msg("together %.1f %%, without shares %.1f %%", percent[0] + percent[1], alone);
    assert_near(percent[0], percent[1], 3);
}

static void guests_that_turn_busy_take_turns(void **state)
{
    double percent[WORLD_PROCESSES];
    struct program program = {.piece_ns = 500000, .burst = 4, .idle_ns = 6 * MS};
    struct member *first = world_add(&world, "20%..100%", NORMAL, program);
    struct member *second = world_add(&world, "80%..100%", NORMAL, program);
    world_run(&world, SECOND);
    assert_int_equal(arbiter_session_lease(first->session), LEASE_GUEST);
    assert_int_equal(arbiter_session_lease(second->session), LEASE_GUEST);
    first->program.burst = second->program.burst = 0;
    world_run(&world, SECOND);
    run_and_measure(10 * SECOND, percent);
    assert_near(percent[0], 20, 0.5);
    assert_near(percent[1], 80, 1);
}

/* Two that would each use two thirds alone: neither is dense, and together they want more than there is. As
 * guests both are as fast as each other; where that is not enough for one of them, they take turns. */
static void assert_minima_of_a_greedy_pair(const char *first, double first_min, const char *second,
                                           double second_min)
{
    double percent[WORLD_PROCESSES];
    struct program program = {.piece_ns = MS, .burst = 6, .idle_ns = 3 * MS};
    const double alone = 6.0 / 9;
    world_add(&world, first, NORMAL, program);
    world_add(&world, second, NORMAL, program);
    world_run(&world, 2 * SECOND);
    run_and_measure(20 * SECOND, percent);
    if (percent[0] < (first_min - 1) * alone || percent[1] < (second_min - 1) * alone)
        fail_msg("they are as fast as %.2f %% and %.2f %% of alone", percent[0] / alone, percent[1] / alone);
}

static void guests_that_together_want_more_than_there_is_keep_their_minima(void **state)
{
    double before = world_used(&world);
    assert_minima_of_a_greedy_pair("25%..100%", 25, "60%..100%", 60);
    assert_true(world_used(&world) - before >= 0.9 * 22 * (double)SECOND);
}

static void guests_that_get_less_than_their_minima_take_turns(void **state)
{
    assert_minima_of_a_greedy_pair("15%..100%", 15, "80%..100%", 80);
}

/* Each says why it is what it is: what takes no turns, what keeps the GPU busy, and what got too little as a guest. */
static void sessions_say_why_they_take_turns(void **state)
{
    double got = 0;
    void *beside = NULL;
    const struct member *needy = world_add(
        &world, "50%..100%", NORMAL, (struct program){.piece_ns = 30000, .burst = 1, .idle_ns = 110000});
    const struct member *other = world_add(
        &world, "35%..100%", NORMAL, (struct program){.piece_ns = 540000, .burst = 1, .idle_ns = 110000});
    for (unsigned i = 0; i < 500 && arbiter_session_why(needy->session, &got, &beside) != WHY_NEEDY; i++)
        world_run(&world, SECOND / 100);
    assert_int_equal(arbiter_session_why(needy->session, &got, &beside), WHY_NEEDY);
    assert_true(got > 0 && got < 0.5);
    assert_ptr_equal(beside, &world);
    assert_int_equal(arbiter_session_why(other->session, &got, &beside), WHY_DONOR);
}

static void a_session_alone_dense_or_light_says_so(void **state)
{
    double got;
    void *beside;
    const struct member *dense = world_add(&world, "50%..100%", NORMAL, (struct program){.piece_ns = 300000});
    const struct member *light = world_add(
        &world, "10%..100%", NORMAL, (struct program){.piece_ns = 100000, .burst = 1, .idle_ns = 5 * MS});
    world_run(&world, 2 * SECOND);
    assert_int_equal(arbiter_session_why(dense->session, &got, &beside), WHY_DENSE);
    assert_int_equal(arbiter_session_why(light->session, &got, &beside), WHY_LIGHT);
}

/* As guests, the first does one short call for each long one of the other: a fifth of what it does alone. Each time that this is tried
 * again, both take turns again soon: with the other as a guest, turns of the first would change nothing. */
static void a_guest_that_another_keeps_small_loses_little_where_that_is_tried_again(void **state)
{
    double percent[WORLD_PROCESSES];
    const double alone = 30.0 / 140, other_alone = 540.0 / 650;
    const struct member *first = world_add(
        &world, "50%..100%", NORMAL, (struct program){.piece_ns = 30000, .burst = 1, .idle_ns = 110000});
    world_add(&world, "35%..100%", NORMAL,
              (struct program){.piece_ns = 540000, .burst = 1, .idle_ns = 110000});
    unsigned tries = 0;
    world_run(&world, 2 * SECOND);
    for (unsigned i = 0; i < 40; i++) {
        tries += !arbiter_session_takes_turns(first->session);
        run_and_measure(SECOND / 4, percent);
        assert_true(percent[0] >= 40 * alone);
        assert_true(percent[1] >= 34 * other_alone);
    }
    assert_true(tries > 0);
}

/* Both are guests. One keeps the GPU busy for a moment now and then, and has to wait for its turns then. */
static void a_guest_that_was_dense_for_a_moment_is_a_guest_again_soon(void **state)
{
    struct program program = {.piece_ns = 50000, .burst = 10, .idle_ns = MS / 5};
    struct member *first = world_add(&world, "60%..100%", NORMAL, program);
    world_add(&world, "0%..100%", NORMAL, program);
    unsigned turns = 0, late = 0;
    world_run(&world, 2 * SECOND);
    for (unsigned i = 0; i < 20; i++) {
        first->program.idle_ns = 0;
        world_run(&world, (100 + 30 * i) * MS);
        turns += arbiter_session_takes_turns(first->session);
        first->program.idle_ns = program.idle_ns;
        world_run(&world, SECOND);
        late += arbiter_session_takes_turns(first->session);
        world_run(&world, SECOND);
    }
    assert_true(turns > 5);
    assert_int_equal(late, 0);
}

/* Periodic programs come beside a backlog, where turns are long since others before them needed that: each waits while it is measured,
 * and has more than its minimum from then on. */
static void what_was_lost_while_it_was_measured_makes_no_guest_needy(void **state)
{
    unsigned turns = 0;
    arbiter_set_quantum(world.arbiter, 50 * MS);
    world_add(&world, "0%..100%", NORMAL, (struct program){.piece_ns = 5 * MS});
    world_run(&world, SECOND);
    for (unsigned i = 0; i < 8; i++) {
        world_run(&world, (37 + i) * MS);
        world_add(&world, "60%..100%", NORMAL,
                  (struct program){.piece_ns = MS, .burst = 1, .idle_ns = 19 * MS});
        world_run(&world, SECOND);
        for (unsigned tenth = 0; tenth < 10; tenth++) {
            world_run(&world, 100 * MS);
            turns += arbiter_session_lease(world.members[1 + i].session) == LEASE_EXCLUSIVE;
        }
        world_kill(&world.members[1 + i]);
    }
    assert_int_equal(turns, 0);
}

/* Requests by chance, of 0.6 ms, that keep the GPU busy for 24 % of the time; and what runs beside them, 87 %. */
static const struct program a_service = {.piece_ns = 600000, .burst = 1, .every_ns = 2500000};
static const struct program beside_it = {.piece_ns = 1500000, .burst = 4, .idle_ns = 900000};

/* For what part of the time the session takes turns. */
static double part_in_turns(const struct arbiter_session *session, uint64_t ns)
{
    unsigned turns = 0, looks = 0;
    for (; looks < ns / (10 * MS); looks++) {
        world_run(&world, 10 * MS);
        turns += arbiter_session_takes_turns(session);
    }
    return (double)turns / looks;
}

/* Its requests take longer than alone, and all of them are answered. In turns they would be no more, and the other program would have
 * 42 % of the GPU, not 74 %. */
static void a_service_that_answers_all_its_requests_is_a_guest(void **state)
{
    double percent[WORLD_PROCESSES];
    const struct member *service = world_add(&world, "60%", NORMAL, a_service);
    world_add(&world, "15%..100%", NORMAL, beside_it);
    world_run(&world, 10 * SECOND);
    assert_true(part_in_turns(service->session, 40 * SECOND) <= 0.3);
    run_and_measure(10 * SECOND, percent);
    assert_near(percent[0], 24, 1);
    assert_true(percent[1] >= 70);
}

/* More of them come than it can answer as a guest. */
static void a_service_that_cannot_answer_all_its_requests_takes_turns(void **state)
{
    double percent[WORLD_PROCESSES];
    struct program busy = a_service;
    busy.every_ns = 1000000;
    world_add(&world, "80%", NORMAL, busy);
    world_add(&world, "15%..100%", NORMAL, beside_it);
    world_run(&world, 2 * SECOND);
    for (unsigned second = 0; second < 20; second++) {
        run_and_measure(SECOND, percent);
        assert_true(percent[0] >= 0.8 * 60 - 1);
    }
}

/* In its turns the GPU is idle for most of the time. */
static void what_a_light_session_was_not_promised_goes_to_the_busy_one(void **state)
{
    double percent[WORLD_PROCESSES];
    struct program light = {.piece_ns = 100000, .burst = 1, .idle_ns = 300000};
    world_add(&world, "0%..100%", NORMAL, light);
    run_and_measure(SECOND, percent);
    double alone = percent[0];
    world_kill(&world.members[0]);
    world_add(&world, "30%..100%", NORMAL, light);
    world_add(&world, "20%..100%", NORMAL, (struct program){.piece_ns = 400000});
    world_run(&world, 2 * SECOND);
    run_and_measure(10 * SECOND, percent);
    assert_near(percent[1], 0.3 * alone, 0.3);
    assert_true(percent[2] >= 67);
}

static void a_busy_session_gets_its_minimum_beside_one_that_is_not(void **state)
{
    double percent[WORLD_PROCESSES];
    world_add(&world, "50%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_add(&world, "50%..100%", NORMAL,
              (struct program){.piece_ns = 500000, .burst = 4, .idle_ns = 10 * MS});
    world_run(&world, SECOND);
    run_and_measure(10 * SECOND, percent);
    assert_true(percent[0] >= 50);
    assert_true(percent[0] + percent[1] >= 90);
}

/* --- Priorities ------------------------------------------------------------------------------------ */

static void a_higher_priority_comes_first(void **state)
{
    double percent[WORLD_PROCESSES];
    world_add(&world, "0%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_add(&world, "0%..60%", NORMAL + 1, (struct program){.piece_ns = 500000});
    world_run(&world, SECOND);
    run_and_measure(10 * SECOND, percent);
    assert_near(percent[1], 60, 0.5);
    assert_near(percent[0], 40, 1);
}

static void a_lower_priority_waits_for_those_above(void **state)
{
    double percent[WORLD_PROCESSES];
    world_add(&world, "0%..100%", NORMAL - 1, (struct program){.piece_ns = 500000});
    struct member *high = world_add(&world, "0%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_run(&world, SECOND);
    run_and_measure(SECOND, percent);
    assert_near(percent[0], 0, 0);
    world_kill(high);
    run_and_measure(SECOND, percent);
    assert_near(percent[0], 100, 1);
}

static void a_minimum_is_kept_under_a_higher_priority(void **state)
{
    static const struct {
        uint64_t low_ns, high_ns;
    } rows[] = {{500000, 500000}, {50000, 20 * MS}, {20 * MS, 50000}};
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double percent[WORLD_PROCESSES];
        struct member *low =
            world_add(&world, "25%..50%", NORMAL - 1, (struct program){.piece_ns = rows[i].low_ns});
        struct member *high =
            world_add(&world, "0%..100%", NORMAL + 1, (struct program){.piece_ns = rows[i].high_ns});
        world_run(&world, SECOND);
        run_and_measure(5 * SECOND, percent);
        assert_near(percent[2 * i], 25, 1.5);
        assert_near(percent[2 * i + 1], 75, 2);
        world_kill(low);
        world_kill(high);
        world_run(&world, SECOND / 10);
    }
}

/* Nobody may say anything while it does. */
static void a_session_held_still_for_an_endless_burst_goes_on(void **state)
{
    double percent[WORLD_PROCESSES];
    world_add(&world, "0%..100%", NORMAL - 1, (struct program){.piece_ns = 200000});
    struct member *high = world_add(&world, "0%..100%", NORMAL + 1,
                                    (struct program){.piece_ns = MS, .burst = 5, .idle_ns = 20 * MS});
    world_run(&world, 2 * SECOND);
    uint64_t end = world.now + SECOND;
    while (world.now < end && !(high->told_burst && high->in_flight_ns && !high->outbox.count))
        world_run(&world, WORLD_STEP_NS);
    assert_true(high->told_burst);
    high->is_stopped = true;
    run_and_measure(10 * SECOND, percent);
    assert_true(percent[0] > 80);
}

static void minima_of_several_priorities_are_all_kept(void **state)
{
    double percent[WORLD_PROCESSES];
    world_add(&world, "10%..100%", NORMAL - 1, (struct program){.piece_ns = 500000});
    world_add(&world, "20%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_add(&world, "30%..100%", NORMAL + 1, (struct program){.piece_ns = 500000});
    world_run(&world, SECOND);
    run_and_measure(5 * SECOND, percent);
    assert_near(percent[0], 10, 1);
    assert_near(percent[1], 20, 1);
    assert_near(percent[2], 70, 2);
}

static void a_minimum_that_was_not_wanted_is_not_made_up_for(void **state)
{
    double percent[WORLD_PROCESSES];
    world_add(&world, "0%..100%", NORMAL + 1, (struct program){.piece_ns = 500000});
    world_run(&world, 10 * SECOND);
    world_add(&world, "25%..100%", NORMAL, (struct program){.piece_ns = 500000});
    run_and_measure(2 * SECOND, percent);
    assert_near(percent[1], 25, 4);
}

/* --- Several GPUs ---------------------------------------------------------------------------------- */

static void sessions_over_two_gpus_and_over_one_each_get_what_they_are_due(void **state)
{
    double percent[WORLD_PROCESSES];
    world_add(&world, "40%..100%", NORMAL, (struct program){.piece_ns = 500000, .gpus = 3});
    world_add(&world, "60%..100%", NORMAL, (struct program){.piece_ns = 500000, .gpus = 1});
    world_add(&world, "60%..100%", NORMAL, (struct program){.piece_ns = 500000, .gpus = 2});
    world_run(&world, SECOND);
    run_and_measure(10 * SECOND, percent);
    assert_near(percent[0], 40, 2);
    assert_near(percent[1], 60, 2);
    assert_near(percent[2], 60, 2);
}

static void four_sessions_that_each_use_two_of_four_gpus_all_go_on(void **state)
{
    double percent[WORLD_PROCESSES];
    const uint64_t gpus[] = {1 | 2, 2 | 4, 4 | 8, 8 | 1};
    for (unsigned i = 0; i < 4; i++)
        world_add(&world, "50%..100%", NORMAL, (struct program){.piece_ns = 500000, .gpus = gpus[i]});
    world_run(&world, SECOND);
    run_and_measure(10 * SECOND, percent);
    for (unsigned i = 0; i < 4; i++)
        assert_near(percent[i], 49, 2);
}

static void a_session_that_begins_to_use_another_gpu_leases_both(void **state)
{
    double percent[WORLD_PROCESSES];
    struct member *grows = world_add(&world, "50%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_add(&world, "50%..100%", NORMAL, (struct program){.piece_ns = 500000, .gpus = 2});
    world_run(&world, SECOND);
    run_and_measure(SECOND, percent);
    assert_near(percent[0], 100, 1);
    assert_near(percent[1], 100, 1);
    grows->program.gpus = 3;
    arbiter_want(grows->process, 3, world.now);
    world_run(&world, 3 * MS);
    world.breaches = 0; /* its gate was open when it began */
    world_run(&world, SECOND);
    run_and_measure(10 * SECOND, percent);
    assert_near(percent[0], 50, 1);
    assert_near(percent[1], 50, 1);
}

/* --- Becoming another ------------------------------------------------------------------------------ */

static const struct program with_gaps = {.piece_ns = 300000, .burst = 1, .idle_ns = MS};

static void a_light_program_that_turns_greedy_is_noticed_within_100_ms(void **state)
{
    double percent[WORLD_PROCESSES];
    struct member *turns = world_add(&world, "20%..100%", NORMAL, with_gaps);
    world_add(&world, "80%..100%", NORMAL, (struct program){.piece_ns = 400000});
    world_run(&world, 3 * SECOND);
    assert_int_equal(arbiter_session_lease(turns->session), LEASE_GUEST);
    for (unsigned times = 0; times < 3; times++) {
        turns->program = (struct program){.piece_ns = 300000};
        turns->pieces = 0;
        world_run(&world, 100 * MS);
        assert_int_not_equal(arbiter_session_lease(turns->session), LEASE_GUEST);
        run_and_measure(SECOND, percent);
        assert_near(percent[0], 20, 3);
        turns->program = with_gaps;
        turns->pieces = 0;
        world_run(&world, SECOND);
        assert_int_equal(arbiter_session_lease(turns->session), LEASE_GUEST);
    }
    world.breaches = 0; /* a guest is beside turns */
}

/* Also where its kernels become others, beside programs whose gates are never closed. */
static void charges_follow_a_program_that_becomes_another(void **state)
{
    double percent[WORLD_PROCESSES];
    struct member *turns = world_add(&world, "50%..100%", NORMAL, (struct program){.piece_ns = 100000});
    world_add(&world, "20%..100%", NORMAL,
              (struct program){.piece_ns = 300000, .burst = 1, .idle_ns = 3 * MS});
    world_run(&world, 3 * SECOND);
    turns->program.piece_ns = 700000;
    world_run(&world, SECOND);
    uint64_t before = arbiter_session_used(turns->session, 0);
    run_and_measure(5 * SECOND, percent);
    uint64_t charged = arbiter_session_used(turns->session, 0) - before;
    assert_near(100 * (double)charged / (5 * (double)SECOND), percent[0], 2.5);
    world.breaches = 0;
}

/* What the daemon keeps of earlier sessions makes later ones no slower. They are other users': for how long a user's newcomers
 * may be measured is kept. */
static void the_same_pair_fares_the_same_every_time(void **state)
{
    double first[2] = {0}, percent[WORLD_PROCESSES];
    for (unsigned times = 0; times < 10; times++) {
        world_add_of(&world, 100 + times, "20%..100%", NORMAL,
                     (struct program){.piece_ns = 30000, .burst = 1, .idle_ns = 60000});
        world_add_of(&world, 200 + times, "80%..100%", NORMAL, (struct program){.piece_ns = 400000});
        run_and_measure(4 * SECOND, percent);
        for (unsigned i = 0; i < 2; i++) {
            first[i] = times ? first[i] : percent[i];
            assert_near(percent[i], first[i], 2);
            world_kill(&world.members[i]);
            arbiter_session_remove(world.members[i].session);
        }
        world.member_count = 0;
        world_run(&world, SECOND / 10);
    }
    world.breaches = 0;
}

/* Its bursts never end for its agent, as their gaps are short: to hold still for them would leave the GPU idle. */
static void a_higher_priority_with_short_gaps_leaves_the_gpu_to_others(void **state)
{
    double percent[WORLD_PROCESSES];
    world_add(&world, "0%..100%", NORMAL + 1,
              (struct program){.piece_ns = 100000, .burst = 1, .idle_ns = 600000});
    world_add(&world, "30%..100%", NORMAL, (struct program){.piece_ns = 200000});
    world_run(&world, SECOND);
    run_and_measure(10 * SECOND, percent);
    assert_true(percent[1] >= 80);
    world.breaches = 0;
}

/* What others have before the GPU as a burst begins runs out beside it: that leaves nothing idle. */
static void others_go_on_to_hold_still_for_bursts(void **state)
{
    struct member *first = world_add(&world, "0%..100%", NORMAL + 1,
                                     (struct program){.piece_ns = MS, .burst = 1, .idle_ns = 5 * MS});
    struct member *second = world_add(&world, "0%..100%", NORMAL - 1, (struct program){.piece_ns = 200000});
    unsigned bursts = 0, still = 0;
    world_run(&world, SECOND);
    for (uint64_t end = world.now + 10 * SECOND; world.now < end;) {
        world_run(&world, MS / 10);
        bursts += first->in_flight_ns > 0;
        still += first->in_flight_ns > 0 && (second->flags & WIRE_LEASE_STILL);
    }
    assert_true(still > 0.8 * bursts);
    world.breaches = 0;
}

/* --- Trouble --------------------------------------------------------------------------------------- */

static void a_stopped_holder_keeps_nobody_for_long(void **state)
{
    double percent[WORLD_PROCESSES];
    struct program program = {.piece_ns = 500000};
    struct member *stops = world_add(&world, "40%..100%", NORMAL, program);
    world_add(&world, "30%..100%", NORMAL, program);
    world_add(&world, "30%..100%", NORMAL, program);
    world_run(&world, SECOND);
    while (!stops->gate_open)
        world_run(&world, WORLD_STEP_NS);
    stops->is_stopped = true;
    world_run(&world, SECOND);
    assert_int_equal(world.events[ARBITER_OVERRUN], 1);
    run_and_measure(10 * SECOND, percent);
    assert_near(percent[1], 50, 0.5);
    assert_near(percent[2], 50, 0.5);
    stops->is_stopped = false;
    world_run(&world, 3 * SECOND);
    run_and_measure(10 * SECOND, percent);
    assert_near(percent[0], 40, 0.5);
    assert_near(percent[1], 30, 0.5);
}

static void work_that_does_not_drain_runs_beside_the_others(void **state)
{
    double percent[WORLD_PROCESSES];
    struct program program = {.piece_ns = 500000};
    struct member *stuck = world_add(&world, "50%..100%", NORMAL, program);
    world_add(&world, "50%..100%", NORMAL, program);
    stuck->program.never_drains = true;
    world_run(&world, 5 * SECOND);
    assert_int_equal(world.events[ARBITER_UNDRAINED], 2);
    assert_int_equal(world.events[ARBITER_UNDRAINABLE], 1);
    assert_true(arbiter_session_is_undrainable(stuck->session));
    run_and_measure(5 * SECOND, percent);
    assert_near(percent[0], 50, 3);
    assert_near(percent[1], 50, 3);
    stuck->program.never_drains = false;
    world_run(&world, 11 * SECOND);
    assert_false(arbiter_session_is_undrainable(stuck->session));
    assert_true(world.events[ARBITER_DRAINED] >= 1);
}

static void an_overrun_is_made_up_for(void **state)
{
    /* A kernel of 700 ms among small ones: within seconds both have had the same. */
    double percent[WORLD_PROCESSES];
    struct member *first = world_add(&world, "50%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_add(&world, "50%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_run(&world, SECOND);
    while (!first->gate_open)
        world_run(&world, WORLD_STEP_NS);
    first->in_flight_ns += 90 * MS;
    run_and_measure(10 * SECOND, percent);
    assert_near(percent[0], 50, 0.5);
    assert_near(percent[1], 50, 0.5);
}

/* Any program may die, stop, go on at any time, and holders may claim anything; nobody waits for ever, and
 * who is left has its share. */
static void random_deaths_and_stops_leave_the_others_at_their_share(void **state)
{
    double percent[WORLD_PROCESSES];
    struct program program = {.piece_ns = 200000};
    srand(1);
    world_add(&world, "30%..100%", NORMAL, program);
    world_add(&world, "30%..100%", NORMAL, program);
    for (unsigned round = 0; round < 100; round++) {
        if (world.member_count == WORLD_PROCESSES) {
            /* Room again: those in the middle have all died. */
            for (unsigned i = 2; i < WORLD_PROCESSES; i++) {
                if (!world.members[i].is_dead)
                    world_kill(&world.members[i]);
                arbiter_session_remove(world.members[i].session);
            }
            world.member_count = 2;
        }
        world_add(&world, "10%..100%", NORMAL, program);
        world_run(&world, (uint64_t)(rand() % 200) * MS + (uint64_t)(rand() % 100) * WORLD_STEP_NS);
        struct member *victim = &world.members[2 + (unsigned)rand() % (world.member_count - 2)];
        if (victim->is_dead)
            continue;
        switch (rand() % 3) {
        case 0:
            world_kill(victim);
            break;
        case 1:
            victim->is_stopped = true;
            break;
        default:
            victim->is_stopped = false;
        }
    }
    for (unsigned i = 2; i < world.member_count; i++)
        if (!world.members[i].is_dead)
            world_kill(&world.members[i]);
    world_run(&world, SECOND);
    run_and_measure(10 * SECOND, percent);
    assert_near(percent[0], 50, 0.5);
    assert_near(percent[1], 50, 0.5);
}

/* --- Tenants that change sessions ------------------------------------------------------------------- */

/* It has a turn, claims that its work takes 2 s a piece, does not give the turn back, and dies. */
static void take_a_turn_and_die(uint64_t user, const char *share)
{
    struct member *tenant = world_add_of(&world, user, share, NORMAL, (struct program){.piece_ns = 200000});
    for (unsigned i = 0; i < 50 && !tenant->gate_open; i++)
        world_run(&world, 10 * MS);
    tenant->is_stopped = true;
    tenant->program.piece_ns = 2 * SECOND;
    world_run(&world, 250 * MS);
    world_kill(tenant);
    arbiter_session_remove(tenant->session);
    world.member_count--;
}

/* What the first member had of 10 s in which such tenants, of `users` in turn, came one after the other. */
static double part_beside_tenants(unsigned users)
{
    uint64_t begin = world.now, before = world.members[0].device_ns;
    for (unsigned count = 0; world.now < begin + 10 * SECOND; count++)
        take_a_turn_and_die(count % users, "0%..100%");
    return 100 * (double)(world.members[0].device_ns - before) / (double)(world.now - begin);
}

static void what_a_session_took_its_user_s_next_ones_owe(void **state)
{
    world_add(&world, "90%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_run(&world, SECOND);
    part_beside_tenants(1); /* their credit was used up */
    assert_true(part_beside_tenants(1) > 89);
}

static void ever_new_users_do_not_take_a_minimum(void **state)
{
    /* Each of them does take one turn, and keeps it for as long as it is waited for. */
    world_add(&world, "90%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_run(&world, SECOND);
    double part = part_beside_tenants(1000);
    if (part < 60)
        fail_msg("it had %.1f", part);
}

static void newcomers_that_behave_do_not_take_a_minimum(void **state)
{
    uint64_t before;
    struct member *first = world_add(&world, "90%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_run(&world, SECOND);
    before = first->device_ns;
    for (unsigned count = 0; count < 100; count++) {
        struct member *next =
            world_add_of(&world, count, "0%..100%", NORMAL, (struct program){.piece_ns = 500000});
        world_run(&world, 100 * MS);
        world_kill(next);
        arbiter_session_remove(next->session);
        world.member_count--;
    }
    /* Each of them is measured, for which the GPU stands idle before and after. */
    double part = 100 * (double)(first->device_ns - before) / (double)(10 * SECOND);
    if (part < 84)
        fail_msg("it had %.1f", part);
}

static void a_priority_that_changes_takes_no_debt_away(void **state)
{
    double percent[WORLD_PROCESSES];
    struct program program = {.piece_ns = 500000};
    struct share half = {.min = SHARE_WHOLE / 2, .max = SHARE_WHOLE};
    struct member *first = world_add(&world, "50%..100%", NORMAL, program);
    struct member *second = world_add(&world, "50%..100%", NORMAL, program);
    uint64_t before[2] = {0};
    world_run(&world, SECOND);
    before[0] = first->device_ns;
    before[1] = second->device_ns;
    for (unsigned i = 0; i < 500; i++) {
        world_run(&world, 20 * MS);
        arbiter_session_set(second->session, half, i % 2 ? NORMAL : 0, world.now);
    }
    for (unsigned i = 0; i < 2; i++)
        percent[i] = (double)(world.members[i].device_ns - before[i]) / 1e8;
    if (percent[0] < 49)
        fail_msg("they had %.1f and %.1f", percent[0], percent[1]);
}

/* Its turn on the first one ends, on which shares count for nobody any more. */
static void a_process_moves_to_another_gpu_in_its_turn(void **state)
{
    struct member *moves = world_add(&world, "50%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_run(&world, SECOND);
    world.gpu_count = 2;
    moves->program.gpus = 2;
    arbiter_want(moves->process, 2, world.now);
    uint64_t before = moves->device_ns;
    world_run(&world, SECOND);
    assert_true(moves->device_ns - before > SECOND / 2);
}

/* As NVML would show them, each second. */
static void run_and_look(uint64_t ns)
{
    for (uint64_t end = world.now + ns; world.now < end;) {
        uint64_t before[WORLD_PROCESSES];
        for (unsigned i = 0; i < world.member_count; i++)
            before[i] = world.members[i].device_ns;
        world_run(&world, SECOND);
        for (unsigned i = 0; i < world.member_count; i++)
            arbiter_seen(world.members[i].session, 0,
                         (double)(world.members[i].device_ns - before[i]) / (double)(SECOND));
        arbiter_look_is_over(world.arbiter, world.now);
    }
}

static void a_session_that_says_less_than_is_seen_is_charged_by_what_is_seen(void **state)
{
    double percent[WORLD_PROCESSES];
    struct member *first = world_add(&world, "90%..100%", NORMAL, (struct program){.piece_ns = 500000});
    struct member *liar = world_add(&world, "0%..100%", NORMAL, (struct program){.piece_ns = 500000});
    liar->says_nothing = true;
    run_and_look(5 * SECOND);
    assert_true(arbiter_session_understates(liar->session));
    assert_false(arbiter_session_understates(first->session));
    assert_int_equal(world.events[ARBITER_UNDERSTATED], 1);
    uint64_t used = arbiter_session_used(liar->session, 0), device = liar->device_ns;
    run_and_look(10 * SECOND);
    assert_near((double)(arbiter_session_used(liar->session, 0) - used) / 1e8,
                (double)(liar->device_ns - device) / 1e8, 2);
    run_and_measure(10 * SECOND, percent);
    assert_true(percent[0] > 87);
    liar->says_nothing = false;
    run_and_look(10 * SECOND);
    assert_false(arbiter_session_understates(liar->session));
}

static void honest_programs_are_believed_whatever_they_do(void **state)
{
    world_add(&world, "30%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_add(&world, "20%..100%", NORMAL,
              (struct program){.piece_ns = 80000, .burst = 1, .idle_ns = 120000});
    world_add(&world, "0%..100%", NORMAL,
              (struct program){.piece_ns = 2 * MS, .burst = 500, .idle_ns = 3 * SECOND});
    world_add(&world, "0%..25%", NORMAL, (struct program){.piece_ns = 100000});
    run_and_look(30 * SECOND);
    assert_int_equal(world.events[ARBITER_UNDERSTATED], 0);
}

/* What it used is charged when the piece ends. */
static void a_very_long_piece_of_work_is_believed(void **state)
{
    struct member *patient =
        world_add(&world, "50%..100%", NORMAL, (struct program){.piece_ns = 20 * SECOND});
    run_and_look(65 * SECOND);
    assert_int_equal(world.events[ARBITER_UNDERSTATED], 0);
    assert_false(arbiter_session_understates(patient->session));
    assert_true((double)arbiter_session_used(patient->session, 0) < 1.05 * (double)patient->device_ns);
}

static void nobody_is_waited_for_longer_than_its_gate_was_open(void **state)
{
    struct member *first = world_add(&world, "50%..100%", NORMAL, (struct program){.piece_ns = 500000});
    world_run(&world, SECOND);
    struct member *liar = world_add(&world, "50%..100%", NORMAL, (struct program){.piece_ns = 200000});
    while (!liar->gate_open)
        world_run(&world, WORLD_STEP_NS);
    liar->program.piece_ns = 2 * SECOND; /* what its agent tells from now on */
    liar->program.burst = 1;
    world_run(&world, 22 * MS);
    liar->is_stopped = true;
    unsigned grants = first->grants;
    world_run(&world, 300 * MS);
    assert_true(first->grants > grants);
}

/* Of a member whose agent the test is: the lease that the last message of this type names, once there is one. */
static uint64_t await(struct member *member, enum wire_type type)
{
    struct mailbox *box = &member->inbox;
    for (uint64_t end = world.now + SECOND / 2; world.now < end; world_run(&world, MS))
        if (box->count && box->mails[box->count - 1].type == type)
            return box->mails[box->count - 1].lease;
    fail_msg("no message of type %d", (int)type);
    return 0;
}

/* Program and agent are kept from running: what they could not do counts little, and in the next turn they tell nothing. */
static void a_maximum_is_kept_by_a_process_that_tells_nothing(void **state)
{
    struct member *member = world_add(&world, "0%..20%", NORMAL, (struct program){.piece_ns = 50000});
    member->is_stopped = true;
    arbiter_returned(member->process, &(struct wire_returned){.outcome = WIRE_OUTCOME_DRAINED}, world.now);
    for (unsigned turn = 0; turn < 30; turn++) {
        arbiter_want(member->process, 1, world.now);
        struct wire_returned returned = {await(member, WIRE_GRANT), .outcome = WIRE_OUTCOME_DRAINED};
        uint64_t since = world.now;
        assert_int_equal(await(member, WIRE_REVOKE), returned.lease);
        struct wire_report report = {returned.lease, .busy_ns = turn % 3 == 0 ? 1000 : world.now - since};
        arbiter_report(member->process, &report, world.now);
        arbiter_returned(member->process, &returned, world.now);
        member->inbox.count = 0;
    }
}

/* --- The arbiter by itself ------------------------------------------------------------------------- */

static void the_quantum_follows_the_gap(void **state)
{
    assert_int_equal(arbiter_quantum(world.arbiter), 30 * MS);
    add_all((const char *const[]){"50%", "50%"}, 2, (struct program){.piece_ns = 50000});
    world_run(&world, 5 * SECOND);
    uint64_t gap = arbiter_gap(world.arbiter);
    assert_in_range(gap, 50000, 400000);
    assert_in_range(arbiter_quantum(world.arbiter), 50 * gap > 15 * MS ? 50 * gap : 15 * MS, 50 * MS);
    arbiter_set_quantum(world.arbiter, 5 * MS);
    assert_int_equal(arbiter_quantum(world.arbiter), 5 * MS);
    uint64_t handovers = arbiter_handovers(world.arbiter, 0);
    world_run(&world, SECOND);
    assert_in_range(arbiter_handovers(world.arbiter, 0) - handovers, 150, 210);
}

static void without_shares_nobody_is_gated(void **state)
{
    struct member *first = world_add(&world, "0%..100%", NORMAL, (struct program){.piece_ns = 50000});
    world_add(&world, "0%..100%", NORMAL, (struct program){.piece_ns = 50000});
    world_run(&world, SECOND);
    assert_int_equal(arbiter_mode(world.arbiter, 0, world.now), ARBITER_MODE_FREE);
    assert_true(first->is_free);
    assert_int_equal(first->revokes, 0);
}

static void the_mode_says_whether_anybody_is_kept_waiting(void **state)
{
    struct program light = {.piece_ns = 200000, .burst = 1, .idle_ns = MS}, dense = {.piece_ns = 500000};
    world_add(&world, "30%..100%", NORMAL, light);
    world_add(&world, "30%..100%", NORMAL, light);
    world_run(&world, 3 * SECOND);
    assert_int_equal(arbiter_mode(world.arbiter, 0, world.now), ARBITER_MODE_OPEN);
    world_add(&world, "20%..100%", NORMAL, dense);
    struct member *second = world_add(&world, "20%..100%", NORMAL, dense);
    world_run(&world, 100 * MS);
    assert_int_equal(arbiter_mode(world.arbiter, 0, world.now), ARBITER_MODE_SHARES);
    world_run(&world, 3 * SECOND);
    assert_int_equal(arbiter_mode(world.arbiter, 0, world.now), ARBITER_MODE_SHARES);
    world_kill(second);
    world_run(&world, 2 * SECOND);
    assert_int_equal(arbiter_mode(world.arbiter, 0, world.now), ARBITER_MODE_OPEN);
}

/* --- Memory that is away --------------------------------------------------------------------------- */

static void a_process_away_is_given_nothing_and_owed_nothing(void **state)
{
    double percent[WORLD_PROCESSES];
    struct program dense = {.piece_ns = 500000};
    struct member *away = world_add(&world, "50%..100%", NORMAL, dense);
    world_add(&world, "30%..100%", NORMAL, dense);
    world_run(&world, 2 * SECOND);
    while (!arbiter_session_waits(away->session))
        world_run(&world, WORLD_STEP_NS);
    unsigned grants = away->grants;
    arbiter_set_away(away->process, true, world.now);
    assert_false(arbiter_session_waits(away->session));
    world_run(&world, 100 * MS);
    run_and_measure(5 * SECOND, percent);
    assert_int_equal(away->grants, grants);
    assert_near(percent[1], 100, 0.1);
    arbiter_set_away(away->process, false, world.now);
    assert_int_equal(away->grants, grants);
    run_and_measure(SECOND, percent);
    assert_true(away->grants > grants);
    assert_near(percent[0], 62, 6); /* its part, and what a newcomer has, but no more for the time before */
}

static void a_process_away_keeps_no_session_waiting_as_shares_begin_to_count(void **state)
{
    struct program dense = {.piece_ns = 500000};
    struct member *away = world_add(&world, "0%..100%", NORMAL, dense);
    world_run(&world, 100 * MS);
    assert_true(away->is_free);
    arbiter_set_away(away->process, true, world.now);
    away->is_stopped = true; /* it moves */
    world_run(&world, 10 * MS);
    struct member *next = world_add(&world, "50%..100%", NORMAL, dense);
    world_run(&world, 10 * MS);
    assert_true(next->gate_open);
    assert_int_equal(world.events[ARBITER_OVERRUN], 0);
    away->is_stopped = false;
    world_run(&world, 100 * MS);
    assert_true(!away->is_free && !away->gate_open && away->grants == 0);
    arbiter_set_away(away->process, false, world.now);
    world_run(&world, 200 * MS);
    assert_true(away->grants > 0);
}

/* A program that allocates and never computes, of which another one was a neighbour in its session. */
static void a_process_without_work_blocks_no_session_once_the_rest_of_its_own_has_gone(void **state)
{
    struct program dense = {.piece_ns = 500000};
    struct member *works = world_add(&world, "0%..100%", NORMAL, dense);
    struct member *rests = world_add_process(&world, works->session, dense);
    rests->idle_until = UINT64_MAX;
    world_run(&world, 10 * MS);
    struct member *first = world_add(&world, "40%", NORMAL, dense);
    world_run(&world, 200 * MS);
    world_kill(works);
    struct member *second = world_add(&world, "40%", NORMAL, dense);
    world_run(&world, 500 * MS);
    assert_true(first->grants > 0 && second->grants > 0);
    assert_int_equal(arbiter_session_lease(rests->session), LEASE_FREE);
}

static void progress_is_told_of_guests_and_of_sessions_that_take_turns(void **state)
{
    struct program dense = {.piece_ns = 500000};
    struct member *most = world_add(&world, "75%..100%", NORMAL, dense);
    struct member *least = world_add(&world, "25%..100%", NORMAL, dense);
    world_run(&world, 5 * SECOND);
    assert_true(arbiter_session_takes_turns(most->session));
    assert_near(100 * arbiter_session_progress(most->session), 75, 8);
    assert_near(100 * arbiter_session_progress(least->session), 25, 8);
    world_kill(most);
    world_run(&world, 5 * SECOND);
    assert_near(100 * arbiter_session_progress(least->session), 100, 2);
}

static void a_process_is_told_that_others_compute_beside_it(void **state)
{
    struct program program = {.piece_ns = 500000, .burst = 2, .idle_ns = 2 * MS};
    struct member *first = world_add(&world, "10%..50%", NORMAL, program);
    struct member *elsewhere =
        world_add(&world, "10%..50%", NORMAL, (struct program){.piece_ns = 500000, .gpus = 2});
    world_run(&world, SECOND);
    assert_false((first->flags | elsewhere->flags) & WIRE_LEASE_COMPANY);
    struct member *second = world_add(&world, "10%..50%", NORMAL, program);
    world_run(&world, SECOND);
    assert_true(first->flags & second->flags & WIRE_LEASE_COMPANY);
    assert_false(elsewhere->flags & WIRE_LEASE_COMPANY);
    world_kill(second);
    world_run(&world, SECOND);
    assert_false(first->flags & WIRE_LEASE_COMPANY);
}

static void a_measured_process_is_told_so(void **state)
{
    struct program program = {.piece_ns = 500000, .burst = 2, .idle_ns = 2 * MS};
    struct member *member = world_add(&world, "10%..50%", NORMAL, program);
    (void)state;
    world_run(&world, 5 * MS);
    assert_true(member->flags & WIRE_LEASE_MEASURE);
    world_run(&world, SECOND);
    assert_false(member->flags & WIRE_LEASE_MEASURE);
}

/* Before each call it copies, which takes 10 us; the call takes from 20 us to 8 ms by chance, as likely the one as the other
 * half as long. While the gate of that one is closed, its agent guesses (struct member). */
static void run_tailed(struct member *member, const struct member *guesses_without, uint64_t ns)
{
    static uint64_t chance = 1;
    bool copies = false;
    uint64_t seen = 0;
    for (uint64_t end = world.now + ns; world.now < end; world_run(&world, WORLD_STEP_NS)) {
        member->guesses = guesses_without && !guesses_without->gate_open;
        if (member->idle_until == seen) /* of the gap that the last call began */
            continue;
        seen = member->idle_until;
        copies = !copies;
        chance = chance * 6364136223846793005u + 1442695040888963407u;
        double length = 20000 * pow(400, (double)(chance >> 11) / 9007199254740992.0);
        member->program.piece_ns = copies ? WORLD_STEP_NS : (uint64_t)length;
        member->program.idle_ns = copies ? 2 * WORLD_STEP_NS : 500000;
    }
}

/* Percent of the GPU that it used, and was charged, in ten seconds beside a light program. */
static void run_beside_a_light_one(const char *share, bool guesses, double *used, double *charged)
{
    struct member *tailed = world_add(&world, share, NORMAL, (struct program){.piece_ns = MS, .burst = 1});
    struct member *light = world_add(&world, "50%..100%", NORMAL,
                                     (struct program){.piece_ns = 400000, .burst = 1, .idle_ns = MS});
    run_tailed(tailed, guesses ? light : NULL, 2 * SECOND);
    uint64_t used_ns = tailed->device_ns, charged_ns = arbiter_session_used(tailed->session, 0);
    run_tailed(tailed, guesses ? light : NULL, 10 * SECOND);
    *used = (double)(tailed->device_ns - used_ns) / 1e8;
    *charged = (double)(arbiter_session_used(tailed->session, 0) - charged_ns) / 1e8;
}

static void calls_that_are_not_alike_are_charged_beside_a_light_program(void **state)
{
    double used, charged;
    run_beside_a_light_one("0%..100%", false, &used, &charged);
    assert_true(used > 50);
    assert_near(charged, used, 2);
}

/* The maximum of its neighbour closes that one's gate ten times a second: what a guest tells then is of calls that it remembers. */
static void what_a_guest_remembers_of_its_company_is_not_its_cost(void **state)
{
    struct member *light = world_add(&world, "30%..100%", NORMAL,
                                     (struct program){.piece_ns = 60000, .burst = 2, .idle_ns = 500000});
    (void)state;
    world_add(&world, "20%..40%", NORMAL, (struct program){.piece_ns = 500000});
    light->remembers = 0.8;
    world_run(&world, 2 * SECOND);
    uint64_t used_ns = light->device_ns, charged_ns = arbiter_session_used(light->session, 0);
    world_run(&world, 10 * SECOND);
    assert_near((double)(arbiter_session_used(light->session, 0) - charged_ns) / 1e8,
                (double)(light->device_ns - used_ns) / 1e8, 0.5);
}

/* Two stretches differ a little, and none of its calls took much less than the others. */
static void a_light_program_of_which_little_was_measured_is_charged_by_its_calls(void **state)
{
    struct member *tailed =
        world_add(&world, "0%..75%", NORMAL, (struct program){.piece_ns = MS, .burst = 1});
    struct member *light = world_add(&world, "10%..100%", NORMAL,
                                     (struct program){.piece_ns = 400000, .burst = 1, .idle_ns = 3 * MS});
    (void)state;
    light->jitter = 0.04;
    run_tailed(tailed, NULL, SECOND);
    uint64_t used_ns = light->device_ns, charged_ns = arbiter_session_used(light->session, 0);
    run_tailed(tailed, NULL, 2 * SECOND);
    double used = (double)(light->device_ns - used_ns) / 2e7;
    assert_near((double)(arbiter_session_used(light->session, 0) - charged_ns) / 2e7, used, 0.5);
}

/* In percent of the GPU, over ten seconds. */
static void assert_is_charged_for_what_it_used(const struct member *member, double tolerance)
{
    uint64_t used_ns = member->device_ns, charged_ns = arbiter_session_used(member->session, 0);
    world_run(&world, 10 * SECOND);
    assert_near((double)(arbiter_session_used(member->session, 0) - charged_ns) / 1e8,
                (double)(member->device_ns - used_ns) / 1e8, tolerance);
}

/* What each leaves of the time says no more than what was measured of it. */
static void programs_of_calls_that_differ_are_charged_for_what_each_used(void **state)
{
    struct member *often = world_add(
        &world, "10%..100%", NORMAL,
        (struct program){.piece_ns = 30000, .piece_most_ns = 800000, .burst = 6, .idle_ns = 200000});
    struct member *seldom =
        world_add(&world, "10%..100%", NORMAL,
                  (struct program){.piece_ns = 20000, .piece_most_ns = 60000, .burst = 2, .idle_ns = 300000});
    (void)state;
    world_run(&world, 3 * SECOND);
    assert_is_charged_for_what_it_used(often, 3);
    assert_is_charged_for_what_it_used(seldom, 2);
}

/* Its short calls change programs a thousand times a second, and the GPU takes a tenth of a ms each time. */
static void what_changes_of_program_take_is_charged_to_nobody(void **state)
{
    struct member *differs = world_add(
        &world, "10%..100%", NORMAL,
        (struct program){.piece_ns = 20000, .piece_most_ns = 500000, .burst = 1, .idle_ns = 600000});
    struct member *dense = world_add(&world, "50%..100%", NORMAL,
                                     (struct program){.piece_ns = 80000, .burst = 4, .idle_ns = 10000});
    (void)state;
    world.switch_ns = 100000;
    world.waits_are_told = true;
    world_run(&world, 3 * SECOND);
    assert_is_charged_for_what_it_used(differs, 1.5);
    assert_is_charged_for_what_it_used(dense, 1);
}

/* What another one did in its own turn, and is charged for as that ends, was not beside this one. */
static void a_turn_of_calls_that_differ_is_not_charged_less_for_the_turn_before(void **state)
{
    struct member *differs =
        world_add(&world, "20%..100%", NORMAL,
                  (struct program){.piece_ns = 100000, .piece_most_ns = 400000, .says_when_closed = true});
    world_add(&world, "20%..100%", NORMAL, (struct program){.piece_ns = 200000, .says_when_closed = true});
    world_add(&world, "10%..100%", NORMAL,
              (struct program){.piece_ns = 50000, .burst = 4, .idle_ns = 1800000, .says_when_closed = true});
    (void)state;
    world_run(&world, 3 * SECOND);
    assert_is_charged_for_what_it_used(differs, 3);
}

static void a_maximum_holds_for_calls_that_are_not_alike_beside_a_light_program(void **state)
{
    double used, charged;
    run_beside_a_light_one("0%..25%", false, &used, &charged);
    assert_near(used, 25, 1);
    assert_near(charged, used, 0.7);
}

/* Where nothing was measured, agents guess by what they measured before: that is told twice, and known no better. */
static void a_maximum_holds_where_every_other_report_is_a_guess(void **state)
{
    double used, charged;
    run_beside_a_light_one("0%..25%", true, &used, &charged);
    assert_near(used, 25, 1);
}

#define T(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(four_sessions_with_small_kernels_get_what_they_are_due),
        T(four_sessions_with_long_kernels_get_what_they_are_due),
        T(four_sessions_with_kernels_of_any_length_get_what_they_are_due),
        T(four_minima_without_maxima_get_what_they_are_due),
        T(a_process_that_says_when_it_is_done_leaves_the_gpu_no_gap),
        T(a_holder_that_is_wrong_about_when_it_is_done_is_charged_for_what_it_takes),
        T(two_equal_sessions_get_half),
        T(a_ninth_and_a_tenth_are_told_apart),
        T(eight_sessions_get_an_eighth),
        T(nobody_is_starved),
        T(processes_of_a_session_share_what_it_is_due),
        T(more_processes_get_no_more_where_turns_overlap),
        T(processes_that_keep_step_are_charged_for_what_they_did),
        T(processes_that_begin_together_are_charged_for_what_they_did),
        T(processes_that_differ_are_charged_for_what_they_did),
        T(a_session_whose_reports_are_uneven_is_charged_for_its_calls),
        T(no_more_is_charged_than_the_time_that_passed),
        T(a_guest_that_dies_is_not_charged_for_its_gaps),
        T(a_guest_that_dies_long_after_it_has_worked_is_not_charged_for_that),
        T(a_session_without_a_minimum_gets_what_is_not_promised),
        T(a_minimum_that_is_not_used_goes_to_the_others),
        T(a_maximum_is_kept_on_an_idle_gpu),
        T(what_may_be_before_the_gpu_is_the_agents_choice_where_nobody_waits_for_its_end),
        T(what_may_be_before_the_gpu_is_bounded_where_a_maximum_is),
        T(what_a_maximum_leaves_goes_to_the_others),
        T(a_share_that_is_set_owes_nothing_for_before),
        T(two_sessions_that_are_busy_half_the_time_fill_the_gpu),
        T(guests_that_turn_busy_take_turns),
        T(guests_that_together_want_more_than_there_is_keep_their_minima),
        T(guests_that_get_less_than_their_minima_take_turns),
        T(a_guest_that_another_keeps_small_loses_little_where_that_is_tried_again),
        T(sessions_say_why_they_take_turns),
        T(a_session_alone_dense_or_light_says_so),
        T(a_guest_that_was_dense_for_a_moment_is_a_guest_again_soon),
        T(what_a_light_session_was_not_promised_goes_to_the_busy_one),
        T(a_busy_session_gets_its_minimum_beside_one_that_is_not),
        T(a_higher_priority_comes_first),
        T(a_lower_priority_waits_for_those_above),
        T(a_minimum_is_kept_under_a_higher_priority),
        T(a_session_held_still_for_an_endless_burst_goes_on),
        T(minima_of_several_priorities_are_all_kept),
        T(a_minimum_that_was_not_wanted_is_not_made_up_for),
        T(sessions_over_two_gpus_and_over_one_each_get_what_they_are_due),
        T(four_sessions_that_each_use_two_of_four_gpus_all_go_on),
        T(a_session_that_begins_to_use_another_gpu_leases_both),
        T(a_light_program_that_turns_greedy_is_noticed_within_100_ms),
        T(charges_follow_a_program_that_becomes_another),
        T(the_same_pair_fares_the_same_every_time),
        T(a_higher_priority_with_short_gaps_leaves_the_gpu_to_others),
        T(others_go_on_to_hold_still_for_bursts),
        T(a_stopped_holder_keeps_nobody_for_long),
        T(work_that_does_not_drain_runs_beside_the_others),
        T(an_overrun_is_made_up_for),
        T(what_a_session_took_its_user_s_next_ones_owe),
        T(ever_new_users_do_not_take_a_minimum),
        T(newcomers_that_behave_do_not_take_a_minimum),
        T(a_priority_that_changes_takes_no_debt_away),
        T(a_process_moves_to_another_gpu_in_its_turn),
        T(a_very_long_piece_of_work_is_believed),
        T(a_session_that_says_less_than_is_seen_is_charged_by_what_is_seen),
        T(honest_programs_are_believed_whatever_they_do),
        T(nobody_is_waited_for_longer_than_its_gate_was_open),
        T(random_deaths_and_stops_leave_the_others_at_their_share),
        T(a_measured_process_is_told_so),
        T(calls_that_are_not_alike_are_charged_beside_a_light_program),
        T(what_a_guest_remembers_of_its_company_is_not_its_cost),
        T(a_light_program_of_which_little_was_measured_is_charged_by_its_calls),
        T(programs_of_calls_that_differ_are_charged_for_what_each_used),
        T(what_changes_of_program_take_is_charged_to_nobody),
        T(a_turn_of_calls_that_differ_is_not_charged_less_for_the_turn_before),
        T(a_maximum_holds_for_calls_that_are_not_alike_beside_a_light_program),
        T(a_maximum_holds_where_every_other_report_is_a_guess),
        T(a_maximum_is_kept_by_a_process_that_tells_nothing),
        T(what_was_lost_while_it_was_measured_makes_no_guest_needy),
        T(a_service_that_answers_all_its_requests_is_a_guest),
        T(a_service_that_cannot_answer_all_its_requests_takes_turns),
        T(the_quantum_follows_the_gap),
        T(the_quantum_does_not_follow_what_nobody_waits_for),
        T(without_shares_nobody_is_gated),
        T(the_mode_says_whether_anybody_is_kept_waiting),
        T(progress_is_told_of_guests_and_of_sessions_that_take_turns),
        T(a_process_is_told_that_others_compute_beside_it),
        T(a_process_away_is_given_nothing_and_owed_nothing),
        T(a_process_away_keeps_no_session_waiting_as_shares_begin_to_count),
        T(a_process_without_work_blocks_no_session_once_the_rest_of_its_own_has_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
