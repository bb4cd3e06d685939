/* What a context costs. argv[1] is the led NVML. */

#include "../gpu/led_session.h"
#include "daemon/process/context_cost.h"

static int begin(void **state)
{
    assert_int_equal(begin_daemon(state), 0);
    start();
    make_session(77);
    return 0;
}

static int end(void **state)
{
    int result = end_daemon(state); /* and with it the thread that may be looking */
    forget_session();
    return result;
}

struct cost {
    bool is_known;
    uint64_t bytes;
};

static void on_cost(void *argument, uint64_t bytes)
{
    struct cost *cost = argument;
    cost->is_known = true;
    cost->bytes = bytes;
}

static uint64_t measure(void)
{
    struct cost cost = {0};
    assert_true(context_cost_measure(&process, 0, on_cost, &cost));
    run_until(&cost.is_known);
    assert_null(process.measurement);
    return cost.bytes;
}

static void it_is_what_nvml_shows_beyond_what_the_slot_holds(void **state)
{
    assert_true(ledger_reserve(&slot, 0, 30));
    assert_int_equal(measure(), 120);
    assert_int_equal(policy->gpus[0].context_bytes, 120);
    assert_int_equal(daemon_state.gpus[0].context_bytes, 120);
}

static unsigned changes;

/* The program allocates while NVML looks: the first sample is void. */
static void allocate_once(void)
{
    if (changes++ == 0)
        ledger_reserve(&slot, 0, 50);
}

static void a_slot_that_changes_around_the_sample_is_sampled_again(void **state)
{
    changes = 0;
    LEAD(led->on_processes = allocate_once);
    assert_int_equal(measure(), 100); /* 150 - 50, and not 150 */
    assert_true(changes >= 2);
}

static void allocate_and_free(void)
{
    if (ledger_reserve(&slot, 0, 1))
        ledger_release(&slot, 0, 1);
}

static void a_slot_that_never_holds_still_is_not_measured(void **state)
{
    LEAD(led->on_processes = allocate_and_free);
    assert_int_equal(measure(), 0);
    assert_int_equal(policy->gpus[0].context_bytes, 0);
}

static void a_hung_nvml_measures_nothing_and_answers_in_time(void **state)
{
    pthread_mutex_lock(&led->lock);
    uint64_t bytes = measure();
    pthread_mutex_unlock(&led->lock);
    assert_int_equal(bytes, 0);
    assert_int_equal(policy->gpus[0].context_bytes, 0);
}

static void an_impossible_figure_is_not_taken_as_a_cost(void **state)
{
    LEAD(led->bytes_of_each = 1000); /* the whole card */
    assert_int_equal(measure(), 0);
    LEAD(led->bytes_of_each = NVML_VALUE_NOT_AVAILABLE_U64);
    assert_int_equal(measure(), 0);
    LEAD(led->first_pid = 78); /* not shown at all */
    assert_int_equal(measure(), 0);
    assert_int_equal(policy->gpus[0].context_bytes, 0);
}

static void a_measurement_without_its_process_sends_no_answer(void **state)
{
    struct cost cost = {0};
    pthread_mutex_lock(&led->lock);
    assert_true(context_cost_measure(&process, 0, on_cost, &cost));
    context_cost_cancel(&process);
    pthread_mutex_unlock(&led->lock);
    refresh();
    assert_false(cost.is_known);
    assert_null(process.measurement);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_is_what_nvml_shows_beyond_what_the_slot_holds, begin, end),
        cmocka_unit_test_setup_teardown(a_slot_that_changes_around_the_sample_is_sampled_again, begin, end),
        cmocka_unit_test_setup_teardown(a_slot_that_never_holds_still_is_not_measured, begin, end),
        cmocka_unit_test_setup_teardown(a_hung_nvml_measures_nothing_and_answers_in_time, begin, end),
        cmocka_unit_test_setup_teardown(an_impossible_figure_is_not_taken_as_a_cost, begin, end),
        cmocka_unit_test_setup_teardown(a_measurement_without_its_process_sends_no_answer, begin, end),
    };
    if (!lead_nvml(count, arguments))
        return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
