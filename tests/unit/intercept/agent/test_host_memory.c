/* The agent page-locks host memory, and gives it back. The clock, and the memory that moves, are the test's. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "intercept/agent/agent.h"
#include "intercept/agent/agent_state.h"
#include "intercept/session/private.h"
#include "intercept/submit/gate.h"

#define MS_NS UINT64_C(1000000)
#define PIECE_NS (10 * MS_NS) /* what page-locking a piece takes */

static uint64_t now_ns;
static struct gate *gate;

static struct {
    unsigned pieces_left, pieces_done, chunks;
    bool refuses, keeps;
    uint64_t told_bytes;
} world;

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    *time = (struct timespec){.tv_sec = (time_t)(now_ns / UINT64_C(1000000000)),
                              .tv_nsec = (long)(now_ns % UINT64_C(1000000000))};
    return 0;
}

void __wrap_agent_tell(struct gate *of, struct wire_message *message);
void __wrap_agent_tell(struct gate *of, struct wire_message *message)
{
    world.told_bytes = message->moved.arena_bytes;
}

static int take_chunk(int fd, uint64_t bytes)
{
    world.chunks++;
    world.pieces_left += 4;
    return 0;
}

static int lock_pages(void)
{
    if (world.refuses)
        return -EAGAIN;
    if (!world.pieces_left)
        return 0;
    world.pieces_left--;
    world.pieces_done++;
    now_ns += PIECE_NS;
    return 1;
}

static void count(struct agent_memory *memory)
{
    *memory = (struct agent_memory){.arena_bytes = world.chunks};
}

static bool has_spare_chunk(void)
{
    return false;
}

static bool give_back_chunk(uint64_t keep_bytes)
{
    if (world.keeps || world.chunks <= keep_bytes)
        return false;
    world.chunks--;
    return true;
}

static const struct agent_mover mover = {.take_chunk = take_chunk,
                                         .lock_pages = lock_pages,
                                         .count = count,
                                         .has_spare_chunk = has_spare_chunk,
                                         .give_back_chunk = give_back_chunk};

static int set_up(void **state)
{
    memset(&world, 0, sizeof(world));
    memset(&agent.move, 0, sizeof(agent.move));
    now_ns = 1000000 * MS_NS;
    gate = gate_in(private_get());
    agent.connection.open = true;
    agent_set_mover(&mover);
    for (unsigned i = 0; i < 5; i++)
        agent_take_chunk(gate, &(struct wire_arena){.bytes = 1}, -1);
    return 0;
}

/* How many pieces it page-locks in so long. */
static unsigned pieces_in(uint64_t ns)
{
    unsigned before = world.pieces_done;
    for (uint64_t until_ns = now_ns + ns; now_ns < until_ns; now_ns += MS_NS)
        agent_serve_arena(gate);
    return world.pieces_done - before;
}

static void a_program_that_works_is_held_up_for_a_twentieth_of_the_time(void **state)
{
    assert_in_range(pieces_in(1000 * MS_NS), 4, 6);
}

static void a_program_at_rest_has_its_host_memory_page_locked_soon(void **state)
{
    agent.move.idleness.is_idle = true;
    assert_int_equal(pieces_in(500 * MS_NS), 20);
    assert_true(agent_move_pause_ns() > MS_NS); /* and nothing more is to do */
}

static void memory_that_is_away_waits_for_nothing(void **state)
{
    agent.move.is_away = true;
    assert_int_equal(pieces_in(500 * MS_NS), 20);
}

static void a_refusal_is_not_asked_for_again_at_once(void **state)
{
    agent.move.idleness.is_idle = world.refuses = true;
    assert_int_equal(pieces_in(100 * MS_NS), 0);
    world.refuses = false;
    assert_int_equal(pieces_in(4000 * MS_NS), 0);
    assert_int_equal(pieces_in(3000 * MS_NS), 20);
}

static void what_others_need_goes_back_chunk_by_chunk(void **state)
{
    agent_serve_spare(gate);
    assert_int_equal(world.chunks, 5);
    agent_keep(&(struct wire_keep){.most_bytes = 3});
    for (unsigned left = 4; left >= 3; left--) {
        assert_int_equal(agent_move_pause_ns(), 0);
        agent_serve_spare(gate);
        assert_int_equal(world.told_bytes, left);
    }
    agent_serve_spare(gate);
    agent_serve_spare(gate);
    assert_int_equal(world.chunks, 3);
    assert_true(agent_move_pause_ns() > 0 || world.pieces_left);
}

static void what_cannot_go_back_is_not_tried_without_end(void **state)
{
    world.keeps = true;
    agent_keep(&(struct wire_keep){.most_bytes = 0});
    agent_serve_spare(gate);
    assert_false(agent.move.gives_back);
    assert_int_equal(world.chunks, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_program_that_works_is_held_up_for_a_twentieth_of_the_time, set_up),
        cmocka_unit_test_setup(a_program_at_rest_has_its_host_memory_page_locked_soon, set_up),
        cmocka_unit_test_setup(memory_that_is_away_waits_for_nothing, set_up),
        cmocka_unit_test_setup(a_refusal_is_not_asked_for_again_at_once, set_up),
        cmocka_unit_test_setup(what_others_need_goes_back_chunk_by_chunk, set_up),
        cmocka_unit_test_setup(what_cannot_go_back_is_not_tried_without_end, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
