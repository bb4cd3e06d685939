/* What a slot looks like to who compares it with the card, and what no slot says. */
#include "fixture.h"

static void a_slot_that_nobody_touches_rests(void **state)
{
    struct ledger_slot slot = fixture_slot(*state);
    assert_true(ledger_reserve(&slot, 1, 700));
    struct ledger_slot_sample before = ledger_slot_sample(slot.ledger.usage, slot.index, 1);
    struct ledger_slot_sample after = ledger_slot_sample(slot.ledger.usage, slot.index, 1);
    assert_int_equal(after.bytes, 700);
    assert_true(ledger_slot_rested(&before, &after));
    assert_true(ledger_reserve(&slot, 0, 1)); /* on another GPU */
    after = ledger_slot_sample(slot.ledger.usage, slot.index, 1);
    assert_true(ledger_slot_rested(&before, &after));
}

static void bytes_there_and_back_are_a_change(void **state)
{
    struct ledger_slot slot = fixture_slot(*state);
    assert_true(ledger_reserve(&slot, 0, 700));
    struct ledger_slot_sample before = ledger_slot_sample(slot.ledger.usage, slot.index, 0);
    assert_true(ledger_reserve(&slot, 0, 5));
    ledger_release(&slot, 0, 5);
    struct ledger_slot_sample after = ledger_slot_sample(slot.ledger.usage, slot.index, 0);
    assert_int_equal(after.bytes, before.bytes);
    assert_false(ledger_slot_rested(&before, &after));
}

static void a_slot_moves_until_its_last_thread_has_ended(void **state)
{
    struct ledger_slot slot = fixture_slot(*state);
    struct ledger_slot_sample before = ledger_slot_sample(slot.ledger.usage, slot.index, 1);
    ledger_move_begin(&slot, 0);
    ledger_move_begin(&slot, 3);
    ledger_move_end(&slot, 0);
    struct ledger_slot_sample during = ledger_slot_sample(slot.ledger.usage, slot.index, 1);
    ledger_move_end(&slot, 3);
    struct ledger_slot_sample after = ledger_slot_sample(slot.ledger.usage, slot.index, 1);
    assert_false(ledger_slot_rested(&before, &during));
    assert_false(ledger_slot_rested(&during, &after));
    assert_true(ledger_slot_rested(&before, &after));
}

static void every_thread_that_moves_shows(void **state)
{
    struct ledger_slot slot = fixture_slot(*state);
    /* Numbered ones, and two of those that are alike. */
    for (unsigned mover = 0; mover <= LEDGER_MOVERS + 1; mover++) {
        ledger_move_begin(&slot, mover);
        assert_true(ledger_slot_sample(slot.ledger.usage, slot.index, 0).moving);
        ledger_move_begin(&slot, LEDGER_MOVERS + 1);
        ledger_move_end(&slot, mover);
        assert_true(ledger_slot_sample(slot.ledger.usage, slot.index, 0).moving);
        ledger_move_end(&slot, LEDGER_MOVERS + 1);
        assert_false(ledger_slot_sample(slot.ledger.usage, slot.index, 0).moving);
    }
}

static void the_next_owner_inherits_no_movement_and_nothing_hidden(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture);
    assert_true(ledger_reserve(&slot, 0, 700));
    ledger_hide(&slot, 0, 300);
    ledger_move_begin(&slot, 0); /* and dies there, as another thread of it */
    ledger_move_begin(&slot, LEDGER_MOVERS);
    assert_true(ledger_slot_clear(fixture->usage, slot.index, NULL));
    struct ledger_slot next = fixture_slot(fixture);
    assert_int_equal(next.index, slot.index);
    struct ledger_slot_sample look = ledger_slot_sample(fixture->usage, next.index, 0);
    assert_false(look.moving);
    assert_int_equal(look.hidden_bytes, 0);
}

static void no_more_is_hidden_than_is_held(void **state)
{
    struct ledger_slot slot = fixture_slot(*state);
    assert_true(ledger_reserve(&slot, 0, 700));
    ledger_hide(&slot, 0, UINT64_MAX / 2);
    assert_int_equal(ledger_slot_sample(slot.ledger.usage, slot.index, 0).hidden_bytes, 700);
}

static void no_such_slot_or_gpu_always_moves(void **state)
{
    struct fixture *fixture = *state;
    assert_true(ledger_slot_sample(fixture->usage, LEDGER_SLOTS, 0).moving);
    assert_true(ledger_slot_sample(fixture->usage, 0, LEDGER_GPUS).moving);
}

static void what_no_slot_says_counts_at_requests_and_saturates(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture);
    fixture->policy->gpus[0].driver_bytes = GIB / 4;
    fixture->policy->gpus[0].orphan_bytes = GIB / 4;
    assert_int_equal(ledger_unseen(fixture->policy, 0), GIB / 2);
    assert_false(ledger_reserve(&slot, 0, GIB / 2 + 1));
    assert_true(ledger_reserve(&slot, 0, GIB / 2));
    assert_true(ledger_reserve(&slot, 1, GIB)); /* of that GPU alone */
    fixture->policy->gpus[0].driver_bytes = UINT64_MAX;
    assert_int_equal(ledger_unseen(fixture->policy, 0), UINT64_MAX);
    assert_false(ledger_reserve(&slot, 0, 1));
    assert_int_equal(ledger_unseen(fixture->policy, 2), 0); /* not of the session */
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        ROW(a_slot_that_nobody_touches_rests),
        ROW(bytes_there_and_back_are_a_change),
        ROW(a_slot_moves_until_its_last_thread_has_ended),
        ROW(every_thread_that_moves_shows),
        ROW(the_next_owner_inherits_no_movement_and_nothing_hidden),
        ROW(no_more_is_hidden_than_is_held),
        ROW(no_such_slot_or_gpu_always_moves),
        ROW(what_no_slot_says_counts_at_requests_and_saturates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
