/* test_slot.c - regions, epochs, and slots that change hands. */
#include <string.h>

#include "fixture.h"

static void fresh_regions_are_valid(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(ledger_usage_bytes() % 4096, 0);
    assert_true(ledger_policy_is_valid(fixture->policy, LEDGER_POLICY_BYTES));
    assert_true(ledger_usage_is_valid(fixture->usage, ledger_usage_bytes()));
    assert_string_equal(fixture->policy->session_id, "0123456789ab");
    assert_int_equal(fixture->policy->epoch, 7);
}

static void damaged_regions_are_not_valid(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_policy policy = *fixture->policy;

    assert_false(ledger_policy_is_valid(&policy, sizeof policy - 1));
    assert_false(ledger_policy_is_valid(&policy, 0));
    policy.gpu_count = LEDGER_GPUS + 1;
    assert_false(ledger_policy_is_valid(&policy, sizeof policy));
    policy.gpu_count = LEDGER_GPUS;
    assert_true(ledger_policy_is_valid(&policy, sizeof policy));
    policy.layout++;
    assert_false(ledger_policy_is_valid(&policy, sizeof policy));
    policy.layout--;
    memset(policy.session_id, 'x', sizeof policy.session_id);
    assert_false(ledger_policy_is_valid(&policy, sizeof policy));

    assert_false(ledger_usage_is_valid(fixture->usage, sizeof(struct ledger_usage) - 1));
    fixture->usage->layout++;
    assert_false(ledger_usage_is_valid(fixture->usage, ledger_usage_bytes()));
    fixture->usage->layout--;
    fixture->usage->magic ^= 1;
    assert_false(ledger_usage_is_valid(fixture->usage, ledger_usage_bytes()));
}

static void a_long_session_id_is_cut(void **state)
{
    struct fixture *fixture = *state;

    ledger_policy_init(fixture->policy, "0123456789abcdefghij", 1);
    assert_string_equal(fixture->policy->session_id, "0123456789abcde");
    assert_true(ledger_policy_is_valid(fixture->policy, LEDGER_POLICY_BYTES));
}

static void the_epoch_is_what_was_set_last(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(ledger_epoch(fixture->usage), 7);
    ledger_epoch_set(fixture->usage, UINT64_MAX);
    assert_true(ledger_epoch(fixture->usage) == UINT64_MAX);
}

static void gpus_are_found_by_uuid(void **state)
{
    struct fixture *fixture = *state;
    uint8_t uuid[16] = {0xa1};

    assert_int_equal(ledger_gpu_find(fixture->policy, uuid), 1);
    uuid[15] = 1;
    assert_int_equal(ledger_gpu_find(fixture->policy, uuid), -1);
    /* An unused row's UUID is zeros, and is no GPU. */
    assert_int_equal(ledger_gpu_find(fixture->policy, (const uint8_t[16]){0}), -1);
}

static void a_claimed_slot_names_its_owner(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_owner owner = {.pid = 4194304, .start_ticks = UINT64_MAX}, seen;
    uint64_t generation, seen_generation;

    assert_false(ledger_slot_owner(fixture->usage, 0, &seen, &seen_generation));
    assert_int_equal(ledger_slot_claim(fixture->usage, owner, &generation), 0);
    assert_true(ledger_slot_owner(fixture->usage, 0, &seen, &seen_generation));
    assert_int_equal(seen.pid, 4194304);
    assert_true(seen.start_ticks == UINT64_MAX);
    assert_int_equal(seen_generation, generation);
    assert_true(ledger_slot_clear(fixture->usage, 0, NULL));
    assert_false(ledger_slot_owner(fixture->usage, 0, &seen, &seen_generation));
}

static void a_ledger_has_1024_slots_and_no_more(void **state)
{
    struct fixture *fixture = *state;
    uint64_t generation = 12345;

    for (unsigned i = 0; i < LEDGER_SLOTS; i++)
        assert_int_equal(fixture_slot(fixture).index, i);
    assert_int_equal(ledger_slot_claim(fixture->usage, (struct ledger_owner){.pid = 1}, &generation), -1);
    assert_int_equal(generation, 12345);
    assert_true(ledger_slot_clear(fixture->usage, 500, NULL));
    assert_int_equal(fixture_slot(fixture).index, 500);
}

static void the_last_slot_counts(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = {0}, first = {0};

    for (unsigned i = 0; i < LEDGER_SLOTS; i++) {
        slot = fixture_slot(fixture);
        if (i == 0)
            first = slot;
    }
    assert_true(ledger_reserve(&slot, 0, GIB - 1));
    assert_false(ledger_reserve(&first, 0, 2));
    assert_true(ledger_reserve(&first, 0, 1));
    assert_int_equal(ledger_used(&fixture->ledger, 0), GIB);
}

static void a_cleared_slot_gives_its_bytes_back_and_nobody_elses(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot dead = fixture_slot(fixture), alive = fixture_slot(fixture);
    uint64_t recovered[LEDGER_GPUS] = {[1] = 1000};

    assert_true(ledger_reserve(&dead, 0, 100));
    assert_true(ledger_reserve(&dead, 1, 30));
    assert_true(ledger_reserve(&alive, 0, 7));
    assert_true(ledger_slot_clear(fixture->usage, dead.index, recovered));
    assert_int_equal(recovered[0], 100);
    assert_int_equal(recovered[1], 1030);
    assert_int_equal(ledger_used(&fixture->ledger, 0), 7);
    assert_int_equal(ledger_used(&fixture->ledger, 1), 0);
    assert_int_equal(ledger_slot_used(&alive, 0), 7);

    assert_false(ledger_slot_clear(fixture->usage, dead.index, recovered));
    assert_int_equal(recovered[0], 100);
    assert_false(ledger_slot_clear(fixture->usage, LEDGER_SLOTS, recovered));
}

static void a_process_that_lost_its_slot_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot old = fixture_slot(fixture);

    assert_true(ledger_reserve(&old, 0, 100));
    assert_true(ledger_slot_clear(fixture->usage, old.index, NULL));
    assert_false(ledger_reserve(&old, 0, 1)); /* the slot is nobody's */
    assert_false(ledger_reserve(&old, 1, 1)); /* nor is a GPU that nobody used */
    struct ledger_slot next = fixture_slot(fixture);
    assert_int_equal(next.index, old.index);
    assert_true(next.generation != old.generation);
    assert_true(ledger_reserve(&next, 0, 50));
    assert_false(ledger_reserve(&old, 0, 1));
    ledger_charge(&old, 0, 1);
    ledger_release(&old, 0, 1);
    assert_int_equal(ledger_slot_used(&old, 0), 0);
    assert_int_equal(ledger_slot_used(&next, 0), 50);
    assert_int_equal(ledger_used(&fixture->ledger, 0), 50);
}

static void reaping_spares_the_next_owner(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot dead = fixture_slot(fixture);

    assert_true(ledger_reserve(&dead, 0, 100));
    assert_true(ledger_slot_reap(fixture->usage, dead.index, dead.generation, NULL));
    struct ledger_slot next = fixture_slot(fixture);
    assert_int_equal(next.index, dead.index);
    assert_true(ledger_reserve(&next, 0, 50));
    assert_false(ledger_slot_reap(fixture->usage, dead.index, dead.generation, NULL));
    assert_int_equal(ledger_slot_used(&next, 0), 50);
}

static void half_cleared_slots_are_still_owned_and_can_be_finished(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot dead = fixture_slot(fixture);
    struct ledger_owner owner;
    uint64_t generation, recovered[LEDGER_GPUS] = {0};

    assert_true(ledger_reserve(&dead, 0, 100));
    assert_true(ledger_reserve(&dead, 1, 200));
    /* A reaper died after it cleared GPU 0. */
    fixture->usage->owners[dead.index].high = usage_owner_high(USAGE_CLEARING, dead.generation, TEST_PID);
    fixture->usage->gpus[0].words[dead.index] =
        (struct word128){.high = usage_first_stamp(dead.generation + 1)};
    assert_true(ledger_slot_owner(fixture->usage, dead.index, &owner, &generation));
    assert_int_equal(owner.pid, TEST_PID);
    assert_int_equal(generation, dead.generation);
    assert_int_equal(fixture_slot(fixture).index, dead.index + 1);

    assert_true(ledger_slot_reap(fixture->usage, dead.index, generation, recovered));
    assert_int_equal(recovered[0], 0);
    assert_int_equal(recovered[1], 200);
    assert_int_equal(ledger_used(&fixture->ledger, 1), 0);
    assert_int_equal(fixture_slot(fixture).index, dead.index);
}

static void generations_come_round_without_mixing_up_owners(void **state)
{
    struct fixture *fixture = *state;

    fixture->usage->owners[0].high =
        usage_owner_high(USAGE_FREE, (UINT64_C(1) << USAGE_GENERATION_BITS) - 1, 0);
    struct ledger_slot slot = fixture_slot(fixture);
    assert_int_equal(slot.generation, 0);
    assert_true(ledger_reserve(&slot, 0, 5));
    assert_true(ledger_slot_clear(fixture->usage, 0, NULL));
    slot = fixture_slot(fixture);
    assert_int_equal(slot.generation, 1);
    assert_int_equal(ledger_slot_used(&slot, 0), 0);
    assert_true(ledger_reserve(&slot, 0, GIB));
}

static void stamps_count_within_their_generation(void **state)
{
    (void)state;
    uint64_t last = usage_first_stamp(3) | USAGE_COUNTER_MASK << 1 | 1;

    assert_true(usage_next_stamp(last, false) == usage_first_stamp(3));
    assert_int_equal(usage_stamp_generation(last), 3);
    assert_true(usage_stamp_refused(usage_next_stamp(last, true)));
    assert_true(usage_next_stamp(usage_first_stamp(3), false) != usage_first_stamp(3));
}

struct reaper {
    pthread_t id;
    struct fixture *fixture;
    uint64_t recovered[LEDGER_GPUS];
};

static void *reap_everything(void *argument)
{
    struct reaper *reaper = argument;
    struct ledger_owner owner;
    uint64_t generation;

    for (uint32_t i = 0; i < LEDGER_SLOTS; i++)
        if (ledger_slot_owner(reaper->fixture->usage, i, &owner, &generation))
            ledger_slot_reap(reaper->fixture->usage, i, generation, reaper->recovered);
    return NULL;
}

static void several_reapers_recover_each_byte_once(void **state)
{
    struct fixture *fixture = *state;
    struct reaper reapers[3] = {0};
    uint64_t recovered = 0;

    for (unsigned i = 0; i < LEDGER_SLOTS; i++) {
        struct ledger_slot slot = fixture_slot(fixture);
        assert_true(ledger_reserve(&slot, 0, i + 1));
    }
    for (unsigned i = 0; i < 3; i++) {
        reapers[i].fixture = fixture;
        assert_int_equal(pthread_create(&reapers[i].id, NULL, reap_everything, &reapers[i]), 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(reapers[i].id, NULL);
        recovered += reapers[i].recovered[0];
    }
    assert_int_equal(recovered, LEDGER_SLOTS * (LEDGER_SLOTS + 1) / 2);
    assert_int_equal(ledger_used(&fixture->ledger, 0), 0);
    assert_int_equal(fixture_slot(fixture).index, 0);
}

struct claimer {
    pthread_t id;
    struct fixture *fixture;
    unsigned taken;
    uint8_t mine[LEDGER_SLOTS];
};

static void *claim_everything(void *argument)
{
    struct claimer *claimer = argument;
    uint64_t generation;
    int index;

    while ((index = ledger_slot_claim(claimer->fixture->usage, (struct ledger_owner){.pid = 1},
                                      &generation)) >= 0) {
        claimer->mine[index]++;
        claimer->taken++;
    }
    return NULL;
}

static void several_claimers_never_get_the_same_slot(void **state)
{
    struct claimer claimers[3] = {0};
    unsigned taken = 0;

    for (unsigned i = 0; i < 3; i++) {
        claimers[i].fixture = *state;
        assert_int_equal(pthread_create(&claimers[i].id, NULL, claim_everything, &claimers[i]), 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(claimers[i].id, NULL);
        taken += claimers[i].taken;
    }
    assert_int_equal(taken, LEDGER_SLOTS);
    for (unsigned slot = 0; slot < LEDGER_SLOTS; slot++)
        assert_int_equal(claimers[0].mine[slot] + claimers[1].mine[slot] + claimers[2].mine[slot], 1);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(fresh_regions_are_valid),
        ROW(damaged_regions_are_not_valid),
        ROW(a_long_session_id_is_cut),
        ROW(the_epoch_is_what_was_set_last),
        ROW(gpus_are_found_by_uuid),
        ROW(a_claimed_slot_names_its_owner),
        ROW(a_ledger_has_1024_slots_and_no_more),
        ROW(the_last_slot_counts),
        ROW(a_cleared_slot_gives_its_bytes_back_and_nobody_elses),
        ROW(a_process_that_lost_its_slot_changes_nothing),
        ROW(reaping_spares_the_next_owner),
        ROW(half_cleared_slots_are_still_owned_and_can_be_finished),
        ROW(generations_come_round_without_mixing_up_owners),
        cmocka_unit_test(stamps_count_within_their_generation),
        ROW(several_reapers_recover_each_byte_once),
        ROW(several_claimers_never_get_the_same_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
