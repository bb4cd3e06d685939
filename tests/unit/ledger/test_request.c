/* test_request.c - reserve, charge, release: what fits, to the byte, and who is in whose way. */
#include "fixture.h"

static void reserves_up_to_the_limit_and_not_a_byte_more(void **state)
{
    struct ledger_slot slot = fixture_slot(*state);

    assert_false(ledger_reserve(&slot, 0, GIB + 1));
    assert_true(ledger_reserve(&slot, 0, GIB - 1));
    assert_false(ledger_reserve(&slot, 0, 2));
    assert_true(ledger_reserve(&slot, 0, 1));
    assert_false(ledger_reserve(&slot, 0, 1));
    assert_int_equal(ledger_slot_used(&slot, 0), GIB);
    assert_int_equal(ledger_used(&slot.ledger, 0), GIB);
}

static void released_bytes_can_be_reserved_again(void **state)
{
    struct ledger_slot slot = fixture_slot(*state);

    assert_true(ledger_reserve(&slot, 0, GIB));
    ledger_release(&slot, 0, 100);
    assert_int_equal(ledger_slot_used(&slot, 0), GIB - 100);
    assert_false(ledger_reserve(&slot, 0, 101));
    assert_true(ledger_reserve(&slot, 0, 100));
    ledger_release(&slot, 0, GIB);
    assert_int_equal(ledger_slot_used(&slot, 0), 0);
}

static void slots_share_the_limit(void **state)
{
    struct ledger_slot first = fixture_slot(*state), second = fixture_slot(*state);

    assert_true(ledger_reserve(&first, 0, GIB / 4 * 3));
    assert_false(ledger_reserve(&second, 0, GIB / 4 + 1));
    assert_true(ledger_reserve(&second, 0, GIB / 4));
    assert_int_equal(ledger_slot_used(&first, 0), GIB / 4 * 3);
    assert_int_equal(ledger_slot_used(&second, 0), GIB / 4);
    assert_int_equal(ledger_used(&first.ledger, 0), GIB);
}

static void gpus_are_apart(void **state)
{
    struct ledger_slot slot = fixture_slot(*state);

    assert_true(ledger_reserve(&slot, 0, GIB));
    assert_true(ledger_reserve(&slot, 1, GIB));
    ledger_release(&slot, 0, GIB);
    assert_int_equal(ledger_used(&slot.ledger, 0), 0);
    assert_int_equal(ledger_used(&slot.ledger, 1), GIB);
}

static void a_gpu_outside_the_policy_has_limit_0(void **state)
{
    struct ledger_slot slot = fixture_slot(*state);

    assert_false(ledger_reserve(&slot, 2, 1));
    assert_false(ledger_reserve(&slot, LEDGER_GPUS, 1));
    assert_false(ledger_reserve(&slot, UINT32_MAX, 1));
    ledger_charge(&slot, LEDGER_GPUS, 1);
    ledger_release(&slot, LEDGER_GPUS, 1);
    assert_int_equal(ledger_slot_used(&slot, LEDGER_GPUS), 0);
    assert_int_equal(ledger_used(&slot.ledger, LEDGER_GPUS), 0);
}

static void a_limit_below_use_refuses_until_use_is_below(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture);

    assert_true(ledger_reserve(&slot, 0, 1000));
    fixture->policy->gpus[0].limit_bytes = 400;
    assert_int_equal(ledger_slot_used(&slot, 0), 1000);
    assert_false(ledger_reserve(&slot, 0, 1));
    ledger_release(&slot, 0, 600);
    assert_false(ledger_reserve(&slot, 0, 1));
    ledger_release(&slot, 0, 10);
    assert_false(ledger_reserve(&slot, 0, 11));
    assert_true(ledger_reserve(&slot, 0, 10));
    fixture->policy->gpus[0].limit_bytes = 1000;
    assert_true(ledger_reserve(&slot, 0, 600));
}

static void a_closed_policy_grants_nothing_and_takes_back(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture);

    assert_true(ledger_reserve(&slot, 0, 1000));
    fixture->policy->closed = 1;
    assert_false(ledger_reserve(&slot, 0, 1));
    assert_false(ledger_reserve(&slot, 0, 0));
    ledger_release(&slot, 0, 400);
    ledger_charge(&slot, 0, 5);
    assert_int_equal(ledger_slot_used(&slot, 0), 605);
    fixture->policy->closed = 0;
    assert_true(ledger_reserve(&slot, 0, 1));
}

static void nothing_always_fits(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture);

    assert_true(ledger_reserve(&slot, 0, GIB));
    fixture->policy->gpus[0].limit_bytes = 0;
    assert_true(ledger_reserve(&slot, 0, 0));
    assert_int_equal(ledger_slot_used(&slot, 0), GIB);
}

static void a_charge_may_pass_the_limit_and_then_only_requests_are_refused(void **state)
{
    struct ledger_slot slot = fixture_slot(*state), other = fixture_slot(*state);

    assert_true(ledger_reserve(&slot, 0, GIB));
    ledger_charge(&slot, 0, 500);
    assert_int_equal(ledger_slot_used(&slot, 0), GIB + 500);
    assert_false(ledger_reserve(&other, 0, 1));
    ledger_release(&slot, 0, 501);
    assert_true(ledger_reserve(&other, 0, 1));
    assert_false(ledger_reserve(&other, 0, 1));
}

static void releasing_more_than_is_held_releases_what_is_held(void **state)
{
    struct ledger_slot slot = fixture_slot(*state), other = fixture_slot(*state);

    assert_true(ledger_reserve(&slot, 0, 10));
    assert_true(ledger_reserve(&other, 0, 20));
    ledger_release(&slot, 0, 11);
    assert_int_equal(ledger_slot_used(&slot, 0), 0);
    assert_int_equal(ledger_used(&slot.ledger, 0), 20);
}

static void sums_saturate_instead_of_wrapping(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture), other = fixture_slot(fixture);

    fixture->policy->gpus[0].limit_bytes = LEDGER_UNLIMITED;
    assert_true(ledger_reserve(&slot, 0, UINT64_MAX - 10));
    assert_false(ledger_reserve(&other, 0, 11));
    assert_true(ledger_reserve(&other, 0, 10));
    ledger_charge(&other, 0, UINT64_MAX);
    assert_int_equal(ledger_slot_used(&other, 0), UINT64_MAX);
    assert_int_equal(ledger_used(&slot.ledger, 0), UINT64_MAX);
    assert_false(ledger_reserve(&slot, 0, 1));
}

static void grants_and_refusals_are_counted(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture);

    for (unsigned i = 0; i < 3; i++)
        assert_true(ledger_reserve(&slot, 0, 1));
    for (unsigned i = 0; i < 2; i++)
        assert_false(ledger_reserve(&slot, 0, GIB));
    ledger_charge(&slot, 0, 1);
    ledger_release(&slot, 0, 1);
    struct ledger_counts counts = ledger_slot_counts(fixture->usage, slot.index, 0);
    assert_int_equal(counts.granted, 3);
    assert_int_equal(counts.refused, 2);
    assert_int_equal(ledger_slot_counts(fixture->usage, slot.index, 1).granted, 0);

    assert_true(ledger_slot_clear(fixture->usage, slot.index, NULL));
    struct ledger_slot next = fixture_slot(fixture);
    assert_int_equal(next.index, slot.index);
    counts = ledger_slot_counts(fixture->usage, slot.index, 0);
    assert_int_equal(counts.granted, 0);
    assert_int_equal(counts.refused, 0);
}

static void a_stopped_requester_is_decided_by_the_next(void **state)
{
    struct ledger_slot stopped = fixture_slot(*state), other = fixture_slot(*state);

    assert_true(ledger_reserve(&stopped, 0, 100));
    fixture_ask_and_stop(&stopped, 0, 50);
    assert_true(ledger_reserve(&other, 0, GIB - 150));
    assert_int_equal(ledger_slot_used(&stopped, 0), 150);
    assert_false(ledger_reserve(&other, 0, 1));
}

static void a_hopeless_request_of_a_stopped_process_refuses_nobody(void **state)
{
    struct ledger_slot stopped = fixture_slot(*state), other = fixture_slot(*state);

    assert_true(ledger_reserve(&stopped, 0, 100));
    fixture_ask_and_stop(&stopped, 0, GIB);
    assert_true(ledger_reserve(&other, 0, GIB - 100));
    assert_int_equal(ledger_slot_used(&stopped, 0), 100);
}

static void a_request_that_a_dead_process_left_gives_its_slot_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot dead = fixture_slot(fixture), other = fixture_slot(fixture);

    assert_true(ledger_reserve(&dead, 0, 100));
    fixture_ask_and_stop(&dead, 0, 50);
    assert_true(ledger_slot_clear(fixture->usage, dead.index, NULL));
    assert_true(ledger_reserve(&other, 0, GIB));
    assert_int_equal(ledger_used(&other.ledger, 0), GIB);
    assert_int_equal(ledger_slot_bytes(fixture->usage, dead.index, 0), 0);
}

static void what_a_dead_owner_left_to_decide_is_not_the_next_owners_request(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot dead = fixture_slot(fixture);

    assert_true(ledger_reserve(&dead, 0, 100));
    fixture_ask_and_stop(&dead, 0, GIB);
    assert_true(ledger_slot_clear(fixture->usage, dead.index, NULL));
    struct ledger_slot next = fixture_slot(fixture);
    assert_int_equal(next.index, dead.index);
    assert_true(ledger_reserve(&next, 0, 70));
    assert_int_equal(ledger_slot_used(&next, 0), 70);
}

static void a_late_helpers_swap_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture);
    struct word128 *word = &fixture->usage->gpus[0].words[slot.index];

    assert_true(ledger_reserve(&slot, 0, 100));
    struct word128 seen = *word; /* by a helper that falls asleep here */
    assert_true(ledger_reserve(&slot, 0, 50));
    ledger_release(&slot, 0, 50);
    assert_int_equal(word->low, seen.low);
    assert_false(word128_compare_exchange(word, &seen, (struct word128){.low = 999}));
    assert_int_equal(ledger_slot_used(&slot, 0), 100);
}

static void an_outdated_helper_decides_by_the_askers_limit(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot asker = fixture_slot(fixture), outdated = fixture_slot(fixture);
    struct ledger_policy newer = *fixture->policy;

    /* The daemon restarted and allows less; `outdated` has not noticed. */
    newer.epoch = 8;
    newer.gpus[0].limit_bytes = 1000;
    ledger_epoch_set(fixture->usage, 8);
    asker.ledger.policy = &newer;
    fixture_ask_and_stop(&asker, 0, 1001);
    assert_true(ledger_reserve(&outdated, 0, 1));
    assert_int_equal(ledger_slot_used(&asker, 0), 0);
    fixture_ask_and_stop(&asker, 0, 999);
    assert_true(ledger_reserve(&outdated, 0, 1));
    assert_int_equal(ledger_slot_used(&asker, 0), 999);
}

static void a_helper_with_the_current_policy_decides_by_the_limit_of_now(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot stopped = fixture_slot(fixture), other = fixture_slot(fixture);

    fixture_ask_and_stop(&stopped, 0, 500);
    fixture->policy->gpus[0].limit_bytes = 400;
    assert_true(ledger_reserve(&other, 0, 400));
    assert_int_equal(ledger_slot_used(&stopped, 0), 0);
}

static void closing_the_policy_refuses_what_a_stopped_process_asked_before(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot stopped = fixture_slot(fixture), other = fixture_slot(fixture);

    fixture_ask_and_stop(&stopped, 0, 500);
    fixture->policy->closed = 1;
    ledger_charge(&other, 0, 7);
    assert_int_equal(ledger_slot_used(&stopped, 0), 0);
    assert_int_equal(ledger_used(&other.ledger, 0), 7);
}

/* Half of the limit goes to and fro between two slots, as far from each other as slots can be: a few times for each sum, since a
 * sum is of one moment only if what is held does not keep changing. */
#define EXCHANGES (LEDGER_SUMS / 4)
struct exchange {
    struct ledger_slot slots[2];
    atomic_bool ending;
    atomic_uint sums;
};

static void *move_to_and_fro(void *argument)
{
    struct exchange *exchange = argument;
    unsigned seen = 0, left = 0, holder = 0;
    while (!atomic_load(&exchange->ending)) {
        unsigned sums = atomic_load(&exchange->sums);
        left = sums == seen ? left : EXCHANGES;
        seen = sums;
        if (left == 0)
            continue;
        left--;
        ledger_release(&exchange->slots[holder], 0, GIB / 2 + 1);
        holder = 1 - holder;
        ledger_reserve(&exchange->slots[holder], 0, GIB / 2 + 1);
    }
    return NULL;
}

static void what_is_used_is_never_more_than_there_was(void **state)
{
    struct fixture *fixture = *state;
    struct exchange exchange = {.slots[0] = fixture_slot(fixture)};
    pthread_t id;
    uint64_t most = 0;

    for (unsigned i = 0; i < 500; i++)
        exchange.slots[1] = fixture_slot(fixture);
    assert_true(ledger_reserve(&exchange.slots[0], 0, GIB / 2 + 1));
    assert_int_equal(pthread_create(&id, NULL, move_to_and_fro, &exchange), 0);
    for (unsigned i = 0; i < 60000; i++) {
        atomic_fetch_add(&exchange.sums, 1);
        uint64_t used = ledger_used(&exchange.slots[0].ledger, 0);
        most = used > most ? used : most;
    }
    atomic_store(&exchange.ending, true);
    pthread_join(id, NULL);
    assert_int_equal(most, GIB / 2 + 1);
}

struct racer {
    pthread_t id;
    struct ledger_slot slot;
    pthread_barrier_t *barrier;
    unsigned granted;
};

#define RACERS 4u
#define RACES 2000u

static void *race(void *argument)
{
    struct racer *racer = argument;
    for (unsigned i = 0; i < RACES; i++) {
        pthread_barrier_wait(racer->barrier);
        bool granted = ledger_reserve(&racer->slot, 0, GIB / 2 + 1);
        racer->granted += granted;
        pthread_barrier_wait(racer->barrier);
        if (granted)
            ledger_release(&racer->slot, 0, GIB / 2 + 1);
    }
    return NULL;
}

static void of_racing_requests_of_which_one_fits_one_succeeds(void **state)
{
    struct racer racers[RACERS] = {0};
    pthread_barrier_t barrier;
    unsigned granted = 0;

    pthread_barrier_init(&barrier, NULL, RACERS);
    for (unsigned i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){.slot = fixture_slot(*state), .barrier = &barrier};
        assert_int_equal(pthread_create(&racers[i].id, NULL, race, &racers[i]), 0);
    }
    for (unsigned i = 0; i < RACERS; i++) {
        pthread_join(racers[i].id, NULL);
        granted += racers[i].granted;
    }
    pthread_barrier_destroy(&barrier);
    assert_int_equal(granted, RACES);
    assert_int_equal(ledger_used(&racers[0].slot.ledger, 0), 0);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(reserves_up_to_the_limit_and_not_a_byte_more),
        ROW(released_bytes_can_be_reserved_again),
        ROW(slots_share_the_limit),
        ROW(gpus_are_apart),
        ROW(a_gpu_outside_the_policy_has_limit_0),
        ROW(a_limit_below_use_refuses_until_use_is_below),
        ROW(a_closed_policy_grants_nothing_and_takes_back),
        ROW(nothing_always_fits),
        ROW(a_charge_may_pass_the_limit_and_then_only_requests_are_refused),
        ROW(releasing_more_than_is_held_releases_what_is_held),
        ROW(sums_saturate_instead_of_wrapping),
        ROW(grants_and_refusals_are_counted),
        ROW(a_stopped_requester_is_decided_by_the_next),
        ROW(a_hopeless_request_of_a_stopped_process_refuses_nobody),
        ROW(a_request_that_a_dead_process_left_gives_its_slot_nothing),
        ROW(what_a_dead_owner_left_to_decide_is_not_the_next_owners_request),
        ROW(a_late_helpers_swap_changes_nothing),
        ROW(an_outdated_helper_decides_by_the_askers_limit),
        ROW(a_helper_with_the_current_policy_decides_by_the_limit_of_now),
        ROW(what_is_used_is_never_more_than_there_was),
        ROW(closing_the_policy_refuses_what_a_stopped_process_asked_before),
        ROW(of_racing_requests_of_which_one_fits_one_succeeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
