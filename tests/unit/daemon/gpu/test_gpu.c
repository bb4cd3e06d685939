/* The cards as NVML shows them, also when it hangs. argv[1] is the led NVML. */
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "daemon/gpu/nvml.h"
#include "daemon/gpu/traits.h"
#include "led_daemon.h"

static void cards_are_listed_with_their_memory_and_processes(void **state)
{
    LEAD(led->used_bytes = 300; led->first_pid = 50; led->process_count = 40; led->bytes_of_each = 7);
    start();
    const struct gpu *gpu = &daemon_state.gpus[0];
    assert_int_equal(daemon_state.gpu_count, 1);
    assert_string_equal(gpu->uuid_text, "GPU-01234567-89ab-cdef-0123-456789abcdef");
    assert_string_equal(gpu->name, "Led");
    assert_int_equal(gpu->total_bytes, 1000);
    assert_int_equal(gpu->free_bytes, 700);
    assert_true(gpu->healthy);
    assert_int_equal(gpu->process_count, 40); /* more than the first guess has room for */
    assert_int_equal(gpu->processes[39].pid, 89);
    assert_int_equal(gpu->processes[39].used_bytes, 7);
    LEAD(led->used_bytes = 400; led->process_count = 1);
    refresh();
    assert_int_equal(gpu->used_bytes, 400);
    assert_int_equal(gpu->process_count, 1);
}

static void assert_memory(uint64_t total, uint64_t kept, uint64_t used, uint64_t free_bytes)
{
    const struct gpu *gpu = &daemon_state.gpus[0];
    assert_int_equal(gpu->total_bytes, total);
    assert_int_equal(gpu->kept_bytes, kept);
    assert_int_equal(gpu->used_bytes, used);
    assert_int_equal(gpu->free_bytes, free_bytes);
}

static atomic_uint asked;

static void note_asked(void)
{
    asked++;
}

/* Until NVML has been asked and has answered: on a busy machine an answer may take so long that it is left alone for a while. */
static void refresh_anew(void)
{
    uint64_t limit = daemon_now_usec() + 20000000;
    LEAD(asked = 0; led->on_processes = note_asked);
    for (refresh(); !asked; refresh()) {
        assert_true(daemon_now_usec() < limit);
        assert_true(sd_event_run(daemon_state.loop, 10000) >= 0);
    }
    refresh();
}

static void what_the_driver_keeps_is_not_for_programs(void **state)
{
    LEAD(led->used_bytes = 300; led->kept_bytes = 100);
    start();
    assert_memory(900, 100, 200, 700);
    LEAD(led->used_bytes = 500);
    refresh_anew();
    assert_memory(900, 100, 400, 500);
}

/* As of a GB10, which shares the host's memory; and of a GPU that CUDA knows to have its own. */
static void where_nvml_has_no_figures_cuda_and_the_processes_tell(void **state)
{
    const struct gpu *gpu = &daemon_state.gpus[0];
    LEAD(led->memory_result = NVML_ERROR_NOT_SUPPORTED; led->first_pid = 50; led->process_count = 3;
         led->bytes_of_each = 7);
    start();
    assert_int_equal(daemon_state.gpu_count, 1);
    assert_true(gpu->healthy && gpu_has(gpu, GPU_UNIFIED) && gpu->total_bytes > 1000);
    gpu_take_cuda_bytes(&daemon_state.gpus[0], 1000);
    assert_memory(1000, 0, 21, 979);
    gpu_take_traits(&daemon_state.gpus[0], GPU_TRAIT_BIT(GPU_UNIFIED));
    assert_non_null(gpu_why_stays(gpu, LEDGER_ENGINE_PLAIN));
    assert_int_equal(gpu->traits, GPU_TRAIT_BIT(GPU_UNIFIED));
    gpu_take_traits(&daemon_state.gpus[0], 0);
    assert_int_equal(gpu->traits, GPU_TRAIT_BIT(GPU_NO_FIGURES));
    assert_null(gpu_why_stays(gpu, LEDGER_ENGINE_SWAP));
    LEAD(led->process_count = 1);
    refresh_anew();
    assert_memory(1000, 0, 7, 993);
    LEAD(led->memory_result = NVML_SUCCESS; led->used_bytes = 300);
    refresh_anew();
    assert_memory(1000, 0, 300, 700);
    assert_int_equal(gpu->traits, 0);
}

/* Some versions of the driver answer with zeros instead. */
static void figures_of_zero_are_none(void **state)
{
    LEAD(led->total_bytes = 0);
    start();
    assert_true(gpu_has(&daemon_state.gpus[0], GPU_UNIFIED));
    assert_true(daemon_state.gpus[0].total_bytes > 0);
}

/* As with older drivers, under WSL, and where NVML says 0. */
static void where_nvml_does_not_tell_what_the_driver_keeps_cuda_does(void **state)
{
    LEAD(led->used_bytes = 300; led->kept_bytes = 100; led->kept_result = NVML_ERROR_UNKNOWN);
    start();
    assert_memory(1000, 0, 300, 700);
    gpu_take_cuda_bytes(&daemon_state.gpus[0], 900);
    assert_memory(900, 100, 200, 700);
    LEAD(led->kept_result = NVML_SUCCESS; led->kept_bytes = 0);
    refresh_anew();
    assert_memory(900, 100, 200, 700);
    LEAD(led->kept_bytes = 150); /* more than CUDA says: believed */
    refresh_anew();
    assert_memory(850, 150, 150, 700);
    LEAD(led->kept_bytes = 50); /* less */
    refresh_anew();
    assert_memory(900, 100, 200, 700);
    gpu_take_cuda_bytes(&daemon_state.gpus[0], 5000); /* cannot be */
    refresh_anew();
    assert_memory(950, 50, 250, 700);
}

/* Drivers' entries have 16, 24 and 32 bytes, under the same name. */
static void processes_are_read_whatever_their_entries_length(void **state)
{
    LEAD(led->first_pid = 50; led->process_count = 1; led->bytes_of_each = 7);
    start();
    const struct gpu *gpu = &daemon_state.gpus[0];
    for (unsigned bytes = 16; bytes <= 32; bytes += 8)
        for (unsigned count = 1; count < 200; count += 33) {
            LEAD(led->entry_bytes = bytes; led->process_count = count; led->bytes_of_each = 1000 + count);
            refresh_anew();
            assert_int_equal(gpu->process_count, count);
            for (unsigned i = 0; i < count; i++) {
                assert_int_equal(gpu->processes[i].pid, 50 + i);
                assert_int_equal(gpu->processes[i].used_bytes, 1000 + count);
                assert_true(gpu->processes[i].is_known);
            }
        }
    LEAD(led->entry_bytes = 8; led->process_count = 3); /* no form of NVIDIA's */
    refresh_anew();
    assert_int_equal(gpu->process_count, 0);
    assert_true(gpu->is_silent);
}

static void a_figure_that_is_absent_is_unknown(void **state)
{
    LEAD(led->first_pid = 50; led->process_count = 2; led->bytes_of_each = NVML_VALUE_NOT_AVAILABLE_U64);
    start();
    const struct gpu *gpu = &daemon_state.gpus[0];
    assert_int_equal(gpu->process_count, 2);
    assert_false(gpu->processes[0].is_known);
    assert_int_equal(gpu->processes[0].used_bytes, 0);
    assert_true(gpu->is_silent);
    LEAD(led->processes_result = NVML_ERROR_NO_PERMISSION);
    refresh();
    assert_int_equal(gpu->process_count, 0);
    assert_true(gpu->healthy);
}

static void a_driver_that_does_not_start_is_said_so(void **state)
{
    struct error error = {0};
    LEAD(led->init_result = NVML_ERROR_DRIVER_NOT_LOADED);
    assert_int_equal(gpu_start(&daemon_state, library, &error), -ENODEV);
    assert_non_null(strstr(error.message, "led astray"));
}

static void a_driver_without_cards_counts_as_missing(void **state)
{
    struct error error = {0};
    LEAD(led->card_count = 0);
    assert_int_equal(gpu_start(&daemon_state, library, &error), -ENODEV);
    assert_non_null(strstr(error.message, "--simulated"));
}

static void a_missing_library_is_not_a_driver(void **state)
{
    struct error error = {0};
    assert_int_equal(gpu_start(&daemon_state, "/nowhere/libnvidia-ml.so.1", &error), -ENODEV);
}

static void instances_are_listed_in_their_cards_place(void **state)
{
    struct error error = {0};
    unsigned found;
    LEAD(led->is_partitioned = true; led->instances = 1 << 1 | 1 << 4); /* destroyed ones leave gaps */
    start();
    assert_int_equal(daemon_state.gpu_count, 2);
    const struct gpu *gpu = &daemon_state.gpus[1];
    assert_int_equal(gpu->index, 0);
    assert_int_equal(gpu->mig_index, 4);
    assert_string_equal(gpu->label, "0:4");
    assert_string_equal(gpu->uuid_text, "MIG-01234567-89ab-cdef-0123-456789abcde4");
    assert_int_equal(gpu->total_bytes, 1000);
    assert_int_equal(gpu_find(&daemon_state, "0:4", &found, &error), 0);
    assert_int_equal(found, 1);
    assert_int_equal(gpu_find(&daemon_state, "0", &found, &error), -ENOENT);
    assert_non_null(strstr(error.message, "MIG mode"));
    assert_int_equal(gpu_find(&daemon_state, "0:2", &found, &error), -ENOENT);
    assert_int_equal(gpu_find(&daemon_state, "0:", &found, &error), -ENOENT);
    assert_int_equal(gpu_find(&daemon_state, "7", &found, &error), -ENOENT);
    assert_null(strstr(error.message, "MIG mode"));
}

static void a_card_in_mig_mode_without_instances_is_not_a_gpu(void **state)
{
    struct error error = {0};
    LEAD(led->is_partitioned = true);
    assert_int_equal(gpu_start(&daemon_state, library, &error), -ENODEV);
    assert_non_null(strstr(error.message, "MIG"));
}

static void a_hung_nvml_makes_cards_unhealthy_and_delays_nobody_for_ever(void **state)
{
    start();
    pthread_mutex_lock(&led->lock);
    refresh(); /* comes back without an answer */
    const struct gpu *gpu = &daemon_state.gpus[0];
    assert_false(gpu->healthy);
    assert_int_equal(gpu->total_bytes, 1000); /* the last that was known */
    bool done = false;
    gpu_refresh(&daemon_state, set_true, &done);
    assert_true(done); /* at once: it is known to hang */
    pthread_mutex_unlock(&led->lock);
    uint64_t limit = daemon_now_usec() + 20000000;
    while (!gpu->healthy && daemon_now_usec() < limit)
        sd_event_run(daemon_state.loop, 100000);
    assert_true(gpu->healthy);
}

static void take_30_ms(void)
{
    asked++;
    usleep(30000);
}

/* Programs' allocations wait for the driver's locks, which NVML holds. */
static void an_nvml_that_takes_long_is_asked_seldom(void **state)
{
    LEAD(led->on_processes = take_30_ms);
    start();
    refresh();
    LEAD(asked = 0; led->used_bytes = 77);
    for (uint64_t end = daemon_now_usec() + 500000; daemon_now_usec() < end;) {
        gpu_sample_soon(&daemon_state);
        refresh(); /* answered with what is known */
        assert_true(sd_event_run(daemon_state.loop, 10000) >= 0);
    }
    LEAD(assert_int_equal(asked, 0));
    for (uint64_t end = daemon_now_usec() + 20000000; daemon_state.gpus[0].used_bytes != 77;) {
        assert_true(daemon_now_usec() < end);
        assert_true(sd_event_run(daemon_state.loop, 100000) >= 0);
    }
}

static void an_error_about_a_card_makes_it_unhealthy_until_it_is_over(void **state)
{
    start();
    LEAD(led->memory_result = NVML_ERROR_GPU_IS_LOST);
    refresh();
    assert_false(daemon_state.gpus[0].healthy);
    LEAD(led->memory_result = NVML_SUCCESS);
    refresh();
    assert_true(daemon_state.gpus[0].healthy);
}

/* Or else a session on it would be charged for ever for how busy it was last. */
static void how_busy_an_unhealthy_card_is_is_not_known(void **state)
{
    LEAD(led->first_pid = 50; led->process_count = 1; led->bytes_of_each = 7; led->busy_percent = 90);
    start();
    const struct gpu *gpu = &daemon_state.gpus[0];
    assert_int_equal(gpu->busy_percent, 90);
    assert_int_equal(gpu->heat.celsius, 61);
    assert_int_equal(gpu->heat.milliwatts, GPU_HEAT_UNKNOWN); /* NVML does not say */
    assert_int_equal(gpu->processes[0].busy_percent, 90);
    LEAD(led->memory_result = NVML_ERROR_GPU_IS_LOST);
    refresh();
    assert_int_equal(gpu->busy_percent, -1);
    assert_int_equal(gpu->heat.celsius, GPU_HEAT_UNKNOWN);
    assert_int_equal(gpu->processes[0].busy_percent, -1);
    assert_int_equal(gpu->processes[0].used_bytes, 7); /* the last that was known */
    LEAD(led->memory_result = NVML_SUCCESS);
    refresh();
    assert_int_equal(gpu->busy_percent, 90);
    assert_int_equal(gpu->processes[0].busy_percent, 90);
}

static void a_lost_card_is_left_out_when_the_daemon_starts(void **state)
{
    LEAD(led->card_count = 3; led->lost_cards = 1 << 1);
    start();
    assert_int_equal(daemon_state.gpu_count, 2);
    assert_string_equal(daemon_state.gpus[0].label, "0");
    assert_string_equal(daemon_state.gpus[1].label, "2");
    assert_true(daemon_state.gpus[1].healthy);
    assert_int_equal(daemon_state.gpus[1].total_bytes, 1000);
}

static void without_any_card_that_is_not_lost_the_daemon_does_not_start(void **state)
{
    struct error error = {0};
    LEAD(led->lost_cards = 1 << 0);
    assert_int_equal(gpu_start(&daemon_state, library, &error), -ENODEV);
    assert_string_equal(error.message, "NVML cannot find GPU 0: led astray; see nvidia-smi");
}

static void a_card_whose_memory_nvml_does_not_tell_is_not_served(void **state)
{
    struct error error = {0};
    LEAD(led->memory_result = NVML_ERROR_GPU_IS_LOST);
    assert_int_equal(gpu_start(&daemon_state, library, &error), -ENODEV);
    assert_string_equal(error.message, "NVML cannot tell the memory of GPU 0: led astray; see nvidia-smi");
}

/* What NVML told of the first GPU's activity. */
struct activity {
    bool is_there, is_known;
    unsigned count, pid, percent;
    uint64_t usec;
};

static void take_activity(void *argument, const struct nvml_sample *samples, uint64_t took_usec)
{
    struct activity *activity = argument;
    *activity = (struct activity){.is_there = true,
                                  .is_known = samples[0].knows_activity,
                                  .count = samples[0].activity_count,
                                  .usec = samples[0].activity_usec};
    if (activity->count) {
        activity->pid = (unsigned)samples[0].activity[0].pid;
        activity->percent = samples[0].activity[0].percent;
    }
}

static struct activity ask_activity(void)
{
    struct activity activity = {0};
    assert_true(gpu_activity(&daemon_state, 1, take_activity, &activity));
    assert_false(gpu_activity(&daemon_state, 1, take_activity, &activity)); /* one at a time */
    run_until(&activity.is_there);
    return activity;
}

static void activity_is_of_the_time_since_the_last_question(void **state)
{
    LEAD(led->first_pid = 50; led->process_count = 1; led->busy_percent = 40);
    start();
    struct activity first = ask_activity();
    assert_true(first.is_known);
    assert_int_equal(first.count, 1);
    assert_int_equal(first.pid, 50);
    assert_int_equal(first.percent, 40);
    assert_int_equal(first.usec, 1000000); /* nobody asked before */
    uint64_t from_usec = daemon_now_usec();
    LEAD(led->busy_percent = 0);
    struct activity second = ask_activity();
    assert_true(second.is_known);
    assert_int_equal(second.count, 0);
    assert_true(second.usec > 0 && second.usec < 1000000 + daemon_now_usec() - from_usec);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cards_are_listed_with_their_memory_and_processes, begin_daemon,
                                        end_daemon),
        cmocka_unit_test_setup_teardown(what_the_driver_keeps_is_not_for_programs, begin_daemon, end_daemon),
        cmocka_unit_test_setup_teardown(where_nvml_does_not_tell_what_the_driver_keeps_cuda_does,
                                        begin_daemon, end_daemon),
        cmocka_unit_test_setup_teardown(where_nvml_has_no_figures_cuda_and_the_processes_tell, begin_daemon,
                                        end_daemon),
        cmocka_unit_test_setup_teardown(figures_of_zero_are_none, begin_daemon, end_daemon),
        cmocka_unit_test_setup_teardown(processes_are_read_whatever_their_entries_length, begin_daemon,
                                        end_daemon),
        cmocka_unit_test_setup_teardown(a_figure_that_is_absent_is_unknown, begin_daemon, end_daemon),
        cmocka_unit_test_setup_teardown(a_driver_that_does_not_start_is_said_so, begin_daemon, end_daemon),
        cmocka_unit_test_setup_teardown(a_driver_without_cards_counts_as_missing, begin_daemon, end_daemon),
        cmocka_unit_test_setup_teardown(a_missing_library_is_not_a_driver, begin_daemon, end_daemon),
        cmocka_unit_test_setup_teardown(instances_are_listed_in_their_cards_place, begin_daemon, end_daemon),
        cmocka_unit_test_setup_teardown(a_card_in_mig_mode_without_instances_is_not_a_gpu, begin_daemon,
                                        end_daemon),
        cmocka_unit_test_setup_teardown(a_hung_nvml_makes_cards_unhealthy_and_delays_nobody_for_ever,
                                        begin_daemon, end_daemon),
        cmocka_unit_test_setup_teardown(an_nvml_that_takes_long_is_asked_seldom, begin_daemon, end_daemon),
        cmocka_unit_test_setup_teardown(an_error_about_a_card_makes_it_unhealthy_until_it_is_over,
                                        begin_daemon, end_daemon),
        cmocka_unit_test_setup_teardown(how_busy_an_unhealthy_card_is_is_not_known, begin_daemon, end_daemon),
        cmocka_unit_test_setup_teardown(a_lost_card_is_left_out_when_the_daemon_starts, begin_daemon,
                                        end_daemon),
        cmocka_unit_test_setup_teardown(without_any_card_that_is_not_lost_the_daemon_does_not_start,
                                        begin_daemon, end_daemon),
        cmocka_unit_test_setup_teardown(a_card_whose_memory_nvml_does_not_tell_is_not_served, begin_daemon,
                                        end_daemon),
        cmocka_unit_test_setup_teardown(activity_is_of_the_time_since_the_last_question, begin_daemon,
                                        end_daemon),
    };
    if (!lead_nvml(count, arguments))
        return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
