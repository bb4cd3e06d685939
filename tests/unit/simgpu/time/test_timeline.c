/* Tests of the simulated GPU's time, with a clock of their own: processes are slots, all in this one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "../../wrong.h"
#include "simgpu/time/timeline.h"

#define MS UINT64_C(1000000)
#define START UINT64_C(1000000000)

static const struct timeline_marks nothing;

static int timeline_make(void **state)
{
    *state = mmap(NULL, sizeof(struct timeline), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*state == MAP_FAILED)
        return -1;
    ((struct timeline *)*state)->rules.slice_ns = 2 * MS;
    return 0;
}

static int timeline_unmake(void **state)
{
    return munmap(*state, sizeof(struct timeline));
}

static uint64_t clock_now_ns, clock_step_ns;

static uint64_t read_clock(void)
{
    return clock_now_ns += clock_step_ns;
}

static struct timeline_marks submit(struct timeline *timeline, uint32_t slot, enum timeline_engine engine,
                                    uint64_t duration_ns, const struct timeline_marks *after, uint64_t now_ns)
{
    struct timeline_marks marks = *after;
    clock_now_ns = now_ns;
    assert_true(timeline_submit(timeline, slot, engine, duration_ns, after, read_clock, &marks.at[engine]));
    return marks;
}

static bool is_reached(struct timeline *timeline, uint32_t slot, const struct timeline_marks *marks,
                       uint64_t now_ns)
{
    struct timeline_marks served;
    timeline_look(timeline, slot, now_ns, &served);
    return timeline_marks_reached(marks, &served);
}

static void work_is_done_when_its_time_has_passed_since_it_was_submitted(void **state)
{
    struct timeline_marks marks = submit(*state, 0, TIMELINE_COMPUTE, 5 * MS, &nothing, START);
    assert_false(is_reached(*state, 0, &marks, START + 5 * MS - 1));
    assert_true(is_reached(*state, 0, &marks, START + 5 * MS));
    assert_int_equal(timeline_done_ns(*state, 0, TIMELINE_COMPUTE, marks.at[TIMELINE_COMPUTE]),
                     START + 5 * MS);
}

static void work_submitted_to_an_idle_device_begins_then_and_not_earlier(void **state)
{
    submit(*state, 0, TIMELINE_COMPUTE, 1 * MS, &nothing, START);
    struct timeline_marks marks = submit(*state, 0, TIMELINE_COMPUTE, 1 * MS, &nothing, START + 50 * MS);
    assert_false(is_reached(*state, 0, &marks, START + 51 * MS - 1));
    assert_true(is_reached(*state, 0, &marks, START + 51 * MS));
}

static void a_queue_is_served_in_order_and_engines_work_side_by_side(void **state)
{
    struct timeline_marks first = submit(*state, 0, TIMELINE_COMPUTE, 3 * MS, &nothing, START);
    struct timeline_marks second = submit(*state, 0, TIMELINE_COMPUTE, 4 * MS, &nothing, START);
    struct timeline_marks copy = submit(*state, 0, TIMELINE_COPY_IN, 5 * MS, &nothing, START);
    assert_true(is_reached(*state, 0, &second, START + 7 * MS));
    assert_int_equal(timeline_done_ns(*state, 0, TIMELINE_COMPUTE, first.at[TIMELINE_COMPUTE]),
                     START + 3 * MS);
    assert_int_equal(timeline_done_ns(*state, 0, TIMELINE_COMPUTE, second.at[TIMELINE_COMPUTE]),
                     START + 7 * MS);
    assert_int_equal(timeline_done_ns(*state, 0, TIMELINE_COPY_IN, copy.at[TIMELINE_COPY_IN]),
                     START + 5 * MS);
}

static void work_begins_after_what_it_depends_on_is_done(void **state)
{
    struct timeline_marks copy = submit(*state, 0, TIMELINE_COPY_IN, 10 * MS, &nothing, START);
    struct timeline_marks kernel = submit(*state, 0, TIMELINE_COMPUTE, 2 * MS, &copy, START);
    struct timeline_marks back = submit(*state, 0, TIMELINE_COPY_OUT, 3 * MS, &kernel, START);
    assert_false(is_reached(*state, 0, &back, START + 15 * MS - 1));
    assert_true(is_reached(*state, 0, &back, START + 15 * MS));
    assert_int_equal(timeline_done_ns(*state, 0, TIMELINE_COMPUTE, kernel.at[TIMELINE_COMPUTE]),
                     START + 12 * MS);
}

static void a_process_that_waits_for_its_own_copy_leaves_the_engine_to_others(void **state)
{
    struct timeline_marks copy = submit(*state, 0, TIMELINE_COPY_IN, 100 * MS, &nothing, START);
    submit(*state, 0, TIMELINE_COMPUTE, 1 * MS, &copy, START);
    struct timeline_marks other = submit(*state, 1, TIMELINE_COMPUTE, 10 * MS, &nothing, START);
    assert_true(is_reached(*state, 1, &other, START + 10 * MS));
}

static void two_processes_get_half_of_the_engine_each_in_slices_of_2_ms(void **state)
{
    struct timeline_marks long_work = submit(*state, 3, TIMELINE_COMPUTE, 20 * MS, &nothing, START);
    struct timeline_marks short_work = submit(*state, 9, TIMELINE_COMPUTE, 6 * MS, &nothing, START);
    assert_true(is_reached(*state, 3, &long_work, START + 26 * MS));
    /* 3 has 0-2, 4-6, 8-10 and all from 12 on; 9 has 2-4, 6-8, 10-12. */
    assert_int_equal(timeline_done_ns(*state, 9, TIMELINE_COMPUTE, short_work.at[TIMELINE_COMPUTE]),
                     START + 12 * MS);
    assert_int_equal(timeline_done_ns(*state, 3, TIMELINE_COMPUTE, long_work.at[TIMELINE_COMPUTE]),
                     START + 26 * MS);
}

/* It is over when its process has the engine again. */
static void what_watches_a_clock_goes_on_while_others_are_served(void **state)
{
    struct timeline_marks watching =
        submit(*state, 3, TIMELINE_COMPUTE, 5 * MS | TIMELINE_BY_CLOCK, &nothing, START);
    struct timeline_marks computing = submit(*state, 9, TIMELINE_COMPUTE, 5 * MS, &nothing, START);
    struct timeline_marks behind =
        submit(*state, 3, TIMELINE_COMPUTE, MS | TIMELINE_BY_CLOCK, &watching, START);
    assert_true(is_reached(*state, 9, &computing, START + 10 * MS));
    assert_true(is_reached(*state, 3, &behind, START + 10 * MS));
    /* 3 has 0-2 and 4-6; 9 has 2-4 and 6-9. */
    assert_int_equal(timeline_done_ns(*state, 3, TIMELINE_COMPUTE, watching.at[TIMELINE_COMPUTE]),
                     START + 5 * MS);
    assert_int_equal(timeline_done_ns(*state, 3, TIMELINE_COMPUTE, behind.at[TIMELINE_COMPUTE]),
                     START + 6 * MS);
    assert_int_equal(timeline_done_ns(*state, 9, TIMELINE_COMPUTE, computing.at[TIMELINE_COMPUTE]),
                     START + 9 * MS);
}

static void many_short_operations_share_as_a_long_one_does(void **state)
{
    struct timeline_marks last = nothing;
    for (unsigned i = 0; i < 1000; i++)
        last = submit(*state, 0, TIMELINE_COMPUTE, MS / 100, &nothing, START);
    struct timeline_marks long_work = submit(*state, 1, TIMELINE_COMPUTE, 10 * MS, &nothing, START);
    assert_true(is_reached(*state, 1, &long_work, START + 20 * MS));
    assert_true(is_reached(*state, 0, &last, START + 20 * MS));
    uint64_t short_ns = timeline_done_ns(*state, 0, TIMELINE_COMPUTE, last.at[TIMELINE_COMPUTE]);
    uint64_t long_ns = timeline_done_ns(*state, 1, TIMELINE_COMPUTE, long_work.at[TIMELINE_COMPUTE]);
    assert_int_equal(short_ns > long_ns ? short_ns : long_ns, START + 20 * MS);
    assert_int_equal(short_ns > long_ns ? short_ns - long_ns : long_ns - short_ns, 2 * MS);
}

/* Whoever looks, and however often, the same happens at the same time. */
static void looking_changes_nothing(void **state)
{
    uint64_t done[2][3];
    for (unsigned round = 0; round < 2; round++) {
        uint64_t begin = START + round * 1000 * MS;
        struct timeline_marks marks[3];
        for (uint32_t slot = 0; slot < 3; slot++)
            for (unsigned i = 0; i < 5; i++)
                marks[slot] = submit(*state, slot, TIMELINE_COMPUTE, (slot + 1) * MS * 17 / 10, &nothing,
                                     begin + i * MS / 3);
        srand(7);
        for (uint64_t now = begin + 2 * MS; round == 1 && now < begin + 60 * MS; now += (uint64_t)rand() % MS)
            is_reached(*state, (uint32_t)rand() % 3, &nothing, now);
        for (uint32_t slot = 0; slot < 3; slot++) {
            assert_true(is_reached(*state, slot, &marks[slot], begin + 60 * MS));
            done[round][slot] =
                timeline_done_ns(*state, slot, TIMELINE_COMPUTE, marks[slot].at[TIMELINE_COMPUTE]) - begin;
        }
    }
    for (uint32_t slot = 0; slot < 3; slot++)
        assert_int_equal(done[0][slot], done[1][slot]);
}

static void the_expected_time_is_when_it_happens(void **state)
{
    struct timeline_state *scratch = malloc(sizeof(*scratch));
    submit(*state, 0, TIMELINE_COMPUTE, 11 * MS, &nothing, START);
    struct timeline_marks marks = submit(*state, 1, TIMELINE_COMPUTE, 7 * MS, &nothing, START);
    /* 1 has 2-4, 6-8, 10-12, 14-15. */
    assert_int_equal(timeline_expect(*state, 1, &marks, START, scratch), START + 15 * MS);
    assert_false(is_reached(*state, 1, &marks, START + 15 * MS - 1));
    assert_true(is_reached(*state, 1, &marks, START + 15 * MS));
    free(scratch);
}

/* What a call does before it rings the doorbell takes time, in which the card has nothing of it. */
static void an_operation_begins_when_its_call_is_nearly_over(void **state)
{
    clock_step_ns = MS;
    struct timeline_marks marks = submit(*state, 0, TIMELINE_COMPUTE, 2 * MS, &nothing, START);
    clock_step_ns = 0;
    assert_true(clock_now_ns > START + MS);
    assert_false(is_reached(*state, 0, &marks, clock_now_ns + 2 * MS - 1));
    assert_true(is_reached(*state, 0, &marks, clock_now_ns + 2 * MS));
}

static void a_full_queue_refuses_until_a_look_finds_room(void **state)
{
    uint64_t mark;
    for (unsigned i = 0; i < TIMELINE_RING; i++)
        submit(*state, 0, TIMELINE_COMPUTE, MS, &nothing, START);
    assert_false(timeline_submit(*state, 0, TIMELINE_COMPUTE, MS, &nothing, read_clock, &mark));
    struct timeline_marks served;
    timeline_look(*state, 0, START + 3 * MS, &served);
    assert_int_equal(served.at[TIMELINE_COMPUTE], 3);
    for (unsigned i = 0; i < 3; i++)
        submit(*state, 0, TIMELINE_COMPUTE, MS, &nothing, START + 3 * MS);
    assert_false(timeline_submit(*state, 0, TIMELINE_COMPUTE, MS, &nothing, read_clock, &mark));
    timeline_look(*state, 0, START + (TIMELINE_RING + 3) * MS, &served);
    assert_int_equal(served.at[TIMELINE_COMPUTE], TIMELINE_RING + 3);
}

static void dropped_work_takes_no_time_from_others(void **state)
{
    _Atomic uint64_t generation = 5;
    submit(*state, 0, TIMELINE_COMPUTE, 1000 * MS, &nothing, START);
    struct timeline_marks marks = submit(*state, 1, TIMELINE_COMPUTE, 10 * MS, &nothing, START);
    timeline_drop(*state, 1, 0, &generation, 4, START + 4 * MS); /* somebody new: nothing happens */
    assert_int_equal(timeline_busy_slots(*state, (uint32_t[2]){0}, 2), 2);
    timeline_drop(*state, 1, 0, &generation, 5, START + 4 * MS);
    assert_int_equal(timeline_busy_slots(*state, (uint32_t[2]){0}, 2), 1);
    /* 2 ms of its 10 were done at 4. */
    assert_false(is_reached(*state, 1, &marks, START + 12 * MS - 1));
    assert_true(is_reached(*state, 1, &marks, START + 12 * MS));
}

static void a_slot_s_next_owner_begins_with_nothing_and_with_new_positions(void **state)
{
    struct timeline_marks old = submit(*state, 0, TIMELINE_COMPUTE, 1000 * MS, &nothing, START);
    timeline_slot_begin(*state, 0, START + MS);
    assert_int_equal(timeline_busy_slots(*state, (uint32_t[1]){0}, 1), 0);
    struct timeline_marks marks = submit(*state, 0, TIMELINE_COMPUTE, 2 * MS, &nothing, START + MS);
    assert_true(marks.at[TIMELINE_COMPUTE] > old.at[TIMELINE_COMPUTE]);
    assert_false(is_reached(*state, 0, &marks, START + 3 * MS - 1));
    assert_true(is_reached(*state, 0, &marks, START + 3 * MS));
}

static void a_host_function_holds_up_what_is_behind_it_until_it_returns(void **state)
{
    uint64_t mark;
    struct timeline_marks kernel = submit(*state, 0, TIMELINE_COMPUTE, 5 * MS, &nothing, START);
    struct timeline_marks host = submit(*state, 0, TIMELINE_HOST, 0, &kernel, START);
    struct timeline_marks after = submit(*state, 0, TIMELINE_COMPUTE, 1 * MS, &host, START);
    assert_false(timeline_host_ready(*state, 0, START + 5 * MS - 1, &mark));
    assert_true(timeline_host_ready(*state, 0, START + 5 * MS, &mark));
    assert_int_equal(mark, host.at[TIMELINE_HOST]);
    assert_false(is_reached(*state, 0, &after, START + 100 * MS));
    timeline_host_done(*state, 0, START + 100 * MS);
    assert_false(is_reached(*state, 0, &after, START + 101 * MS - 1));
    assert_true(is_reached(*state, 0, &after, START + 101 * MS));
}

static uint64_t computed(struct timeline *timeline, uint32_t slot, uint64_t now_ns)
{
    static struct timeline_state scratch;
    return timeline_computed_ns(timeline, slot, now_ns, &scratch);
}

static void the_time_that_a_slot_has_had_counts_what_runs_now(void **state)
{
    assert_int_equal(computed(*state, 0, START), 0);
    submit(*state, 0, TIMELINE_COMPUTE, 5 * MS, &nothing, START);
    submit(*state, 0, TIMELINE_COPY_IN, 5 * MS, &nothing, START); /* no kernel */
    assert_int_equal(computed(*state, 0, START + 3 * MS), 3 * MS);
    assert_int_equal(computed(*state, 0, START + 100 * MS), 5 * MS);
    assert_int_equal(computed(*state, 1, START + 100 * MS), 0);
}

static void the_time_that_slots_have_had_adds_up_to_all_there_was_when_many_short_ones_compete(void **state)
{
    for (unsigned i = 0; i < 1000; i++)
        for (uint32_t slot = 0; slot < 3; slot++)
            submit(*state, slot, TIMELINE_COMPUTE, MS / 100 + slot, &nothing, START);
    for (uint64_t now = START + MS / 3; now < START + 30 * MS; now += MS / 3) {
        uint64_t sum = 0;
        for (uint32_t slot = 0; slot < 3; slot++)
            sum += computed(*state, slot, now);
        assert_int_equal(sum, now - START);
        struct timeline_marks served;
        if (now & 1)
            timeline_look(*state, 0, now, &served);
    }
    for (uint32_t slot = 0; slot < 3; slot++)
        assert_int_equal(computed(*state, slot, START + 100 * MS), 1000 * (MS / 100 + slot));
}

static void the_time_that_a_slot_has_had_survives_its_owners(void **state)
{
    _Atomic uint64_t generation = 1;
    submit(*state, 1, TIMELINE_COMPUTE, 10 * MS, &nothing, START);
    timeline_drop(*state, 0, 1, &generation, 1, START + 3 * MS);
    assert_int_equal(computed(*state, 1, START + 4 * MS), 3 * MS);
    submit(*state, 1, TIMELINE_COMPUTE, 10 * MS, &nothing, START + 4 * MS);
    timeline_slot_begin(*state, 1, START + 6 * MS);
    assert_int_equal(computed(*state, 1, START + 6 * MS), 5 * MS);
    submit(*state, 1, TIMELINE_COMPUTE, 1 * MS, &nothing, START + 6 * MS);
    submit(*state, 1, TIMELINE_COMPUTE, 1 * MS, &nothing,
           START + 8 * MS); /* the entry had gone, in one step */
    assert_int_equal(computed(*state, 1, START + 20 * MS), 7 * MS);
}

/* The rules of a card: two processes with long kernels, 1 ms each in turn, and 0.1 ms for each switch. */
static void a_switch_takes_time_in_which_nobody_is_served(void **state)
{
    struct timeline *timeline = *state;
    timeline->rules = (struct timeline_rules){.slice_ns = 1 * MS, .switch_ns = MS / 10};
    struct timeline_marks first = submit(timeline, 0, TIMELINE_COMPUTE, 2 * MS, &nothing, START);
    struct timeline_marks second = submit(timeline, 1, TIMELINE_COMPUTE, 2 * MS, &nothing, START);
    uint64_t ends = START + 4 * MS + 2 * (MS / 10); /* 0, 1, 0, and 1 when 0 has nothing left */
    assert_false(is_reached(timeline, 1, &second, ends - 1));
    assert_true(is_reached(timeline, 1, &second, ends));
    assert_true(is_reached(timeline, 0, &first, ends));
    assert_int_equal(timeline_done_ns(timeline, 0, TIMELINE_COMPUTE, first.at[TIMELINE_COMPUTE]),
                     START + 3 * MS + 2 * (MS / 10));
    assert_int_equal(computed(timeline, 0, ends), 2 * MS);
    assert_int_equal(computed(timeline, 1, ends), 2 * MS);
}

static void a_switch_from_a_process_that_has_nothing_to_run_takes_its_own_time(void **state)
{
    struct timeline *timeline = *state;
    timeline->rules = (struct timeline_rules){.slice_ns = 1 * MS, .switch_ns = MS, .switch_idle_ns = MS / 20};
    submit(timeline, 0, TIMELINE_COMPUTE, MS / 2, &nothing, START);
    struct timeline_marks other = submit(timeline, 1, TIMELINE_COMPUTE, MS / 2, &nothing, START + 5 * MS);
    assert_false(is_reached(timeline, 1, &other, START + 5 * MS + MS / 2));
    assert_true(is_reached(timeline, 1, &other, START + 5 * MS + MS / 2 + MS / 20));
    struct timeline_marks again = submit(timeline, 1, TIMELINE_COMPUTE, MS / 2, &nothing, START + 9 * MS);
    assert_true(is_reached(timeline, 1, &again, START + 9 * MS + MS / 2));
}

/* 4,000 operations of 0.1 ms, 0.15 ms apart: the ring remembers a quarter of them. */
static void how_busy_a_slot_was_is_told_beyond_what_is_remembered(void **state)
{
    uint64_t now = START;
    struct timeline_marks served;
    for (unsigned i = 0; i < 4000; i++, now += 150 * (MS / 1000)) {
        submit(*state, 0, TIMELINE_COMPUTE, MS / 10, &nothing, now);
        timeline_look(*state, 0, now, &served);
    }
    timeline_look(*state, 0, now, &served);
    uint64_t busy = timeline_busy_ns(*state, 0, TIMELINE_COMPUTE, now - 500 * MS, now);
    assert_in_range(busy, 330 * MS, 337 * MS);
    assert_in_range(timeline_busy_ns(*state, 0, TIMELINE_COMPUTE, now - 15 * MS, now), 10 * MS - MS / 10,
                    10 * MS);
}

#define TIMELINE_TEST(name) cmocka_unit_test_setup_teardown(name, timeline_make, timeline_unmake)

/* Each is what a wrong rule would leave. */
static void a_state_that_does_not_go_together_is_caught(void **timeline)
{
    static struct timeline_state state;
    submit(*timeline, 5, TIMELINE_COMPUTE, 10 * MS, &nothing, START);
    submit(*timeline, 7, TIMELINE_COMPUTE, 10 * MS, &nothing, START);
    struct timeline *device = *timeline;
    struct timeline_state *current = &device->buffers[published_buffer(published_load(&device->current))];
    state = *current;
    assert_true(timeline_state_is_valid(&state));
#define ASSERT_WRONG(field, value)                                                                           \
    do {                                                                                                     \
        __typeof__(state.field) right = state.field;                                                         \
        state.field = value;                                                                                 \
        assert_false(timeline_state_is_valid(&state));                                                       \
        state.field = right;                                                                                 \
    } while (0)
    ASSERT_WRONG(entry_count, TIMELINE_SLOTS + 1);
    ASSERT_WRONG(completion_count, TIMELINE_COMPLETIONS + 1);
    ASSERT_WRONG(entries[0].slot, TIMELINE_SLOTS);
    ASSERT_WRONG(entries[0].slot, 9);
    ASSERT_WRONG(entries[0].engine[TIMELINE_COMPUTE].served, 2);
    ASSERT_WRONG(entries[0].engine[TIMELINE_COPY_IN].progress_ns, 1);
    ASSERT_WRONG(entries[0].begun_ns, UINT64_MAX);
#undef ASSERT_WRONG
    current->entries[1].engine[TIMELINE_COMPUTE].served = 2;
    ASSERT_CAUGHT(is_reached(device, 5, &nothing, START));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TIMELINE_TEST(work_is_done_when_its_time_has_passed_since_it_was_submitted),
        TIMELINE_TEST(a_state_that_does_not_go_together_is_caught),
        TIMELINE_TEST(work_submitted_to_an_idle_device_begins_then_and_not_earlier),
        TIMELINE_TEST(a_queue_is_served_in_order_and_engines_work_side_by_side),
        TIMELINE_TEST(work_begins_after_what_it_depends_on_is_done),
        TIMELINE_TEST(a_process_that_waits_for_its_own_copy_leaves_the_engine_to_others),
        TIMELINE_TEST(two_processes_get_half_of_the_engine_each_in_slices_of_2_ms),
        TIMELINE_TEST(what_watches_a_clock_goes_on_while_others_are_served),
        TIMELINE_TEST(many_short_operations_share_as_a_long_one_does),
        TIMELINE_TEST(looking_changes_nothing),
        TIMELINE_TEST(the_expected_time_is_when_it_happens),
        TIMELINE_TEST(an_operation_begins_when_its_call_is_nearly_over),
        TIMELINE_TEST(a_full_queue_refuses_until_a_look_finds_room),
        TIMELINE_TEST(dropped_work_takes_no_time_from_others),
        TIMELINE_TEST(a_slot_s_next_owner_begins_with_nothing_and_with_new_positions),
        TIMELINE_TEST(the_time_that_a_slot_has_had_counts_what_runs_now),
        TIMELINE_TEST(the_time_that_slots_have_had_adds_up_to_all_there_was_when_many_short_ones_compete),
        TIMELINE_TEST(the_time_that_a_slot_has_had_survives_its_owners),
        TIMELINE_TEST(how_busy_a_slot_was_is_told_beyond_what_is_remembered),
        TIMELINE_TEST(a_switch_takes_time_in_which_nobody_is_served),
        TIMELINE_TEST(a_switch_from_a_process_that_has_nothing_to_run_takes_its_own_time),
        TIMELINE_TEST(a_host_function_holds_up_what_is_behind_it_until_it_returns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
