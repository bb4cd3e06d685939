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
    int share = ledger_share_join(slot, name, true, &is_new);
    assert_true(share >= 0);
    assert_int_equal(is_new, expect_new);
    return (uint32_t)share;
}

static void a_share_is_charged_once_and_until_its_last_holder_leaves(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot one = fixture_slot(fixture), other = fixture_slot(fixture);
    uint32_t share = joined(&one, NAME, true);
    assert_true(ledger_share_reserve(&one, share, 1, 600));
    assert_int_equal(joined(&other, NAME, false), share);
    assert_true(ledger_share_reserve(&other, share, 1, 600));
    assert_int_equal(ledger_used(&fixture->ledger, 1), 600);
    assert_int_equal(ledger_used(&fixture->ledger, 0), 0);
    assert_int_equal(ledger_slot_used(&one, 1), 0);
    assert_int_equal(ledger_slot_shown_bytes(fixture->usage, one.index, 1), 600);
    assert_int_equal(ledger_slot_shown_bytes(fixture->usage, other.index, 1), 0);
    assert_true(ledger_share_reserve(&other, share, 1, 700));
    assert_true(ledger_share_reserve(&one, share, 1, 650));
    assert_int_equal(ledger_share_bytes(fixture->usage, share, 1), 700);
    ledger_share_leave(&one, share);
    assert_int_equal(ledger_used(&fixture->ledger, 1), 700);
    assert_int_equal(ledger_slot_shown_bytes(fixture->usage, other.index, 1), 700);
    ledger_share_leave(&one, share); /* holds nothing */
    assert_int_equal(ledger_used(&fixture->ledger, 1), 700);
    ledger_share_leave(&other, share);
    assert_int_equal(ledger_used(&fixture->ledger, 1), 0);
    bool is_new;
    assert_int_equal(ledger_share_join(&one, NAME, false, &is_new), -1);
}

static void shares_count_at_requests_and_are_refused_like_them(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot one = fixture_slot(fixture), other = fixture_slot(fixture);
    uint32_t share = joined(&one, NAME, true), second = joined(&one, NAME + 1, true);
    assert_true(ledger_share_reserve(&one, share, 0, GIB - 100));
    assert_false(ledger_reserve(&other, 0, 101));
    assert_false(ledger_share_reserve(&one, second, 0, 101));
    assert_false(ledger_share_reserve(&one, share, 0, GIB + 1));
    assert_int_equal(ledger_used(&fixture->ledger, 0), GIB - 100);
    assert_true(ledger_reserve(&other, 0, 60));
    assert_true(ledger_share_reserve(&one, second, 0, 40));
    assert_false(ledger_reserve(&one, 0, 1));
    ledger_share_charge(&one, second, 0, 90);
    assert_int_equal(ledger_used(&fixture->ledger, 0), GIB + 50);
    assert_int_equal(ledger_slot_counts(fixture->usage, one.index, 0).refused, 3);
    ledger_share_leave(&one, share);
    assert_int_equal(ledger_used(&fixture->ledger, 0), 150);
}

static void a_dead_holder_leaves_the_share_to_the_others_and_the_last_frees_it(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot one = fixture_slot(fixture), other = fixture_slot(fixture);
    uint64_t recovered[LEDGER_GPUS] = {0};
    uint32_t share = joined(&one, NAME, true);
    joined(&one, NAME, false);
    joined(&other, NAME, false);
    assert_true(ledger_share_reserve(&one, share, 0, 500));
    assert_true(ledger_slot_clear(fixture->usage, one.index, recovered));
    assert_int_equal(recovered[0], 0);
    assert_int_equal(ledger_used(&fixture->ledger, 0), 500);
    one = fixture_slot(fixture); /* the slot's next owner holds nothing */
    ledger_share_leave(&one, share);
    assert_int_equal(ledger_used(&fixture->ledger, 0), 500);
    assert_true(ledger_slot_clear(fixture->usage, other.index, recovered));
    assert_int_equal(recovered[0], 500);
    assert_int_equal(ledger_used(&fixture->ledger, 0), 0);
}

/* Each state that a process leaves which dies between two steps of making, joining or leaving. */
static void what_a_death_left_half_done_is_repaired_by_the_reaper(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot dead = fixture_slot(fixture), other = fixture_slot(fixture);
    struct word128 *entry = &fixture->usage->owners[LEDGER_SLOTS];
    for (unsigned step = 0; step < 3; step++) {
        uint32_t share = joined(&other, NAME, true);
        assert_int_equal(share, 0);
        assert_true(ledger_share_reserve(&other, share, 0, 500));
        uint64_t generation = usage_owner_generation(entry->high);
        if (step == 0) { /* left, but not cleared */
            fixture->usage->holders[0].words[0] = 0;
        } else if (step == 1) { /* begun to clear */
            fixture->usage->holders[0].words[0] = 0;
            entry->high = usage_owner_high(USAGE_CLEARING, generation, 1);
        } else { /* put up a candidate, with its hold */
            ledger_share_leave(&other, share);
            *entry =
                (struct word128){.low = NAME, .high = usage_owner_high(USAGE_CANDIDATE, generation + 1, 0)};
            fixture->usage->holders[0].words[0] = (uint64_t)(dead.index + 1) << 32 | dead.generation;
        }
        assert_true(ledger_slot_clear(fixture->usage, dead.index, NULL));
        assert_int_equal(ledger_used(&fixture->ledger, 0), 0);
        assert_int_equal(usage_owner_state(entry->high), USAGE_FREE);
        assert_int_equal(fixture->usage->holders[0].words[0], 0);
        dead = fixture_slot(fixture);
    }
}

static void a_candidate_that_its_maker_left_is_in_nobodys_way(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture);
    fixture->usage->shares_marked = 1;
    fixture->usage->owners[LEDGER_SLOTS] =
        (struct word128){.low = NAME, .high = usage_owner_high(USAGE_CANDIDATE, 9, 0)};
    assert_int_equal(joined(&slot, NAME, true), 1);
    assert_int_equal(usage_owner_state(fixture->usage->owners[LEDGER_SLOTS].high), USAGE_FREE);
}

static void without_room_nothing_is_shared(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture);
    bool is_new;
    for (unsigned i = 0; i < LEDGER_SHARES; i++)
        joined(&slot, NAME + i, true);
    assert_int_equal(ledger_share_join(&slot, NAME + LEDGER_SHARES, true, &is_new), -1);
    ledger_share_leave(&slot, 100);
    assert_int_equal(joined(&slot, NAME + LEDGER_SHARES, true), 100);
    for (unsigned i = 1; i < LEDGER_SHARE_HOLDERS; i++)
        joined(&slot, NAME, false);
    assert_int_equal(ledger_share_join(&slot, NAME, true, &is_new), -1);
    assert_int_equal(ledger_share_join(&slot, 0, true, &is_new), -1);
}

#define RACERS 4
#define ROUNDS 5000

struct racer {
    struct ledger_slot slot;
    pthread_t thread;
    _Atomic uint64_t *together; /* of NAME: {share + 1:32, holders:32}; 0: nobody holds it */
    uint64_t wrong;
};

/* Whoever holds the name's share notes which; all who hold it at once must have the same one. */
static void *race(void *argument)
{
    struct racer *racer = argument;
    for (unsigned round = 0; round < ROUNDS; round++) {
        bool is_new;
        /* Others' places come and go before and behind it. */
        int noise =
            ledger_share_join(&racer->slot, NAME + 1 + (racer->slot.index + round) % 3, true, &is_new);
        int share = ledger_share_join(&racer->slot, NAME, true, &is_new);
        if (share < 0)
            continue; /* as it never came to rest */
        uint64_t seen = atomic_load(racer->together), next;
        do {
            if (seen && (seen >> 32) - 1 != (uint64_t)share)
                racer->wrong++;
            next = ((uint64_t)share + 1) << 32 | ((seen & UINT32_MAX) + 1);
        } while (!atomic_compare_exchange_weak(racer->together, &seen, next));
        if (!ledger_share_reserve(&racer->slot, (uint32_t)share, 0, 100) ||
            ledger_share_bytes(racer->slot.ledger.usage, (uint32_t)share, 0) != 100)
            racer->wrong++;
        do
            next = (seen & UINT32_MAX) == 1 ? 0 : seen - 1;
        while (!atomic_compare_exchange_weak(racer->together, &seen, next));
        ledger_share_leave(&racer->slot, (uint32_t)share);
        if (noise >= 0)
            ledger_share_leave(&racer->slot, (uint32_t)noise);
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

/* A process that shares without end, until it is killed wherever it is. */
static void share_without_end(struct ledger_slot slot, unsigned seed)
{
    for (unsigned round = seed;; round++) {
        bool is_new;
        int share = ledger_share_join(&slot, NAME + round % 3, true, &is_new);
        if (share < 0)
            continue;
        ledger_share_reserve(&slot, (uint32_t)share, round % 2, 100);
        ledger_share_leave(&slot, (uint32_t)share);
    }
}

static void processes_killed_at_random_points_leave_no_share(void **state)
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
                share_without_end(slots[i], round + i);
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
        assert_int_equal(ledger_used(&fixture->ledger, 0), 0);
        assert_int_equal(ledger_used(&fixture->ledger, 1), 0);
        for (unsigned i = 0; i < LEDGER_SHARES; i++)
            assert_int_equal(usage_owner_state(fixture->usage->owners[LEDGER_SLOTS + i].high), USAGE_FREE);
    }
}

#define ROW(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(a_share_is_charged_once_and_until_its_last_holder_leaves),
        ROW(shares_count_at_requests_and_are_refused_like_them),
        ROW(a_dead_holder_leaves_the_share_to_the_others_and_the_last_frees_it),
        ROW(what_a_death_left_half_done_is_repaired_by_the_reaper),
        ROW(a_candidate_that_its_maker_left_is_in_nobodys_way),
        ROW(without_room_nothing_is_shared),
        ROW(processes_that_race_for_a_name_share_one_place_and_one_charge),
        ROW(processes_killed_at_random_points_leave_no_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
