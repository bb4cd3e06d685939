/* What processes of a session hand to each other is known by name while its maker lives. */
#include "fixture.h"

static void a_name_is_known_while_its_owner_lives(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture), other = fixture_slot(fixture);
    assert_false(ledger_is_exported(&slot.ledger, 7));
    ledger_export(&slot, 7);
    ledger_export(&other, 8);
    assert_true(ledger_is_exported(&other.ledger, 7));
    assert_true(ledger_is_exported(&slot.ledger, 8));
    assert_true(ledger_slot_clear(fixture->usage, slot.index, NULL));
    assert_false(ledger_is_exported(&other.ledger, 7));
    assert_true(ledger_is_exported(&other.ledger, 8));
    slot = fixture_slot(fixture); /* the next owner of the slot exported nothing */
    assert_false(ledger_is_exported(&other.ledger, 7));
    ledger_export(&slot, 7);
    assert_true(ledger_is_exported(&other.ledger, 7));
}

static void names_that_meet_make_room_for_the_latest(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture);
    for (uint64_t i = 1; i <= 16; i++)
        ledger_export(&slot, i << 32);
    for (uint64_t i = 1; i <= 16; i++)
        assert_true(ledger_is_exported(&slot.ledger, i << 32));
    ledger_export(&slot, UINT64_C(17) << 32);
    assert_true(ledger_is_exported(&slot.ledger, UINT64_C(17) << 32));
}

static void an_owner_that_has_nothing_left_is_known_by_no_name(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_slot slot = fixture_slot(fixture), other = fixture_slot(fixture);
    ledger_export(&slot, 7);
    ledger_export(&slot, 8);
    ledger_export(&other, 9);
    assert_true(ledger_slot_has_exported(fixture->usage, slot.index));
    ledger_forget_exports(&slot);
    assert_false(ledger_slot_has_exported(fixture->usage, slot.index));
    assert_false(ledger_is_exported(&other.ledger, 7));
    assert_false(ledger_is_exported(&other.ledger, 8));
    assert_true(ledger_is_exported(&slot.ledger, 9));
    ledger_export(&slot, 7);
    assert_true(ledger_is_exported(&other.ledger, 7));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_name_is_known_while_its_owner_lives, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(an_owner_that_has_nothing_left_is_known_by_no_name, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(names_that_meet_make_room_for_the_latest, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
