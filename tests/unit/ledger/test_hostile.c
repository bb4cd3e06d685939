/* test_hostile.c - a usage region with anything in it: wrong answers are allowed, faults, endless loops and
 * writes outside are not. */
#include <stdio.h>
#include <string.h>

#include "fixture.h"

#define SEED UINT64_C(0x9e3779b97f4a7c15)

/* xorshift64*, by Vigna. */
static uint64_t draw(uint64_t *random)
{
    *random ^= *random >> 12;
    *random ^= *random << 25;
    *random ^= *random >> 27;
    return *random * UINT64_C(2685821657736338717);
}

/* Values that comparisons and additions stumble over, beside any at all. */
static uint64_t draw_nasty(uint64_t *random)
{
    uint64_t value = draw(random);
    switch (value >> 60) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    case 2:
        return UINT64_MAX - (value & 1023);
    case 3:
    case 4:
        return value & 2047;
    case 5:
        return usage_first_stamp(value & 3) | (value >> 8 & 15);
    case 6:
        return usage_owner_high((enum usage_owner_state)(value >> 8 & 3), value & 3, TEST_PID);
    default:
        return value;
    }
}

static void call_everything(struct fixture *fixture, struct ledger_slot *slot, uint64_t *random)
{
    unsigned gpu = (unsigned)draw_nasty(random) % (LEDGER_GPUS + 2);
    uint32_t index = (uint32_t)draw_nasty(random);
    uint64_t generation = 0, recovered[LEDGER_GPUS] = {0};
    struct ledger_owner owner = {.pid = TEST_PID};

    ledger_reserve(slot, gpu, draw_nasty(random));
    ledger_charge(slot, gpu, draw_nasty(random));
    ledger_release(slot, gpu, draw_nasty(random));
    ledger_slot_used(slot, gpu);
    ledger_used(&slot->ledger, gpu);
    ledger_usage_is_valid(fixture->usage, ledger_usage_bytes());
    ledger_epoch(fixture->usage);
    if (ledger_slot_owner(fixture->usage, index % LEDGER_SLOTS, &owner, &generation))
        ledger_slot_reap(fixture->usage, index % LEDGER_SLOTS, generation, recovered);
    ledger_slot_clear(fixture->usage, index, recovered);
    ledger_slot_bytes(fixture->usage, index, gpu);
    ledger_slot_counts(fixture->usage, index, gpu);
    ledger_slot_claim(fixture->usage, owner, &generation);

    uint32_t slots[LEDGER_JOINT_HOLDERS];
    bool is_new;
    int joined = ledger_joint_join(slot, draw(random) % 4, draw(random) % 2, &is_new);
    ledger_joint_reserve(slot, joined >= 0 ? (uint32_t)joined : index, gpu, draw_nasty(random));
    ledger_joint_charge(slot, index, gpu, draw_nasty(random));
    ledger_joint_leave(slot, joined >= 0 ? (uint32_t)joined : index);
    ledger_joint_is_named(&slot->ledger, index, generation);
    ledger_joint_bytes(fixture->usage, index, gpu);
    ledger_joint_total_bytes(fixture->usage, gpu);
    ledger_joint_stamp(fixture->usage, gpu);
    ledger_joint_holders(fixture->usage, index, slots);
    ledger_slot_shown_bytes(fixture->usage, index, gpu);
}

static void random_contents_do_no_harm(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture);
    uint64_t random = SEED, *words = (uint64_t *)(void *)fixture->usage;
    struct ledger_policy policy = *fixture->policy;

    print_message("seed %#llx\n", (unsigned long long)SEED);
    for (unsigned round = 0; round < 12; round++) {
        for (size_t i = 0; i < ledger_usage_bytes() / sizeof *words; i++)
            words[i] = draw_nasty(&random);
        for (unsigned i = 0; i < 200; i++)
            call_everything(fixture, &slot, &random);
    }
    assert_memory_equal(fixture->policy, &policy, sizeof policy);
}

static void a_slot_number_out_of_range_does_no_harm(void **state)
{
    struct ledger_slot slot = fixture_slot(*state);

    slot.index = LEDGER_SLOTS;
    assert_false(ledger_reserve(&slot, 0, 1));
    ledger_charge(&slot, 0, 1);
    ledger_release(&slot, 0, 1);
    assert_int_equal(ledger_slot_used(&slot, 0), 0);
    assert_int_equal(ledger_used(&slot.ledger, 0), 0);
}

static void nonsense_in_the_deciding_word_gives_way(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture);
    static const uint64_t names[] = {1, 2, LEDGER_SLOTS, LEDGER_SLOTS + 1, UINT64_MAX};

    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        fixture->usage->gpus[0].deciding = (struct word128){.low = names[i], .high = UINT64_MAX};
        assert_true(ledger_reserve(&slot, 0, 1));
        assert_int_equal(ledger_slot_used(&slot, 0), i + 1);
    }
}

static void a_damaged_word_is_mended_when_its_slot_is_cleared(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture), other = fixture_slot(fixture);

    assert_true(ledger_reserve(&slot, 0, 1));
    fixture->usage->gpus[0].words[slot.index] = (struct word128){.low = GIB, .high = usage_first_stamp(77)};
    assert_false(ledger_reserve(&other, 0, 1));
    assert_true(ledger_slot_clear(fixture->usage, slot.index, NULL));
    assert_true(ledger_reserve(&other, 0, GIB));
}

struct scribbler {
    struct fixture *fixture;
    _Atomic bool end;
};

/* Only words that processes fight for: 2 GPUs' deciding words, first slots and joint places, and the owners of
 * those. */
static void *scribble(void *argument)
{
    struct scribbler *scribbler = argument;
    struct ledger_usage *usage = scribbler->fixture->usage;
    uint64_t random = SEED;

    while (!atomic_load_explicit(&scribbler->end, memory_order_relaxed)) {
        struct usage_gpu *there = &usage->gpus[draw(&random) % 2];
        uint64_t value = draw_nasty(&random), slot = draw(&random) % 4 + draw(&random) % 2 * LEDGER_SLOTS;
        uint64_t *places[] = {
            &there->deciding.low,     &there->deciding.high,    &there->words[slot].low,
            &there->words[slot].high, &usage->owners[slot].low, &usage->owners[slot].high,
        };
        __atomic_store_n(places[draw(&random) % 6], value, __ATOMIC_RELAXED);
        atomic_store_explicit(&usage->slots_marked, (uint32_t)value, memory_order_relaxed);
        atomic_store_explicit(&usage->joint_marked, (uint32_t)value, memory_order_relaxed);
        atomic_store_explicit(&usage->holders[draw(&random) % 4].words[0], value, memory_order_relaxed);
    }
    return NULL;
}

static void a_neighbour_that_scribbles_without_end_hangs_nobody(void **state)
{
    struct fixture *fixture = *state;
    struct scribbler scribbler = {.fixture = fixture};
    struct ledger_slot slot = fixture_slot(fixture);
    uint64_t random = SEED;
    pthread_t id;

    assert_int_equal(pthread_create(&id, NULL, scribble, &scribbler), 0);
    for (unsigned i = 0; i < 5000; i++)
        call_everything(fixture, &slot, &random);
    atomic_store(&scribbler.end, true);
    pthread_join(id, NULL);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(random_contents_do_no_harm),
        ROW(a_slot_number_out_of_range_does_no_harm),
        ROW(nonsense_in_the_deciding_word_gives_way),
        ROW(a_damaged_word_is_mended_when_its_slot_is_cleared),
        ROW(a_neighbour_that_scribbles_without_end_hangs_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
