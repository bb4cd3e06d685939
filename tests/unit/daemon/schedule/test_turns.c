/* Who had the turn from when to when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/schedule/turns.h"

struct seen {
    struct turn turns[8];
    unsigned count;
};

static void take(const struct turn *turn, void *context)
{
    struct seen *seen = context;
    if (seen->count < 8)
        seen->turns[seen->count] = *turn;
    seen->count++;
}

static struct seen list(const struct turns *turns, uint64_t since)
{
    struct seen seen = {0};
    turns_list(turns, since, take, &seen);
    return seen;
}

static void note(struct turns *turns, uint64_t session, enum arbiter_lease lease, uint64_t now)
{
    turns_note(turns, &(struct turn){.session = session, .gpus = 1, .lease = lease}, now);
}

static void a_turn_goes_from_its_first_notice_to_another_lease(void **state)
{
    struct turns *turns = turns_new();
    note(turns, 1, LEASE_EXCLUSIVE, 10);
    note(turns, 1, LEASE_EXCLUSIVE, 15);
    note(turns, 2, LEASE_EXCLUSIVE, 18);
    note(turns, 1, LEASE_NONE, 20);
    note(turns, 2, LEASE_LOOSE, 30);
    struct seen seen = list(turns, 0);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.turns[0].begin_ns, 10);
    assert_int_equal(seen.turns[0].end_ns, 20);
    assert_int_equal(seen.turns[1].session, 2);
    assert_int_equal(seen.turns[1].end_ns, 30);
    assert_int_equal(seen.turns[2].lease, LEASE_LOOSE);
    assert_int_equal(seen.turns[2].end_ns, 0);
    assert_int_equal(list(turns, 20).count, 2);
    turns_free(turns);
}

static void note_asked(struct turns *turns, uint64_t asked, unsigned steps, uint64_t now)
{
    const struct turn turn = {
        .session = 1, .gpus = 1, .lease = LEASE_EXCLUSIVE, .asked_ns = asked, .steps = steps};
    turns_note(turns, &turn, now);
}

static void a_turn_knows_when_it_was_asked_back(void **state)
{
    (void)state;
    struct turns *turns = turns_new();
    note_asked(turns, 0, 0, 10);
    note_asked(turns, 30, 0, 30);
    note_asked(turns, 30, 2, 31);
    note_asked(turns, 0, 0, 35); /* given again at once */
    struct seen seen = list(turns, 0);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.turns[0].asked_ns, 30);
    assert_int_equal(seen.turns[0].steps, 2);
    assert_int_equal(seen.turns[0].end_ns, 35);
    assert_int_equal(seen.turns[1].begin_ns, 35);
    assert_int_equal(seen.turns[1].asked_ns, 0);
    turns_free(turns);
}

static void a_free_gpu_has_no_turns(void **state)
{
    struct turns *turns = turns_new();
    note(turns, 1, LEASE_FREE, 10);
    note(turns, 1, LEASE_NONE, 20);
    assert_int_equal(list(turns, 0).count, 0);
    turns_free(turns);
}

static void the_oldest_are_forgotten(void **state)
{
    struct turns *turns = turns_new();
    for (uint64_t i = 0; i < TURNS_KEPT + 5; i++) {
        note(turns, 1, LEASE_EXCLUSIVE, 10 * i + 1);
        note(turns, 1, LEASE_NONE, 10 * i + 2);
    }
    struct seen seen = list(turns, 0);
    assert_int_equal(seen.count, TURNS_KEPT);
    assert_int_equal(seen.turns[0].begin_ns, 51);
    turns_free(turns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_turn_goes_from_its_first_notice_to_another_lease),
        cmocka_unit_test(a_turn_knows_when_it_was_asked_back),
        cmocka_unit_test(a_free_gpu_has_no_turns),
        cmocka_unit_test(the_oldest_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
