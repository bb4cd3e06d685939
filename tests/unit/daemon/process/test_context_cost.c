/* What a context costs. argv[1] is the led NVML. */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "../gpu/led_nvml.h"
#include "daemon/gpu/sampler.h"
#include "daemon/loop/daemon.h"
#include "daemon/process/context_cost.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"

static const char *library;
static struct led_nvml *led;
static struct daemon daemon_state;

/* Changes what NVML shows. */
#define LEAD(statement)                                                                                      \
    do {                                                                                                     \
        pthread_mutex_lock(&led->lock);                                                                      \
        statement;                                                                                           \
        pthread_mutex_unlock(&led->lock);                                                                    \
    } while (0)

static int begin(void **state)
{
    daemon_state = (struct daemon){.options.simulated = true};
    LEAD(led->init_result = led->memory_result = NVML_SUCCESS; led->card_count = 1; led->total_bytes = 1000;
         led->used_bytes = 0; led->is_partitioned = false; led->instances = 0; led->process_count = 0;
         led->bytes_of_each = 0; led->on_processes = NULL; led->entry_bytes = 0;
         led->processes_result = NVML_SUCCESS);
    return sd_event_new(&daemon_state.loop) < 0 ? -1 : 0;
}

static int end(void **state)
{
    gpu_stop(&daemon_state);
    sd_event_unref(daemon_state.loop);
    return 0;
}

static void start(void)
{
    struct error error = {0};
    if (gpu_start(&daemon_state, library, &error) < 0)
        fail_msg("%s", error.message);
}

static void set_true(void *argument)
{
    *(bool *)argument = true;
}

/* Run the loop until `*done`, at most a while. */
static void run_until(const bool *done)
{
    uint64_t limit = daemon_now_usec() + 20000000;
    while (!*done && daemon_now_usec() < limit)
        assert_true(sd_event_run(daemon_state.loop, 1000000) >= 0);
    assert_true(*done);
}

static void refresh(void)
{
    bool done = false;
    gpu_refresh(&daemon_state, set_true, &done);
    run_until(&done);
}

static struct session session;
static struct process process;
static struct ledger_policy *policy;
static struct ledger_slot slot;
static struct lock lock;

static int begin_session(void **state)
{
    assert_int_equal(begin(state), 0);
    start();
    policy = calloc(1, sizeof(*policy));
    struct ledger_usage *usage =
        mmap(NULL, ledger_usage_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ledger_policy_init(policy, "0123456789ab", 1);
    ledger_usage_init(usage, 1);
    policy->gpu_count = 1;
    policy->gpus[0].limit_bytes = 1000;
    session = (struct session){.daemon = &daemon_state, .gpu_count = 1};
    session.gpus[0].limit_bytes = 1000;
    session.ledger.policy = policy;
    session.ledger.usage = usage;
    process = (struct process){.session = &session, .pid = 77};
    slot = (struct ledger_slot){.ledger = {policy, usage}, .lock = &lock};
    slot.index = (uint32_t)ledger_slot_claim(usage, (struct ledger_owner){.pid = 77, .start_ticks = 1},
                                             &slot.generation);
    process.slot = slot.index;
    daemon_state.sessions = &session;
    LEAD(led->first_pid = 77; led->process_count = 1; led->bytes_of_each = 150);
    return 0;
}

static int end_session(void **state)
{
    int result = end(state); /* and with it the thread that may be looking */
    munmap(session.ledger.usage, ledger_usage_bytes());
    free(policy);
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

static void what_cannot_be_a_cost_is_none(void **state)
{
    LEAD(led->bytes_of_each = 1000); /* the whole card */
    assert_int_equal(measure(), 0);
    LEAD(led->bytes_of_each = NVML_VALUE_NOT_AVAILABLE_U64);
    assert_int_equal(measure(), 0);
    LEAD(led->first_pid = 78); /* not shown at all */
    assert_int_equal(measure(), 0);
    assert_int_equal(policy->gpus[0].context_bytes, 0);
}

static void a_measurement_whose_process_has_gone_answers_nobody(void **state)
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
        cmocka_unit_test_setup_teardown(it_is_what_nvml_shows_beyond_what_the_slot_holds, begin_session,
                                        end_session),
        cmocka_unit_test_setup_teardown(a_slot_that_changes_around_the_sample_is_sampled_again, begin_session,
                                        end_session),
        cmocka_unit_test_setup_teardown(a_slot_that_never_holds_still_is_not_measured, begin_session,
                                        end_session),
        cmocka_unit_test_setup_teardown(a_hung_nvml_measures_nothing_and_answers_in_time, begin_session,
                                        end_session),
        cmocka_unit_test_setup_teardown(what_cannot_be_a_cost_is_none, begin_session, end_session),
        cmocka_unit_test_setup_teardown(a_measurement_whose_process_has_gone_answers_nobody, begin_session,
                                        end_session),
    };
    if (count != 2) {
        fprintf(stderr, "usage: %s LED_NVML\n", arguments[0]);
        return 2;
    }
    library = arguments[1];
    void *handle = dlopen(library, RTLD_NOW);
    led = handle ? dlsym(handle, "led") : NULL;
    if (!led) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
