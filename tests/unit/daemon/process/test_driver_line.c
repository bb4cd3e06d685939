/* What the card holds for a session beyond what it charged. argv[1] is the led NVML. */
#include <stdlib.h>
#include <unistd.h>

#include "../gpu/led_session.h"
#include "daemon/gpu/nvml.h"
#include "daemon/loop/changes.h"
#include "daemon/process/driver_line.h"
#include "daemon/session/session_show.h"

#define NOBODYS_PID 0x3ffffff0 /* above any pid_max */

static int begin(void **state)
{
    struct error error = {0};
    assert_int_equal(begin_daemon(state), 0);
    LEAD(led->total_bytes = 4000);
    start();
    if (driver_line_start(&daemon_state, &error) < 0)
        return -1;
    make_session(NOBODYS_PID);
    session.processes = &process;
    return 0;
}

static int end(void **state)
{
    end_daemon(state);
    change_publish(&daemon_state, &(struct change){CHANGE_SESSION_GONE, .session = &session}, "gone");
    driver_line_stop(&daemon_state);
    free(process.driver_parts);
    forget_session();
    return 0;
}

static void it_is_what_nvml_shows_beyond_what_was_charged(void **state)
{
    assert_true(ledger_reserve(&slot, 0, 30));
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 120);
    assert_int_equal(policy->gpus[0].driver_bytes, 120);
    assert_int_equal(session_charged(&session, 0), 30);
    assert_int_equal(session_used(&session, 0), 150);
}

static void it_counts_at_the_next_request(void **state)
{
    refresh();
    assert_false(ledger_reserve(&slot, 0, LIMIT - 150 + 1));
    assert_true(ledger_reserve(&slot, 0, LIMIT - 150));
}

static void it_may_pass_the_limit_and_then_refuses_all(void **state)
{
    LEAD(led->bytes_of_each = 3 * LIMIT);
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 3 * LIMIT);
    assert_false(ledger_reserve(&slot, 0, 1));
    LEAD(led->bytes_of_each = 0);
    refresh();
    assert_true(ledger_reserve(&slot, 0, LIMIT));
}

/* Absent; 0 for a process that holds memory; no list. */
static void a_figure_that_nvml_does_not_have_changes_nothing(void **state)
{
    assert_true(ledger_reserve(&slot, 0, 30));
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 120);
    LEAD(led->bytes_of_each = NVML_VALUE_NOT_AVAILABLE_U64);
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 120);
    assert_int_equal(session.gpus[0].shown_bytes, 150);
    assert_true(daemon_state.gpus[0].is_silent);
    LEAD(led->bytes_of_each = 0);
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 120);
    LEAD(led->bytes_of_each = 40; led->processes_result = NVML_ERROR_NO_PERMISSION);
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 120);
    LEAD(led->processes_result = NVML_SUCCESS);
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 10);
}

/* NVML shows less of it than was charged. Memory that has come back by then left the sample under way with less, too. */
static void while_memory_is_away_it_stays_what_it_was(void **state)
{
    assert_true(ledger_reserve(&slot, 0, 100));
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 50);
    driver_line_hold(&process, true);
    LEAD(led->bytes_of_each = 60);
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 50);
    LEAD(led->bytes_of_each = 0);
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 50);
    assert_false(daemon_state.gpus[0].is_silent);
    driver_line_hold(&process, false);
    LEAD(led->bytes_of_each = 170);
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 70);
    change_publish(&daemon_state, &(struct change){CHANGE_SAMPLE_BEGINS}, "a sample begins");
    driver_line_hold(&process, true);
    driver_line_hold(&process, false);
    daemon_state.gpus[0].processes[0].used_bytes = 60;
    change_publish(&daemon_state, &(struct change){CHANGE_GPUS_SAMPLED}, "it is there");
    assert_int_equal(session.gpus[0].driver_bytes, 70);
}

static void it_is_never_below_nothing(void **state)
{
    assert_true(ledger_reserve(&slot, 0, 200));
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 0);
}

static void what_nvml_does_not_show_is_left_out(void **state)
{
    assert_true(ledger_reserve(&slot, 0, 400));
    ledger_hide(&slot, 0, 300);
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 50); /* 150 - (400 - 300) */
    ledger_unhide(&slot, 0, 300);
    ledger_release(&slot, 0, 300);
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 50);
}

/* A process that reserves, is stopped, and goes on to ask the driver. */
static void a_sample_between_reserving_and_asking_the_driver_tells_nothing(void **state)
{
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 150);
    ledger_move_begin(&slot, 0);
    assert_true(ledger_reserve(&slot, 0, 500));
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 150);
    LEAD(led->bytes_of_each = 650); /* the driver has taken it */
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 150);
    ledger_move_end(&slot, 0);
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 150);
    assert_int_equal(session_used(&session, 0), 650);
}

/* A pool that grew: the driver has taken it, and it is charged right after. */
static void a_sample_between_taking_and_charging_never_counts_twice(void **state)
{
    ledger_move_begin(&slot, 0);
    LEAD(led->bytes_of_each = 750);
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 0);
    ledger_charge(&slot, 0, 600);
    refresh();
    assert_int_equal(session_used(&session, 0), 750); /* no more can be the driver's, and no less */
    ledger_move_end(&slot, 0);
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 150);
    assert_int_equal(session_used(&session, 0), 750);
}

static void allocate_and_free(void)
{
    assert_true(ledger_reserve(&slot, 0, 20));
    ledger_release(&slot, 0, 10);
}

/* Seen twice, since what is shown may have been taken and not charged yet. */
static void a_slot_that_is_never_quiet_has_at_least_what_is_shown_beyond_its_most(void **state)
{
    assert_true(ledger_reserve(&slot, 0, 30));
    LEAD(led->on_processes = allocate_and_free);
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 0);
    refresh();
    assert_in_range(session.gpus[0].driver_bytes, 40, 150 - ledger_slot_used(&slot, 0));
    LEAD(led->bytes_of_each = 45);
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 45); /* no more than what is shown */
}

static unsigned changes;

static void allocate_once(void)
{
    if (changes++ == 0)
        ledger_reserve(&slot, 0, 50);
}

static void a_sample_during_which_the_slot_changed_is_taken_again_soon(void **state)
{
    changes = 0;
    LEAD(led->on_processes = allocate_once);
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 0); /* and not 150 */
    for (uint64_t until = daemon_now_usec() + 20000000;
         session.gpus[0].driver_bytes == 0 && daemon_now_usec() < until;)
        sd_event_run(daemon_state.loop, 1000000);
    assert_int_equal(session.gpus[0].driver_bytes, 100);
}

static void a_process_in_two_slots_counts_once(void **state)
{
    struct process second = {
        .session = &session, .pid = NOBODYS_PID, .start_ticks = 1, .slot = slot.index + 1};
    process.next = &second;
    assert_true(ledger_reserve(&slot, 0, 30));
    refresh();
    assert_int_equal(session.gpus[0].driver_bytes, 120);
    assert_int_equal(session.gpus[0].shown_bytes, 150);
    process.next = NULL;
    free(second.driver_parts);
}

static void what_is_shown_for_a_dead_process_is_an_orphan_until_it_is_gone(void **state)
{
    session.processes = NULL;
    driver_line_died(&session, LEDGER_SLOTS - 1, NOBODYS_PID, 1);
    refresh();
    assert_int_equal(session.gpus[0].orphan_bytes, 150);
    assert_int_equal(policy->gpus[0].orphan_bytes, 150);
    assert_int_equal(session_used(&session, 0), 150);
    assert_false(ledger_reserve(&slot, 0, LIMIT - 150 + 1));
    LEAD(led->process_count = 0);
    refresh();
    assert_int_equal(session_used(&session, 0), 0);
    assert_true(LIST_EMPTY(&session.orphans));
    assert_true(ledger_reserve(&slot, 0, LIMIT));
}

static void a_sample_from_before_a_death_says_nothing_of_the_dead(void **state)
{
    bool done = false;
    session.processes = NULL;
    pthread_mutex_lock(&led->lock);
    gpu_refresh(&daemon_state, set_true, &done);
    driver_line_died(&session, LEDGER_SLOTS - 1, NOBODYS_PID, 1);
    pthread_mutex_unlock(&led->lock);
    run_until(&done);
    assert_int_equal(session.gpus[0].orphan_bytes, 0);
    assert_false(LIST_EMPTY(&session.orphans));
    refresh();
    assert_int_equal(session.gpus[0].orphan_bytes, 150);
}

static void a_pid_of_another_process_is_not_an_orphan(void **state)
{
    session.processes = NULL;
    LEAD(led->first_pid = (unsigned)getpid());
    driver_line_died(&session, LEDGER_SLOTS - 1, getpid(), 1); /* we did not start with the machine */
    refresh();
    assert_int_equal(session.gpus[0].orphan_bytes, 0);
    assert_true(LIST_EMPTY(&session.orphans));
}

int main(int count, char **arguments)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(it_is_what_nvml_shows_beyond_what_was_charged),
        TEST(it_counts_at_the_next_request),
        TEST(it_may_pass_the_limit_and_then_refuses_all),
        TEST(a_figure_that_nvml_does_not_have_changes_nothing),
        TEST(while_memory_is_away_it_stays_what_it_was),
        TEST(it_is_never_below_nothing),
        TEST(what_nvml_does_not_show_is_left_out),
        TEST(a_sample_between_reserving_and_asking_the_driver_tells_nothing),
        TEST(a_sample_between_taking_and_charging_never_counts_twice),
        TEST(a_slot_that_is_never_quiet_has_at_least_what_is_shown_beyond_its_most),
        TEST(a_sample_during_which_the_slot_changed_is_taken_again_soon),
        TEST(a_process_in_two_slots_counts_once),
        TEST(what_is_shown_for_a_dead_process_is_an_orphan_until_it_is_gone),
        TEST(a_sample_from_before_a_death_says_nothing_of_the_dead),
        TEST(a_pid_of_another_process_is_not_an_orphan),
    };
    if (!lead_nvml(count, arguments))
        return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
