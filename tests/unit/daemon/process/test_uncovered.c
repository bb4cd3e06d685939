/* Programs outside of every session, where NVML fails. argv[1] is the led NVML. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../gpu/led_daemon.h"
#include "base/clock.h"
#include "daemon/loop/changes.h"
#include "daemon/process/uncovered.h"

#define SECOND_NS UINT64_C(1000000000)

static uint64_t later_ns; /* how far the daemon's clock is ahead */

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    int result = __real_clock_gettime(clock, time);
    time->tv_sec += (time_t)(later_ns / SECOND_NS);
    return result;
}

static pid_t outside; /* a program that holds memory */
static unsigned told, warned, stopped;
static char warning[512];
static uid_t warned_uid;
static int terminal = -1, terminal_of_program = -1; /* both ends of a pseudo-terminal */

static void note(void *context, const struct change *change)
{
    told += change->kind == CHANGE_PROCESS_UNCOVERED;
    stopped += change->kind == CHANGE_PROCESS_STOPPED;
    if (change->kind == CHANGE_PROCESS_WARNED) {
        warned++;
        warned_uid = change->uid;
        snprintf(warning, sizeof(warning), "%s", change->message);
    }
}

static struct observer observer = {.take = note};

/* A program that has the simulated driver's device open, unless `has_device` is false. */
static bool has_device = true;

static pid_t start_program(void)
{
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char path[64];
        snprintf(path, sizeof(path), "/dev/shm/fakecuda-0-unit-test-%d", (int)getpid());
        if (has_device && open(path, O_RDWR | O_CREAT, 0600) < 0)
            _exit(1);
        unlink(path);
        if (terminal_of_program >= 0)
            dup2(terminal_of_program, STDERR_FILENO);
        close(ends[1]);
        pause();
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 0); /* it has opened what it opens */
    close(ends[0]);
    return pid;
}

static int begin(void **state)
{
    struct error error = {0};
    later_ns = told = warned = stopped = 0;
    outside = start_program();
    assert_int_equal(begin_daemon(state), 0);
    daemon_state.options.system = daemon_state.options.simulated = true;
    daemon_state.config.daemon.stop_uncovered = CONFIG_STOP_YES;
    daemon_state.config.daemon.stop_uncovered_root = true;
    daemon_state.config.daemon.stop_uncovered_grace_seconds = 60;
    LEAD(led->first_pid = (unsigned)outside; led->process_count = 1; led->bytes_of_each = 7);
    change_observe(&daemon_state, &observer);
    if (uncovered_start(&daemon_state, &error) < 0)
        return -1;
    start();
    return 0;
}

static int end(void **state)
{
    kill(outside, SIGKILL);
    waitpid(outside, NULL, 0);
    uncovered_stop(&daemon_state);
    change_observe_no_more(&daemon_state, &observer);
    return end_daemon(state);
}

/* What NVML showed last of a card that was lost is old: nobody is ended for that. */
static void a_lost_cards_last_figures_end_no_program(void **state)
{
    LEAD(led->memory_result = NVML_ERROR_GPU_IS_LOST);
    for (int i = 0; i < 5; i++) {
        later_ns += 4 * SECOND_NS;
        refresh();
    }
    assert_int_equal(told, 0);
    assert_int_equal(stopped, 0);
    LEAD(led->memory_result = NVML_SUCCESS);
    refresh(); /* it is known for long enough */
    assert_int_equal(told, 1);
    assert_int_equal(stopped, 0);
    later_ns += 61 * SECOND_NS;
    refresh();
    assert_int_equal(stopped, 1);
    int status;
    assert_int_equal(waitpid(outside, &status, 0), outside);
    assert_int_equal(WTERMSIG(status), SIGTERM);
}

static void it_is_told_of_once_though_nvml_fails_in_between(void **state)
{
    daemon_state.config.daemon.stop_uncovered = CONFIG_STOP_NO;
    later_ns += 4 * SECOND_NS;
    refresh();
    assert_int_equal(told, 1);
    LEAD(led->memory_result = NVML_ERROR_GPU_IS_LOST);
    refresh();
    LEAD(led->memory_result = NVML_SUCCESS);
    later_ns += 4 * SECOND_NS;
    refresh();
    later_ns += 4 * SECOND_NS;
    refresh();
    assert_int_equal(told, 1);
}

/* NVML goes on listing a process that has died, and the next process of that number has nothing to do with the GPU. */
static void a_pid_that_another_process_had_ends_no_program(void **state)
{
    kill(outside, SIGKILL);
    waitpid(outside, NULL, 0);
    refresh();
    has_device = false;
    outside = start_program();
    has_device = true;
    LEAD(led->first_pid = (unsigned)outside);
    for (int i = 0; i < 5; i++) {
        later_ns += 4 * SECOND_NS;
        refresh();
    }
    assert_int_equal(told, 0);
    assert_int_equal(stopped, 0);
    assert_int_equal(kill(outside, 0), 0);
}

static int begin_with_terminal(void **state)
{
    terminal = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    if (terminal < 0 || grantpt(terminal) < 0 || unlockpt(terminal) < 0)
        return -1;
    terminal_of_program = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    int result = terminal_of_program < 0 ? -1 : begin(state);
    close(terminal_of_program);
    terminal_of_program = -1;
    return result;
}

static int end_with_terminal(void **state)
{
    close(terminal);
    return end(state);
}

static const char *shown_on_terminal(void)
{
    static char text[1024];
    ssize_t length = read(terminal, text, sizeof(text) - 1);
    text[length > 0 ? length : 0] = '\0';
    return text;
}

static void its_user_is_told_long_before_it_is_ended(void **state)
{
    later_ns += 4 * SECOND_NS;
    refresh();
    assert_int_equal(warned, 1);
    assert_int_equal(warned_uid, getuid());
    assert_non_null(
        strstr(warning, "will be ended in 60 s; start it with 'gpuslice run' (its terminal shows this too)"));
    assert_non_null(strstr(shown_on_terminal(),
                           "holds 7B of GPU memory outside of every session and will be ended in 60 s"));
    later_ns += 59 * SECOND_NS;
    refresh();
    assert_int_equal(stopped, 0);
    later_ns += 2 * SECOND_NS;
    refresh();
    assert_int_equal(stopped, 1);
    assert_int_equal(warned, 1);
    assert_non_null(strstr(shown_on_terminal(), "is sent SIGTERM"));
}

static void a_report_ends_nothing_and_does_not_count_as_the_notice(void **state)
{
    daemon_state.config.daemon.stop_uncovered = CONFIG_STOP_REPORT;
    for (int i = 0; i < 5; i++) {
        later_ns += 40 * SECOND_NS;
        refresh();
    }
    assert_int_equal(warned, 1);
    assert_int_equal(stopped, 0);
    assert_non_null(strstr(warning, "would be ended in 60 s if stop-uncovered were yes, not report"));
    daemon_state.config.daemon.stop_uncovered = CONFIG_STOP_YES;
    refresh();
    assert_int_equal(warned, 2);
    assert_int_equal(stopped, 0);
    later_ns += 61 * SECOND_NS;
    refresh();
    assert_int_equal(stopped, 1);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_lost_cards_last_figures_end_no_program, begin, end),
        cmocka_unit_test_setup_teardown(it_is_told_of_once_though_nvml_fails_in_between, begin, end),
        cmocka_unit_test_setup_teardown(its_user_is_told_long_before_it_is_ended, begin_with_terminal,
                                        end_with_terminal),
        cmocka_unit_test_setup_teardown(a_report_ends_nothing_and_does_not_count_as_the_notice, begin, end),
        cmocka_unit_test_setup_teardown(a_pid_that_another_process_had_ends_no_program, begin, end),
    };
    return lead_nvml(count, arguments) ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
