/* Memory that several processes hold is charged once, until the last of them lets go or has died. */
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

#define NAME 0xfeed

static uint32_t joined(const struct ledger_slot *slot, uint64_t name, bool expect_new)
{
    bool is_new;
    int joint = ledger_joint_join(slot, name, true, &is_new);
    assert_true(joint >= 0);
    assert_int_equal(is_new, expect_new);
    return (uint32_t)joint;
}

static void joint_memory_is_charged_once_and_until_its_last_holder_leaves(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot one = fixture_slot(fixture), other = fixture_slot(fixture);
    uint32_t joint = joined(&one, NAME, true);
    assert_true(ledger_joint_reserve(&one, joint, 1, 600));
    assert_int_equal(joined(&other, NAME, false), joint);
    assert_true(ledger_joint_reserve(&other, joint, 1, 600));
    assert_int_equal(ledger_used(&fixture->ledger, 1), 600);
    assert_int_equal(ledger_used(&fixture->ledger, 0), 0);
    assert_int_equal(ledger_slot_used(&one, 1), 0);
    assert_int_equal(ledger_slot_shown_bytes(fixture->usage, one.index, 1), 600);
    assert_int_equal(ledger_slot_shown_bytes(fixture->usage, other.index, 1), 0);
    assert_true(ledger_joint_reserve(&other, joint, 1, 700));
    assert_true(ledger_joint_reserve(&one, joint, 1, 650));
    assert_int_equal(ledger_joint_bytes(fixture->usage, joint, 1), 700);
    ledger_joint_leave(&one, joint);
    assert_int_equal(ledger_used(&fixture->ledger, 1), 700);
    assert_int_equal(ledger_slot_shown_bytes(fixture->usage, other.index, 1), 700);
    ledger_joint_leave(&one, joint); /* holds nothing */
    assert_int_equal(ledger_used(&fixture->ledger, 1), 700);
    ledger_joint_leave(&other, joint);
    assert_int_equal(ledger_used(&fixture->ledger, 1), 0);
    bool is_new;
    assert_int_equal(ledger_joint_join(&one, NAME, false, &is_new), -1);
}

static void joint_memory_counts_at_requests_and_is_refused_like_them(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot one = fixture_slot(fixture), other = fixture_slot(fixture);
    uint32_t joint = joined(&one, NAME, true), second = joined(&one, NAME + 1, true);
    assert_true(ledger_joint_reserve(&one, joint, 0, GIB - 100));
    assert_false(ledger_reserve(&other, 0, 101));
    assert_false(ledger_joint_reserve(&one, second, 0, 101));
    assert_false(ledger_joint_reserve(&one, joint, 0, GIB + 1));
    assert_int_equal(ledger_used(&fixture->ledger, 0), GIB - 100);
    assert_true(ledger_reserve(&other, 0, 60));
    assert_true(ledger_joint_reserve(&one, second, 0, 40));
    assert_false(ledger_reserve(&one, 0, 1));
    ledger_joint_charge(&one, second, 0, 90);
    assert_int_equal(ledger_used(&fixture->ledger, 0), GIB + 50);
    assert_int_equal(ledger_slot_counts(fixture->usage, one.index, 0).refused, 3);
    ledger_joint_leave(&one, joint);
    assert_int_equal(ledger_used(&fixture->ledger, 0), 150);
}

static void a_dead_holder_leaves_joint_memory_to_the_others_and_the_last_frees_it(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot one = fixture_slot(fixture), other = fixture_slot(fixture);
    uint64_t recovered[LEDGER_GPUS] = {0};
    uint32_t joint = joined(&one, NAME, true);
    joined(&one, NAME, false);
    joined(&other, NAME, false);
    assert_true(ledger_joint_reserve(&one, joint, 0, 500));
    assert_true(ledger_slot_clear(fixture->usage, one.index, recovered));
    assert_int_equal(recovered[0], 0);
    assert_int_equal(ledger_used(&fixture->ledger, 0), 500);
    one = fixture_slot(fixture); /* the slot's next owner holds nothing */
    ledger_joint_leave(&one, joint);
    assert_int_equal(ledger_used(&fixture->ledger, 0), 500);
    assert_true(ledger_slot_clear(fixture->usage, other.index, recovered));
    assert_int_equal(recovered[0], 500);
    /* Somebody else may have a descriptor: the daemon looks. */
    assert_int_equal(ledger_used(&fixture->ledger, 0), 500);
    assert_int_equal(ledger_left(fixture->usage, 0), 500);
    assert_int_equal(ledger_left_take(fixture->usage, 0, ledger_let_go_total(fixture->usage, 0)), 500);
    ledger_left_set(fixture->usage, 0, 0);
    assert_int_equal(ledger_used(&fixture->ledger, 0), 0);
}

static void what_is_let_go_of_counts_until_the_daemon_says_otherwise(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture);
    uint32_t joint = joined(&slot, NAME, true);
    assert_true(ledger_joint_reserve(&slot, joint, 0, GIB - 100));
    ledger_joint_let_go(&slot, joint);
    assert_int_equal(ledger_used(&fixture->ledger, 0), GIB - 100);
    assert_false(ledger_reserve(&slot, 0, 101));
    uint64_t total = ledger_let_go_total(fixture->usage, 0);
    ledger_let_go(fixture->usage, 0, 60); /* after the daemon's look */
    assert_int_equal(ledger_left_take(fixture->usage, 0, total), GIB - 100);
    assert_int_equal(ledger_left_take(fixture->usage, 0, 0), GIB - 100); /* a look that began before */
    ledger_left_set(fixture->usage, 0, 30);
    assert_int_equal(ledger_used(&fixture->ledger, 0), 90);
    assert_true(ledger_reserve(&slot, 0, GIB - 90));
}

/* Each state that a process leaves which dies between two steps of making, joining or leaving. */
static void what_a_death_left_half_done_is_repaired_by_the_reaper(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot dead = fixture_slot(fixture), other = fixture_slot(fixture);
    struct word128 *entry = &fixture->usage->owners[LEDGER_SLOTS];
    for (unsigned step = 0; step < 3; step++) {
        uint32_t joint = joined(&other, NAME, true);
        assert_int_equal(joint, 0);
        assert_true(ledger_joint_reserve(&other, joint, 0, 500));
        uint64_t generation = usage_owner_generation(entry->high);
        if (step == 0) { /* left, but not cleared */
            fixture->usage->holders[0].words[0] = 0;
        } else if (step == 1) { /* begun to clear */
            fixture->usage->holders[0].words[0] = 0;
            entry->high = usage_owner_high(USAGE_CLEARING, generation, 1);
        } else { /* put up a candidate, with its hold */
            ledger_joint_leave(&other, joint);
            *entry =
                (struct word128){.low = NAME, .high = usage_owner_high(USAGE_CANDIDATE, generation + 1, 0)};
            fixture->usage->holders[0].words[0] = (uint64_t)(dead.index + 1) << 32 | dead.generation;
        }
        assert_true(ledger_slot_clear(fixture->usage, dead.index, NULL));
        assert_int_equal(ledger_used(&fixture->ledger, 0), ledger_left(fixture->usage, 0));
        assert_int_equal(usage_owner_state(entry->high), USAGE_FREE);
        assert_int_equal(fixture->usage->holders[0].words[0], 0);
        dead = fixture_slot(fixture);
    }
}

static void a_candidate_that_its_maker_left_is_in_no_session_s_way(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture);
    fixture->usage->joint_marked = 1;
    fixture->usage->owners[LEDGER_SLOTS] =
        (struct word128){.low = NAME, .high = usage_owner_high(USAGE_CANDIDATE, 9, 0)};
    assert_int_equal(joined(&slot, NAME, true), 1);
    assert_int_equal(usage_owner_state(fixture->usage->owners[LEDGER_SLOTS].high), USAGE_FREE);
}

static void without_room_nothing_is_joint(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture);
    bool is_new;
    for (unsigned i = 0; i < LEDGER_JOINT_PLACES; i++)
        joined(&slot, NAME + i, true);
    assert_int_equal(ledger_joint_join(&slot, NAME + LEDGER_JOINT_PLACES, true, &is_new), -1);
    ledger_joint_leave(&slot, 100);
    assert_int_equal(joined(&slot, NAME + LEDGER_JOINT_PLACES, true), 100);
    for (unsigned i = 1; i < LEDGER_JOINT_HOLDERS; i++)
        joined(&slot, NAME, false);
    assert_int_equal(ledger_joint_join(&slot, NAME, true, &is_new), -1);
    assert_int_equal(ledger_joint_join(&slot, 0, true, &is_new), -1);
}

#define RACERS 4
#define ROUNDS 5000

struct racer {
    struct ledger_slot slot;
    pthread_t thread;
    _Atomic uint64_t *together; /* of NAME: {joint + 1:32, holders:32}; 0: nobody holds it */
    uint64_t wrong;
};

/* Whoever holds the joint place of the name notes which; all who hold it at once must have the same one. */
static void *race(void *argument)
{
    struct racer *racer = argument;
    for (unsigned round = 0; round < ROUNDS; round++) {
        bool is_new;
        /* Others' places come and go before and behind it. */
        int noise =
            ledger_joint_join(&racer->slot, NAME + 1 + (racer->slot.index + round) % 3, true, &is_new);
        int joint = ledger_joint_join(&racer->slot, NAME, true, &is_new);
        if (joint < 0)
            continue; /* as it never came to rest */
        uint64_t seen = atomic_load(racer->together), next;
        do {
            if (seen && (seen >> 32) - 1 != (uint64_t)joint)
                racer->wrong++;
            next = ((uint64_t)joint + 1) << 32 | ((seen & UINT32_MAX) + 1);
        } while (!atomic_compare_exchange_weak(racer->together, &seen, next));
        if (!ledger_joint_reserve(&racer->slot, (uint32_t)joint, 0, 100) ||
            ledger_joint_bytes(racer->slot.ledger.usage, (uint32_t)joint, 0) != 100)
            racer->wrong++;
        do
            next = (seen & UINT32_MAX) == 1 ? 0 : seen - 1;
        while (!atomic_compare_exchange_weak(racer->together, &seen, next));
        ledger_joint_leave(&racer->slot, (uint32_t)joint);
        if (noise >= 0)
            ledger_joint_leave(&racer->slot, (uint32_t)noise);
    }
    return NULL;
}

static void processes_that_race_for_a_name_share_one_place_and_one_charge(void **state)
{
    struct fixture *fixture = *state;
    struct racer racers[RACERS];
    _Atomic uint64_t together = 0;
    for (unsigned i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){.slot = fixture_slot(fixture), .together = &together};
        assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (unsigned i = 0; i < RACERS; i++) {
        pthread_join(racers[i].thread, NULL);
        assert_int_equal(racers[i].wrong, 0);
    }
    assert_int_equal(ledger_used(&fixture->ledger, 0), 0);
}

/* A process that joins and leaves without end, until it is killed wherever it is. */
static void join_without_end(struct ledger_slot slot, unsigned seed)
{
    for (unsigned round = seed;; round++) {
        bool is_new;
        int joint = ledger_joint_join(&slot, NAME + round % 3, true, &is_new);
        if (joint < 0)
            continue;
        ledger_joint_reserve(&slot, (uint32_t)joint, round % 2, 100);
        ledger_joint_leave(&slot, (uint32_t)joint);
    }
}

static void processes_killed_at_random_points_leave_no_joint_place(void **state)
{
    struct fixture *fixture = *state;
    for (unsigned round = 0; round < 60; round++) {
        struct ledger_slot slots[3];
        pid_t pids[3];
        for (unsigned i = 0; i < 3; i++) {
            slots[i] = fixture_slot(fixture);
            pids[i] = fork();
            assert_true(pids[i] >= 0);
            if (pids[i] == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0)
                join_without_end(slots[i], round + i);
        }
        /* Until they are at it; where they are when they are killed is what varies. */
        while (usage_load(&fixture->usage->owners[LEDGER_SLOTS].high) == 0)
            usleep(10);
        usleep(500 + round * 37);
        for (unsigned i = 0; i < 3; i++) {
            kill(pids[i], SIGKILL);
            assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
            assert_true(ledger_slot_clear(fixture->usage, slots[i].index, NULL));
        }
        assert_int_equal(ledger_used(&fixture->ledger, 0), ledger_left(fixture->usage, 0));
        assert_int_equal(ledger_used(&fixture->ledger, 1), ledger_left(fixture->usage, 1));
        for (unsigned i = 0; i < LEDGER_JOINT_PLACES; i++)
            assert_int_equal(usage_owner_state(fixture->usage->owners[LEDGER_SLOTS + i].high), USAGE_FREE);
    }
}

#define ROW(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(joint_memory_is_charged_once_and_until_its_last_holder_leaves),
        ROW(joint_memory_counts_at_requests_and_is_refused_like_them),
        ROW(a_dead_holder_leaves_joint_memory_to_the_others_and_the_last_frees_it),
        ROW(what_is_let_go_of_counts_until_the_daemon_says_otherwise),
        ROW(what_a_death_left_half_done_is_repaired_by_the_reaper),
        ROW(a_candidate_that_its_maker_left_is_in_no_session_s_way),
        ROW(without_room_nothing_is_joint),
        ROW(processes_that_race_for_a_name_share_one_place_and_one_charge),
        ROW(processes_killed_at_random_points_leave_no_joint_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
