/* Whose memory is on the card: who leaves for whom, and when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/residency/residency.h"
#include "daemon/residency/stays.h"

#define SECOND UINT64_C(1000000000)
#define NOW (1000 * SECOND)
static const struct residency_turns turns = {SECOND, 60 * SECOND};

/* Parts of one-GPU sessions: what is here, and missing. */
static struct residency_part parts[8][3];

/* On the card since `came_s` seconds ago, without work for `idle_s` (0: it has some). */
static struct residency_session resident(unsigned number, uint64_t here, uint64_t came_s, uint64_t idle_s)
{
    parts[number][0] = (struct residency_part){.gpu = 0, .here_bytes = here};
    return (struct residency_session){
        .parts = parts[number],
        .part_count = 1,
        .can_leave = true,
        .priority = 1,
        .came_ns = NOW - came_s * SECOND,
        .idle_since_ns = idle_s ? NOW - idle_s * SECOND : 0,
    };
}

static struct residency_session waiting(unsigned number, uint64_t missing, uint64_t since_s)
{
    parts[number][0] = (struct residency_part){.gpu = 0, .missing_bytes = missing};
    return (struct residency_session){.parts = parts[number],
                                      .part_count = 1,
                                      .waits = true,
                                      .priority = 1,
                                      .waits_since_ns = NOW - since_s * SECOND};
}

static uint64_t decide(struct residency_session *sessions, unsigned count, int64_t free_bytes)
{
    const int64_t free[RESIDENCY_PLACES] = {free_bytes, free_bytes};
    return residency_decide(sessions, count, free, &turns, NOW);
}

static uint64_t turn_of(const struct residency_session *sessions, unsigned number, unsigned count)
{
    struct residency_crowd crowds[8];
    assert_true(residency_find_crowds(sessions, count, crowds));
    return residency_turn_ns(&sessions[number], &crowds[number], &turns);
}

static void a_session_that_fits_comes_and_none_leaves(void **state)
{
    struct residency_session sessions[] = {resident(0, 50, 100, 100), waiting(1, 30, 1)};
    decide(sessions, 2, 30);
    assert_int_equal(sessions[0].verdict, RESIDENCY_STAYS);
    assert_int_equal(sessions[1].verdict, RESIDENCY_COMES);
}

static void the_longest_idle_leaves_first_and_just_enough(void **state)
{
    struct residency_session sessions[] = {resident(0, 20, 100, 10), resident(1, 20, 100, 30),
                                           resident(2, 20, 200, 0), waiting(3, 25, 1)};
    decide(sessions, 4, 5);
    assert_int_equal(sessions[0].verdict, RESIDENCY_STAYS);
    assert_int_equal(sessions[1].verdict, RESIDENCY_LEAVES);
    assert_int_equal(sessions[2].verdict, RESIDENCY_STAYS);
    assert_int_equal(sessions[3].verdict, RESIDENCY_STAYS); /* until there is room */
}

static void small_ones_are_spared_where_a_large_one_is_enough(void **state)
{
    struct residency_session sessions[] = {resident(0, 5, 100, 30), resident(1, 40, 100, 20),
                                           waiting(2, 40, 1)};
    decide(sessions, 3, 0);
    assert_int_equal(sessions[0].verdict, RESIDENCY_STAYS);
    assert_int_equal(sessions[1].verdict, RESIDENCY_LEAVES);
}

static void a_turn_is_kept(void **state)
{
    struct residency_session sessions[] = {resident(0, 50, 3, 0), waiting(1, 50, 2)};
    sessions[0].move_ns = SECOND; /* its turn is nine seconds */
    assert_int_equal(decide(sessions, 2, 0), NOW + 6 * SECOND);
    assert_int_equal(sessions[0].verdict, RESIDENCY_STAYS);
    sessions[0].came_ns = NOW - 9 * SECOND;
    decide(sessions, 2, 0);
    assert_int_equal(sessions[0].verdict, RESIDENCY_LEAVES);
}

static void a_session_that_pauses_now_and_then_may_work_until_it_does(void **state)
{
    struct residency_session sessions[] = {resident(0, 50, 9, 0), waiting(1, 50, 2)};
    sessions[0].move_ns = SECOND; /* its turn is nine seconds */
    sessions[0].paused_ns = NOW - 9 * SECOND;
    sessions[0].held_ns = 18 * SECOND; /* two turns more than the other one */
    assert_int_equal(decide(sessions, 2, 0), NOW + 9 * SECOND / 10);
    assert_int_equal(sessions[0].verdict, RESIDENCY_STAYS);
    sessions[0].idle_since_ns = NOW; /* it does */
    decide(sessions, 2, 0);
    assert_int_equal(sessions[0].verdict, RESIDENCY_LEAVES);
    sessions[0].idle_since_ns = 0, sessions[0].came_ns = NOW - 10 * SECOND; /* it did not in time */
    decide(sessions, 2, 0);
    assert_int_equal(sessions[0].verdict, RESIDENCY_LEAVES);
    sessions[0].came_ns = NOW - 9 * SECOND,
    sessions[0].paused_ns = NOW - 80 * SECOND; /* it has not for long */
    decide(sessions, 2, 0);
    assert_int_equal(sessions[0].verdict, RESIDENCY_LEAVES);
}

static void a_session_that_pauses_may_hold_two_turns_more_than_others(void **state)
{
    struct residency_session sessions[] = {resident(0, 50, 9, 0), waiting(1, 50, 2), waiting(2, 50, 2)};
    sessions[0].move_ns = SECOND; /* its turn is nine seconds */
    sessions[0].paused_ns = NOW - 9 * SECOND;
    sessions[0].held_ns = 109 * SECOND, sessions[1].held_ns = 100 * SECOND,
    sessions[2].held_ns = 200 * SECOND;
    assert_int_equal(decide(sessions, 3, 0), NOW + 9 * SECOND);
    sessions[0].held_ns = 114 * SECOND;
    assert_int_equal(decide(sessions, 3, 0), NOW + 4 * SECOND);
    sessions[0].came_ns = NOW - 10 * SECOND, sessions[0].held_ns = 118 * SECOND; /* two turns */
    decide(sessions, 3, 0);
    assert_int_equal(sessions[0].verdict, RESIDENCY_LEAVES);
    sessions[0].came_ns = NOW - 3 * SECOND; /* it may be longer, and that is not told before */
    assert_int_equal(decide(sessions, 3, 0), NOW + 6 * SECOND);
    sessions[0].came_ns = NOW - 18 * SECOND, sessions[0].held_ns = 0; /* nobody works longer than two */
    decide(sessions, 3, 0);
    assert_int_equal(sessions[0].verdict, RESIDENCY_LEAVES);
    sessions[0].came_ns = NOW - 9 * SECOND, sessions[0].paused_ns = 0; /* it was not seen to pause */
    decide(sessions, 3, 0);
    assert_int_equal(sessions[0].verdict, RESIDENCY_LEAVES);
}

static void a_new_session_may_pause_soon(void **state)
{
    struct residency_session sessions[] = {resident(0, 50, 9, 0), waiting(1, 50, 2)};
    sessions[0].move_ns = SECOND;
    sessions[0].began_ns = NOW - 9 * SECOND;
    assert_int_equal(decide(sessions, 2, 0), NOW + 9 * SECOND / 10);
    sessions[0].began_ns = NOW - 72 * SECOND;
    decide(sessions, 2, 0);
    assert_int_equal(sessions[0].verdict, RESIDENCY_LEAVES);
}

static void turns_have_bounds(void **state)
{
    struct residency_session session = {.move_ns = 0};
    assert_int_equal(turn_of(&session, 0, 1), SECOND);
    session.move_ns = 100 * SECOND;
    assert_int_equal(turn_of(&session, 0, 1), 60 * SECOND);
    session.move_ns = 2 * SECOND;
    assert_int_equal(turn_of(&session, 0, 1), 18 * SECOND);
}

static void nobody_with_work_leaves_for_a_lower_priority(void **state)
{
    struct residency_session sessions[] = {resident(0, 50, 100, 0), resident(1, 50, 100, 0),
                                           waiting(2, 50, 2)};
    sessions[0].priority = 2;
    decide(sessions, 3, 0);
    assert_int_equal(sessions[0].verdict, RESIDENCY_STAYS);
    assert_int_equal(sessions[1].verdict, RESIDENCY_LEAVES);
    sessions[1].priority = 2;
    assert_int_equal(decide(sessions, 3, 0), UINT64_MAX);
    assert_int_equal(sessions[1].verdict, RESIDENCY_STAYS);
    sessions[1].idle_since_ns = NOW - SECOND;
    decide(sessions, 3, 0);
    assert_int_equal(sessions[1].verdict, RESIDENCY_LEAVES);
}

static void nobody_leaves_in_vain(void **state)
{
    struct residency_session sessions[] = {resident(0, 20, 100, 50), waiting(1, 50, 2)};
    decide(sessions, 2, 10);
    assert_int_equal(sessions[0].verdict, RESIDENCY_STAYS);
}

static void room_that_is_being_made_is_not_made_twice(void **state)
{
    struct residency_session sessions[] = {resident(0, 50, 100, 0), resident(1, 50, 100, 50),
                                           waiting(2, 50, 2)};
    sessions[0].can_leave = false;
    sessions[0].is_leaving = true;
    decide(sessions, 3, 0);
    assert_int_equal(sessions[1].verdict, RESIDENCY_STAYS);
}

static void the_queue_is_kept_and_what_fits_behind_it_comes(void **state)
{
    struct residency_session sessions[] = {resident(0, 80, 0, 0), waiting(1, 60, 9), waiting(2, 15, 5),
                                           waiting(3, 5, 7)};
    decide(sessions, 4, 20);
    assert_int_equal(sessions[1].verdict, RESIDENCY_STAYS);
    assert_int_equal(sessions[2].verdict, RESIDENCY_STAYS); /* it would take what the first waits for */
    assert_int_equal(sessions[3].verdict, RESIDENCY_STAYS);
    sessions[1].priority = 0;
    decide(sessions, 4, 20);
    assert_int_equal(sessions[3].verdict, RESIDENCY_COMES);
    assert_int_equal(sessions[2].verdict, RESIDENCY_COMES);
    assert_int_equal(sessions[1].verdict, RESIDENCY_STAYS);
}

static void only_those_on_the_right_gpu_leave(void **state)
{
    struct residency_session sessions[] = {resident(0, 50, 100, 90), resident(1, 50, 100, 10),
                                           waiting(2, 40, 2)};
    parts[1][0].gpu = parts[2][0].gpu = 1;
    decide(sessions, 3, 0);
    assert_int_equal(sessions[0].verdict, RESIDENCY_STAYS);
    assert_int_equal(sessions[1].verdict, RESIDENCY_LEAVES);
}

static void promised_shares_are_kept_by_the_length_of_turns(void **state)
{
    struct residency_session sessions[] = {resident(0, 50, 3, 0), waiting(1, 50, 2), waiting(2, 50, 2)};
    assert_int_equal(turn_of(sessions, 0, 3), SECOND);
    sessions[0].min_share = 7000; /* a tenth each is left */
    assert_int_equal(turn_of(sessions, 0, 3), 8 * SECOND);
    assert_int_equal(turn_of(sessions, 1, 3), SECOND);
    sessions[2].min_share = 1000; /* and two fifteenths of the rest */
    assert_in_range(turn_of(sessions, 2, 3), 5 * SECOND / 2, SECOND * 5 / 2 + 1000);
    sessions[0].min_share = 0, sessions[1].waits = false; /* not in its way now */
    assert_int_equal(turn_of(sessions, 0, 3), SECOND);
}

static void a_session_that_is_owed_comes_before_a_higher_priority(void **state)
{
    struct residency_session sessions[] = {resident(0, 50, 100, 0), waiting(1, 50, 2)};
    sessions[0].priority = 2;
    sessions[1].min_share = 2500;
    decide(sessions, 2, 0);
    assert_int_equal(sessions[0].verdict, RESIDENCY_STAYS);
    sessions[1].waits_since_ns = NOW - 10 * SECOND;
    decide(sessions, 2, 0);
    assert_int_equal(sessions[0].verdict, RESIDENCY_LEAVES);
    sessions[0].came_ns = NOW; /* not within its turn */
    decide(sessions, 2, 0);
    assert_int_equal(sessions[0].verdict, RESIDENCY_STAYS);
}

static void the_next_in_line_comes_ahead_into_free_room(void **state)
{
    struct residency_session sessions[] = {resident(0, 60, 0, 0), waiting(1, 60, 5), waiting(2, 60, 4)};
    sessions[1].can_come_ahead = sessions[2].can_come_ahead = true;
    decide(sessions, 3, 30);
    assert_int_equal(sessions[1].verdict, RESIDENCY_COMES_AHEAD);
    assert_int_equal(parts[1][0].ahead_bytes, 30);
    assert_int_equal(sessions[2].verdict, RESIDENCY_STAYS);
}

static void nobody_comes_ahead_where_another_one_comes(void **state)
{
    struct residency_session sessions[] = {resident(0, 60, 0, 0), waiting(1, 60, 5), waiting(2, 20, 4)};
    sessions[0].is_coming = true;
    sessions[0].can_leave = false;
    sessions[1].can_come_ahead = sessions[2].can_come_ahead = true;
    decide(sessions, 3, 30);
    assert_int_equal(sessions[1].verdict, RESIDENCY_STAYS);
    sessions[0].is_coming = false;
    sessions[1].is_coming = true; /* some of it, so that it takes no more room than it has now */
    sessions[1].can_come_ahead = false;
    parts[1][0].missing_bytes = 10;
    sessions[0].can_leave = true;
    decide(sessions, 3, 5);
    assert_int_equal(sessions[2].verdict, RESIDENCY_STAYS);
    sessions[1].waits = sessions[1].is_coming = false;
    decide(sessions, 3, 5);
    assert_int_equal(sessions[2].verdict, RESIDENCY_COMES_AHEAD);
}

static void what_is_missing_elsewhere_comes_ahead_there(void **state)
{
    struct residency_session sessions[] = {resident(0, 60, 0, 0), waiting(1, 60, 5)};
    const int64_t free[RESIDENCY_PLACES] = {20, 90, 90};
    for (unsigned gpu = 1; gpu < 3; gpu++)
        parts[1][gpu] =
            (struct residency_part){.gpu = gpu, .here_bytes = 50, .missing_bytes = gpu == 1 ? 30 : 0};
    sessions[1].part_count = 3;
    sessions[1].can_come_ahead = true;
    residency_decide(sessions, 2, free, &turns, NOW);
    assert_int_equal(sessions[1].verdict, RESIDENCY_COMES_AHEAD);
    assert_int_equal(parts[1][0].ahead_bytes, 20);
    assert_int_equal(parts[1][1].ahead_bytes, 90);
    assert_int_equal(parts[1][2].ahead_bytes, 0); /* it is all there */
}

static void a_session_that_waits_for_the_right_to_work_comes_ahead(void **state)
{
    struct residency_session sessions[] = {resident(0, 60, 0, 0), waiting(1, 30, 5)};
    const int64_t free[RESIDENCY_PLACES] = {40};
    for (unsigned i = 0; i < 2; i++) {
        parts[i][1] =
            (struct residency_part){.gpu = RESIDENCY_GPUS, .here_bytes = i == 0, .missing_bytes = i == 1};
        sessions[i].part_count = 2;
    }
    sessions[1].can_come_ahead = true;
    residency_decide(sessions, 2, free, &turns, NOW);
    assert_int_equal(sessions[0].verdict, RESIDENCY_STAYS);
    assert_int_equal(sessions[1].verdict, RESIDENCY_COMES_AHEAD);
    assert_int_equal(parts[1][0].ahead_bytes, 40);
}

static void what_came_ahead_makes_room_for_the_session_that_has_the_turn(void **state)
{
    struct residency_session sessions[] = {resident(0, 60, 0, 0), waiting(1, 30, 5)};
    sessions[1].can_come_ahead = sessions[1].can_leave = sessions[1].is_ahead = true;
    parts[1][0].here_bytes = 30;
    parts[0][0].missing_bytes = 20; /* it allocates */
    sessions[0].waits = true;
    sessions[0].waits_since_ns = NOW;
    decide(sessions, 2, 10);
    assert_int_equal(sessions[1].verdict, RESIDENCY_LEAVES);
    sessions[0].came_ns = NOW - 5 * SECOND; /* its turn is over, and the other one has waited longer */
    decide(sessions, 2, 10);
    assert_int_equal(sessions[1].verdict, RESIDENCY_COMES_AHEAD);
    assert_int_equal(sessions[0].verdict, RESIDENCY_LEAVES);
}

static void where_more_is_there_than_fits_the_last_to_come_leaves(void **state)
{
    struct residency_session sessions[] = {resident(0, 60, 100, 0), resident(1, 60, 5, 0),
                                           resident(2, 10, 50, 3)};
    decide(sessions, 3, -20);
    assert_int_equal(sessions[0].verdict, RESIDENCY_STAYS);
    assert_int_equal(sessions[1].verdict, RESIDENCY_LEAVES);
    assert_int_equal(sessions[2].verdict, RESIDENCY_LEAVES); /* without work, it goes first */
}

static void a_waiting_session_is_told_when_it_should_be_there(void **state)
{
    struct residency_session sessions[] = {resident(0, 50, 1, 0), waiting(1, 50, 9), waiting(2, 50, 8)};
    for (unsigned i = 0; i < 3; i++)
        sessions[i].move_ns = sessions[i].come_ns = SECOND;
    decide(sessions, 3, 0); /* the turn of 9 s ends in 8 */
    assert_int_equal(sessions[1].due_ns, NOW + 9 * SECOND);
    assert_int_equal(sessions[2].due_ns, NOW + 19 * SECOND);
    decide(sessions, 3, 50);
    assert_int_equal(sessions[1].due_ns, NOW + SECOND);
    sessions[0].can_leave = false; /* it comes itself, for a second, and has all of its turn before it */
    sessions[0].is_coming = true;
    decide(sessions, 3, 0);
    assert_int_equal(sessions[1].due_ns, NOW + 11 * SECOND);
    sessions[0].is_coming = false;
    sessions[0].is_leaving = true; /* for the first in line: the next one comes after that one's turn */
    decide(sessions, 3, 0);
    assert_int_equal(sessions[1].due_ns, NOW + SECOND);
    assert_int_equal(sessions[2].due_ns, NOW + 11 * SECOND);
    sessions[0].can_leave = true;
    sessions[0].is_leaving = false;
    sessions[0].priority = 3;
    decide(sessions, 3, 0);
    assert_int_equal(sessions[1].due_ns, 0);
}

/* With every reason, and as many bytes as numbers are long. */
static void all_that_stays_is_told_whole(void **state)
{
    uint64_t bytes[WIRE_STAYS_COUNT];
    char text[STAYS_TEXT];
    for (unsigned why = 0; why < WIRE_STAYS_COUNT; why++)
        bytes[why] = (UINT64_C(1) << 59) - 1 - why;
    stays_text(bytes, text, sizeof(text));
    assert_int_equal(text[strlen(text) - 1], ')');
    for (unsigned why = 0; why < WIRE_STAYS_COUNT; why++)
        assert_true(why == WIRE_STAYS_CONTEXT || strstr(text, wire_stays_text(why)));
}

/* So many sessions that work with their square would last for minutes. */
#define CROWD 20000u

static struct residency_session crowd[CROWD];
static struct residency_part crowd_parts[CROWD][2];

/* Half have some here, and are in their turn, have no work or have come ahead; half wait, for more than there is. */
static void gather(unsigned kinds)
{
    for (unsigned i = 0; i < CROWD; i++) {
        bool waits = i % 2;
        for (unsigned j = 0; j < 2; j++)
            crowd_parts[i][j] = (struct residency_part){.gpu = i / 2 % kinds * (j + 1) % 8,
                                                        .here_bytes = waits ? 0 : 1 + i % 7,
                                                        .missing_bytes = waits ? 1 + i % 3 : 0};
        crowd[i] = (struct residency_session){
            .parts = crowd_parts[i],
            .part_count = kinds > 1 ? 2 : 1,
            .can_leave = !waits,
            .can_come_ahead = waits,
            .waits = waits,
            .priority = i % 5,
            .min_share = i % 11 ? 0 : 10,
            .waits_since_ns = waits ? NOW - i % 1000 * SECOND : 0,
            .came_ns = NOW - i % 100 * SECOND / 10,
            .idle_since_ns = i % 3 || waits ? 0 : NOW - i,
            .held_ns = i,
        };
    }
}

static void many_thousands_are_decided_about_at_once(void **state)
{
    const int64_t few[RESIDENCY_PLACES] = {1, 1, 1, 1, 1, 1, 1, 1}, many[RESIDENCY_PLACES] = {CROWD},
                  over[RESIDENCY_PLACES] = {-(int64_t)CROWD};
    const int64_t *const all[] = {few, many, over};
    for (unsigned i = 0; i < 6; i++) {
        gather(i < 3 ? 1 : 8);
        assert_int_not_equal(residency_decide(crowd, CROWD, all[i % 3], &turns, NOW), 0);
        unsigned verdicts[4] = {0};
        for (unsigned j = 0; j < CROWD; j++)
            verdicts[crowd[j].verdict]++;
        assert_int_not_equal(verdicts[i % 3 == 2 ? RESIDENCY_LEAVES : RESIDENCY_COMES], 0);
        assert_int_not_equal(verdicts[RESIDENCY_STAYS], 0);
    }
}

/* The first lacks room, and could itself make some for the second. */
static void a_session_without_room_makes_some_for_the_next(void **state)
{
    struct residency_session sessions[] = {resident(0, 60, 100, 0), waiting(1, 30, 1), waiting(2, 30, 0)};
    parts[0][0].missing_bytes = 50;
    sessions[0].waits = true;
    sessions[0].waits_since_ns = NOW - 9 * SECOND;
    decide(sessions, 3, 40);
    assert_int_equal(sessions[0].verdict, RESIDENCY_LEAVES);
    assert_int_equal(sessions[1].verdict, RESIDENCY_STAYS);
    assert_int_equal(sessions[2].verdict, RESIDENCY_STAYS);
}

static void a_session_that_used_no_room_comes_last(void **state)
{
    struct residency_session sessions[] = {waiting(0, 50, 9), waiting(1, 50, 1)};
    sessions[0].comes_last = true;
    sessions[0].priority = 2;
    decide(sessions, 2, 50);
    assert_int_equal(sessions[0].verdict, RESIDENCY_STAYS);
    assert_int_equal(sessions[1].verdict, RESIDENCY_COMES);
}

static void many_small_ones_leave_for_a_large_one(void **state)
{
    gather(1);
    for (unsigned i = 0; i < CROWD; i++)
        crowd[i].waits = false;
    crowd[1].waits = true;
    crowd_parts[1][0].missing_bytes = 1000;
    const int64_t none[RESIDENCY_PLACES] = {0};
    residency_decide(crowd, CROWD, none, &turns, NOW);
    uint64_t left = 0;
    for (unsigned i = 0; i < CROWD; i++)
        left += crowd[i].verdict == RESIDENCY_LEAVES ? crowd_parts[i][0].here_bytes : 0;
    assert_in_range(left, 1000, 1007);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_stays_is_told_whole),
        cmocka_unit_test(a_session_that_fits_comes_and_none_leaves),
        cmocka_unit_test(the_longest_idle_leaves_first_and_just_enough),
        cmocka_unit_test(small_ones_are_spared_where_a_large_one_is_enough),
        cmocka_unit_test(a_turn_is_kept),
        cmocka_unit_test(a_session_that_pauses_now_and_then_may_work_until_it_does),
        cmocka_unit_test(a_session_that_pauses_may_hold_two_turns_more_than_others),
        cmocka_unit_test(a_new_session_may_pause_soon),
        cmocka_unit_test(turns_have_bounds),
        cmocka_unit_test(nobody_with_work_leaves_for_a_lower_priority),
        cmocka_unit_test(nobody_leaves_in_vain),
        cmocka_unit_test(room_that_is_being_made_is_not_made_twice),
        cmocka_unit_test(the_queue_is_kept_and_what_fits_behind_it_comes),
        cmocka_unit_test(only_those_on_the_right_gpu_leave),
        cmocka_unit_test(promised_shares_are_kept_by_the_length_of_turns),
        cmocka_unit_test(a_session_that_is_owed_comes_before_a_higher_priority),
        cmocka_unit_test(the_next_in_line_comes_ahead_into_free_room),
        cmocka_unit_test(nobody_comes_ahead_where_another_one_comes),
        cmocka_unit_test(what_is_missing_elsewhere_comes_ahead_there),
        cmocka_unit_test(a_session_that_waits_for_the_right_to_work_comes_ahead),
        cmocka_unit_test(what_came_ahead_makes_room_for_the_session_that_has_the_turn),
        cmocka_unit_test(where_more_is_there_than_fits_the_last_to_come_leaves),
        cmocka_unit_test(a_waiting_session_is_told_when_it_should_be_there),
        cmocka_unit_test(many_thousands_are_decided_about_at_once),
        cmocka_unit_test(a_session_without_room_makes_some_for_the_next),
        cmocka_unit_test(a_session_that_used_no_room_comes_last),
        cmocka_unit_test(many_small_ones_leave_for_a_large_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
