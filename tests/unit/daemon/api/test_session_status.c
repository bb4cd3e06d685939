/* The one word that says what a session does: which row of statuses.def holds. What the session's memory and its turns
 * look like is the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/api/session_status.h"
#include "daemon/residency/moves.h"
#include "daemon/schedule/standing.h"
#include "daemon/session/session.h"

static struct moves_standing memory;
static struct standing turns;

struct moves_standing __wrap_moves_standing(const struct session *session);
struct standing __wrap_standing_of(const struct session *session);

struct moves_standing __wrap_moves_standing(const struct session *session)
{
    return memory;
}

struct standing __wrap_standing_of(const struct session *session)
{
    return turns;
}

static const char *word(enum session_state state, unsigned processes, struct moves_standing standing)
{
    struct session session = {.state = state, .process_count = processes};
    memory = standing;
    return session_status_word(session_status(&session));
}

#define MEMORY(...) ((struct moves_standing){__VA_ARGS__})

static void a_session_on_the_card_is_active_with_programs_and_idle_without(void **state)
{
    turns = (struct standing){0};
    assert_string_equal(word(SESSION_ACTIVE, 1, MEMORY(.state = MOVE_RESIDENT)), "active");
    assert_string_equal(word(SESSION_ACTIVE, 0, MEMORY(.state = MOVE_RESIDENT)), "idle");
    turns.is_undrainable = true;
    assert_string_equal(word(SESSION_ACTIVE, 1, MEMORY(.state = MOVE_RESIDENT)), "undrainable");
}

static void the_end_of_its_life_comes_before_its_memory(void **state)
{
    assert_string_equal(word(SESSION_QUEUED, 0, MEMORY(.state = MOVE_RESIDENT)), "queued");
    assert_string_equal(word(SESSION_EXPIRED, 1, MEMORY(.state = MOVE_AWAY)), "expired");
}

static void memory_that_is_away_says_why(void **state)
{
    assert_string_equal(word(SESSION_ACTIVE, 1, MEMORY(.state = MOVE_AWAY, .cause = MOVE_BY_USER)),
                        "suspended");
    assert_string_equal(word(SESSION_ACTIVE, 1, MEMORY(.state = MOVE_AWAY, .cause = MOVE_BY_IDLE)), "asleep");
    assert_string_equal(word(SESSION_ACTIVE, 1, MEMORY(.state = MOVE_AWAY, .cause = MOVE_BY_NEED)), "away");
    assert_string_equal(word(SESSION_ACTIVE, 1, MEMORY(.state = MOVE_PARTLY_AWAY)), "partly away");
    assert_string_equal(word(SESSION_ACTIVE, 1, MEMORY(.state = MOVE_LEAVING)), "leaving");
    assert_string_equal(word(SESSION_ACTIVE, 1, MEMORY(.state = MOVE_COMING)), "coming");
}

static void who_waits_for_room_says_so_wherever_its_memory_is(void **state)
{
    assert_string_equal(word(SESSION_ACTIVE, 1, MEMORY(.state = MOVE_RESIDENT, .waits = true)), "needs room");
    assert_string_equal(
        word(SESSION_ACTIVE, 1, MEMORY(.state = MOVE_AWAY, .cause = MOVE_BY_NEED, .waits = true)),
        "needs room");
    assert_string_equal(session_status_tone(STATUS_NO_ROOM), "waits");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_on_the_card_is_active_with_programs_and_idle_without),
        cmocka_unit_test(the_end_of_its_life_comes_before_its_memory),
        cmocka_unit_test(memory_that_is_away_says_why),
        cmocka_unit_test(who_waits_for_room_says_so_wherever_its_memory_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
