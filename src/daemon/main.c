/* gpusliced - the node daemon: how it starts and how it ends. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/agents/agents.h"
#include "daemon/agents/heartbeat.h"
#include "daemon/api/api.h"
#include "daemon/api/api_rate.h"
#include "daemon/api/metrics_file.h"
#include "daemon/api/user_names.h"
#include "daemon/gpu/sampler.h"
#include "daemon/history/audit.h"
#include "daemon/history/ended.h"
#include "daemon/history/events.h"
#include "daemon/history/history.h"
#include "daemon/history/nvml_time.h"
#include "daemon/history/past.h"
#include "daemon/http/http.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/connection_closer.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/round.h"
#include "daemon/loop/runtime.h"
#include "daemon/loop/watch.h"
#include "daemon/options.h"
#include "daemon/process/attach.h"
#include "daemon/process/context_probe.h"
#include "daemon/process/drift.h"
#include "daemon/process/driver_line.h"
#include "daemon/process/reaper.h"
#include "daemon/process/release.h"
#include "daemon/process/uncovered.h"
#include "daemon/process/undrainable.h"
#include "daemon/residency/arena.h"
#include "daemon/residency/checkpoint_run.h"
#include "daemon/residency/moves.h"
#include "daemon/schedule/schedule.h"
#include "daemon/session/declared.h"
#include "daemon/session/ledger_room.h"
#include "daemon/session/ledgers.h"
#include "daemon/session/own_socket.h"
#include "daemon/session/queue.h"
#include "daemon/session/session.h"
#include "daemon/session/session_ledger.h"
#include "daemon/session/session_life.h"
#include "daemon/session/unclaimed_ledgers.h"
#include "daemon/settings/gslice_environment.h"
#include "daemon/settings/settings.h"
#include "daemon/store/store.h"
#include "daemon/store/store_backup.h"
#include "daemon/users/lent_uids.h"
#include "daemon/users/user_time.h"

#define IDLE_RETRY_USEC UINT64_C(1000000)
#define FOUND_USEC UINT64_C(2000000) /* how often the daemon checks that clients can find it */

/* State of the program that belongs to no room. */
struct program {
    struct daemon daemon;
    struct runtime runtime;
    int ready_fd; /* a byte is written here when the daemon serves; -1: nobody waits */
    sd_event_source *idle, *found, *ledgers;
};

/* Find out where everything is, and what the environment and gpuslice.conf say. */
static int configure(struct daemon *daemon, const char *idle_exit, struct error *error)
{
    enum paths_role role = daemon->options.system ? PATHS_SYSTEM_DAEMON : PATHS_USER_DAEMON;
    if (daemon->options.system && geteuid() != 0)
        return error_set(error, EPERM, NULL, "--system needs root; leave it out for a daemon of your own");
    int result = paths_find(&daemon->paths, role, daemon->options.simulated, error);
    return result < 0 ? result : settings_load(daemon, idle_exit, error);
}

static int run_backup(struct daemon *daemon)
{
    struct error error;
    if (configure(daemon, NULL, &error) == 0 &&
        store_backup(&daemon->paths, daemon->options.backup, &error) == 0)
        return EXIT_SUCCESS;
    fprintf(stderr, "gpusliced: %s\n", error.message);
    return EXIT_FAILURE;
}

/* --- Background ------------------------------------------------------------------------------------ */

/* A program inside a session may have started us. The daemon must see the whole card, so it leaves that
 * session: it drops the session's variables and executes itself again. */
static void leave_session(char **arguments)
{
    static const char *const variables[] = {"GPUSLICE_SESSION", "GPUSLICE_IPC_SOCK", "GPUSLICE_IPC_TOKEN",
                                            "CUDA_VISIBLE_DEVICES", "LD_PRELOAD"};
    if (!getenv("GPUSLICE_SESSION"))
        return;
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    execv("/proc/self/exe", arguments);
}

/* Go on in a child that is not tied to our starter; the parent exits when the child serves or has failed. */
static int go_to_background(int *ready_fd, struct error *error)
{
    int ends[2];
    close_range(STDERR_FILENO + 1, ~0U, 0);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set_errno(error, errno, "cannot go to the background");
    pid_t child = fork();
    if (child < 0)
        return error_set_errno(error, errno, "cannot go to the background");
    if (child > 0) {
        char byte;
        close(ends[1]);
        ssize_t length;
        do
            length = read(ends[0], &byte, 1);
        while (length < 0 && errno == EINTR);
        _exit(length == 1 ? EXIT_SUCCESS : EXIT_FAILURE); /* the child has said why on our stderr */
    }
    close(ends[0]);
    *ready_fd = ends[1];
    setsid();
    cleanup_close int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 || dup2(null_fd, STDOUT_FILENO) < 0 || chdir("/") < 0)
        return error_set_errno(error, errno, "cannot go to the background");
    return 0;
}

static int begin_log(const struct daemon *daemon, struct error *error)
{
    const char *path = daemon->config.daemon.log_file;
    if (*path)
        return log_open(path, error);
    return daemon->options.on_demand ? log_open(daemon->paths.log_file, error) : 0;
}

/* --- Events of the daemon itself ------------------------------------------------------------------- */

static int on_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata)
{
    struct program *program = userdata;
    log_info("signal %u: gpusliced ends; sessions stay", info->ssi_signo);
    return sd_event_exit(program->daemon.loop, 0);
}

/* Exit when there have been no sessions for the idle time and no client is connected; else set when to look again. */
static int on_idle(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct program *program = userdata;
    struct daemon *daemon = &program->daemon;
    uint64_t now = daemon_now_usec(), end = daemon->busy_usec + daemon->config.daemon.idle_exit_usec;
    uint64_t next = now + daemon->config.daemon.idle_exit_usec;
    if (daemon->session_count == 0 && now < end) {
        next = end;
    } else if (daemon->session_count == 0) {
        if (http_is_idle(daemon) && runtime_retire(&program->runtime)) {
            log_info("no sessions for %llu s: gpusliced ends",
                     (unsigned long long)daemon->config.daemon.idle_exit_usec / 1000000);
            return sd_event_exit(daemon->loop, 0);
        }
        next = now + IDLE_RETRY_USEC;
    }
    sd_event_source_set_time(source, next);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static int on_ledger_file(sd_event_source *source, const struct inotify_event *event, void *userdata)
{
    struct daemon *daemon = userdata;
    if (event->mask & IN_Q_OVERFLOW) {
        for (struct session *session = daemon->sessions; session; session = session->next)
            session_ledger_check_file(daemon, session->id);
    } else if (event->len) {
        session_ledger_check_file(daemon, event->name);
    }
    return 0;
}

static int watch_ledgers(struct program *program)
{
    struct daemon *daemon = &program->daemon;
    sd_event_source *source;
    int result = sd_event_add_inotify(daemon->loop, &source, daemon->paths.ledgers_dir, IN_MODIFY,
                                      on_ledger_file, daemon);
    if (result < 0)
        return result;
    sd_event_source_disable_unref(program->ledgers);
    program->ledgers = source;
    return 0;
}

/* Clients no longer find the daemon: make the folder, the lock and the sockets again. Ledgers that are mapped
 * stay valid without their names. */
static void make_anew(struct program *program)
{
    struct daemon *daemon = &program->daemon;
    struct runtime *runtime = &program->runtime;
    struct error error;
    int control_fd = runtime->control_fd, attach_fd = runtime->attach_fd;
    if (runtime_make_anew(runtime, &error) < 0) {
        log_debug("the runtime folder does not exist, and the daemon cannot make it yet: %s", error.message);
        return;
    }
    int result = watch_ledgers(program);
    if (runtime->attach_fd != attach_fd && result >= 0)
        result = attach_replace_socket(daemon, runtime->attach_fd);
    if (runtime->control_fd != control_fd && result >= 0)
        result = http_replace_control(daemon, runtime->control_fd);
    own_sockets_make_anew(daemon);
    if (result < 0)
        log_error("cannot serve the new sockets in %s: %s", daemon->paths.runtime_dir, strerror(-result));
    else
        log_warning("%s was removed; the daemon made it and its sockets again", daemon->paths.runtime_dir);
}

static int on_found(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct program *program = userdata;
    if (!runtime_is_found(&program->runtime))
        make_anew(program);
    sd_event_source_set_time_relative(source, FOUND_USEC);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static int watch(struct program *program, struct error *error)
{
    struct daemon *daemon = &program->daemon;
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGHUP); /* for settings_start() */
    sigprocmask(SIG_BLOCK, &mask, NULL);
    int result = sd_event_add_signal(daemon->loop, NULL, SIGTERM, on_signal, program);
    if (result >= 0)
        result = sd_event_add_signal(daemon->loop, NULL, SIGINT, on_signal, program);
    if (result >= 0)
        result = watch_ledgers(program);
    if (result >= 0 && daemon->options.on_demand)
        result = sd_event_add_time_relative(daemon->loop, &program->idle, CLOCK_MONOTONIC,
                                            daemon->config.daemon.idle_exit_usec, 0, on_idle, program);
    if (result >= 0)
        result = sd_event_set_watchdog(daemon->loop, true);
    return result < 0 ? error_set_errno(error, -result, "cannot start the event loop") : 0;
}

/* --- Start and end --------------------------------------------------------------------------------- */

static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int start_gpus(struct daemon *daemon, struct error *error)
{
    char library[PATH_MAX];
    if (daemon->options.simulated) {
        /* api_environment_json() passes this on to users' programs, so that all of them use this daemon's
         * simulated GPUs. */
        char owner[16];
        snprintf(owner, sizeof(owner), "%u", (unsigned)geteuid());
        if (daemon->options.system)
            setenv("FAKECUDA_OWNER", owner, 1);
        /* The simulated NVML is in libcuda.so.1. The libnvidia-ml.so.1 beside it only leads programs there, by their
         * search path. */
        int result = paths_library("simulated/libcuda.so.1", library, error);
        return result < 0 ? result : gpu_start(daemon, library, error);
    }
    struct error why;
    if (gpu_start(daemon, NULL, &why) == 0)
        return 0;
    return error_set(error, why.status, NULL, "no NVIDIA driver; add --simulated for a simulated GPU (%s)",
                     why.message);
}

/* The daemon's parts start from top to bottom and stop from bottom to top. First come the parts that observe changes, then the
 * core as the files describe it. Observers are told in the reverse order: drift.c looks at what driver_line.c has found. A part
 * that has to end earlier or later than its start would have it stands in two rows, and so does one that start() begins. */
static const struct part {
    int (*start)(struct daemon *daemon, struct error *error);
    void (*stop)(struct daemon *daemon);
} parts[] = {
    {NULL, lent_uids_free},
    {NULL, user_time_stop},
    {NULL, round_stop},
    {connection_closer_start, connection_closer_stop},
    {NULL, settings_stop},
    {NULL, declared_stop},
    {past_start, NULL},
    {events_start, events_free}, /* followers read what is left: events_stop() only ends the listening */
    {ended_start, NULL},
    {audit_start, NULL},
    {NULL, api_rate_free},
    {api_follow_start, api_follow_free},
    {api_wait_start, NULL},
    {NULL, http_stop},
    {NULL, attach_stop},
    {agents_start, agents_stop},
    {schedule_start, schedule_stop},
    {arena_start, NULL},
    {moves_start, moves_stop},
    {heartbeat_start, heartbeat_stop},
    {ledger_room_start, ledger_room_stop},
    {queue_start, NULL},
    {drift_start, drift_stop},
    {driver_line_start, driver_line_stop},
    {release_start, release_stop},
    {NULL, session_free_all},
    {NULL, arena_stop},
    {store_open, store_close},
    {NULL, gpu_stop},
    {NULL, reaper_stop},
    {NULL, api_follow_stop},
    {store_load, NULL},
    {release_go_on, NULL},
    {moves_go_on, NULL},
    {context_probe_start, NULL},
    {unclaimed_ledgers_sort, NULL},
    {NULL, ended_stop},
    {NULL, past_stop}, /* answers questions, which http_stop() cannot end */
    {nvml_time_start, nvml_time_stop},
    {history_start, history_stop},
    {settings_start, NULL},
    {declared_start, NULL},
    {user_names_start, user_names_stop},
    {reaper_start, NULL},
    {uncovered_start, uncovered_stop},
    {undrainable_start, undrainable_stop},
    {NULL, events_stop}, /* events and audit still hear how the queue ends */
    {NULL, audit_stop},
    {NULL, queue_stop}, /* which ends the sessions that wait, after their clients were answered */
    {NULL, api_wait_stop},
    {metrics_file_start, metrics_file_stop},
};
#define PART_COUNT (sizeof(parts) / sizeof(parts[0]))

static int start_parts(struct daemon *daemon, struct error *error)
{
    int result = 0;
    for (size_t i = 0; i < PART_COUNT && result == 0; i++)
        result = parts[i].start ? parts[i].start(daemon, error) : 0;
    return result;
}

static void stop_parts(struct daemon *daemon)
{
    for (size_t i = PART_COUNT; i-- > 0;)
        if (parts[i].stop)
            parts[i].stop(daemon);
}

static int start(struct program *program, struct error *error)
{
    struct daemon *daemon = &program->daemon;
    umask(daemon->options.system ? 0022 : 0077);
    int result = paths_create(&daemon->paths, error);
    umask(0077);
    if (result == 0)
        result = runtime_lock(&program->runtime, &daemon->paths, daemon->options.on_demand, error);
    if (result == 0)
        result = begin_log(daemon, error);
    if (result < 0)
        return result;
    raise_descriptor_limit();
    ledgers_catch_sigbus();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* writing past the file size limit is an error of that write */
    daemon->started_at = time(NULL);
    daemon->busy_usec = daemon_now_usec();
    result = sd_event_new(&daemon->loop);
    if (result < 0)
        return error_set_errno(error, -result, "cannot make an event loop");
    if ((result = watch(program, error)) < 0 || (result = round_start(daemon, error)) < 0 ||
        (result = start_gpus(daemon, error)) < 0 || (result = start_parts(daemon, error)) < 0)
        return result;
    if ((result = runtime_listen(&program->runtime, error)) < 0 ||
        (result = attach_start(daemon, program->runtime.attach_fd, agents_enter, error)) < 0)
        return result;
    gslice_environment_make_link(daemon);
    session_ledger_announce_all(daemon);
    result = http_start(daemon, program->runtime.control_fd, api_handle, error);
    if (result == 0 && (result = sd_event_add_time_relative(daemon->loop, &program->found, CLOCK_MONOTONIC,
                                                            FOUND_USEC, 0, on_found, program)) < 0)
        return error_set_errno(error, -result, "cannot watch the runtime folder");
    return result;
}

/* Let the process that waits until we serve return, if there is one. */
static void release_starter(struct program *program)
{
    if (program->ready_fd < 0)
        return;
    if (write(program->ready_fd, "", 1) < 0)
        log_warning("nobody waited for gpusliced to be ready");
    close(program->ready_fd);
    program->ready_fd = -1;
}

static void tell_last_end(struct daemon *daemon)
{
    static const char *const texts[] = {
        [DAEMON_END_DEATH] =
            "the daemon before this one did not stop in order: it was killed, or it crashed; what "
            "happened until this one started is not known",
        [DAEMON_END_MACHINE] = "the machine went down while the daemon before this one served",
    };
    if (daemon->last_end == DAEMON_END_NONE)
        return;
    log_warning("%s", texts[daemon->last_end]);
    change_publish(daemon, &(struct change){CHANGE_DAEMON_DIED}, "%s", texts[daemon->last_end]);
}

static void say_ready(struct program *program)
{
    struct daemon *daemon = &program->daemon;
    log_info("gpusliced %s is ready in %s: %u GPUs%s, %u sessions", GPUSLICE_VERSION,
             daemon->paths.runtime_dir, daemon->gpu_count, daemon->options.simulated ? " (simulated)" : "",
             daemon->session_count);
    sd_notifyf(0, "READY=1\nSTATUS=%u GPUs%s", daemon->gpu_count,
               daemon->options.simulated ? " (simulated)" : "");
    tell_last_end(daemon);
    change_publish(daemon, &(struct change){CHANGE_DAEMON_STARTED}, "gpusliced %s started with %u sessions",
                   GPUSLICE_VERSION, daemon->session_count);
    if (daemon->options.on_demand)
        log_take_stderr();
    release_starter(program);
}

/* Clients that wait are answered; sessions and their files stay. */
static void stop(struct program *program)
{
    struct daemon *daemon = &program->daemon;
    sd_notify(0, "STOPPING=1");
    change_publish(daemon, &(struct change){CHANGE_DAEMON_STOPPED}, "gpusliced stops; its %u sessions stay",
                   daemon->session_count);
    gslice_environment_remove_link(daemon);
    runtime_remove_sockets(&program->runtime);
    stop_parts(daemon);
    sd_event_source_disable_unref(program->idle);
    sd_event_source_disable_unref(program->found);
    sd_event_source_disable_unref(program->ledgers);
    sd_event_unref(daemon->loop);
    runtime_unlock(&program->runtime);
}

int main(int count, char **arguments)
{
    static struct program program = {.ready_fd = -1};
    struct daemon *daemon = &program.daemon;
    struct error error;
    const char *idle_exit = NULL, *probed = NULL, *checkpoint = NULL;
    int status = options_parse(&daemon->options, &idle_exit, &probed, &checkpoint, count, arguments);
    if (status >= 0)
        return status;
    if (probed)
        return context_probe_run(probed, daemon->options.simulated);
    if (daemon->options.backup)
        return run_backup(daemon);
    if (checkpoint)
        return checkpoint_run(checkpoint, daemon->options.simulated);
    leave_session(arguments);
    gslice_environment_remember(daemon);
    /* If the interceptor is loaded into every program of the machine, it must not ask for a session from in here. */
    setenv("GPUSLICE_IPC_SOCK", "/dev/null", 1);
    int result = configure(daemon, idle_exit, &error);
    if (result == 0 && daemon->options.on_demand)
        result = go_to_background(&program.ready_fd, &error);
    if (result == 0)
        result = start(&program, &error);
    if (result == -EBUSY && daemon->options.on_demand && runtime_is_served(&daemon->paths)) {
        /* Another daemon was quicker, and serves: that is what the starter asked for. */
        release_starter(&program);
        return EXIT_SUCCESS;
    }
    if (result < 0) {
        fprintf(stderr, "gpusliced: %s\n", error.message);
        if (log_is_file())
            log_error("gpusliced cannot start: %s", error.message);
        sd_notifyf(0, "STATUS=cannot start: %s\nERRNO=%d", error.message, -result);
        return EXIT_FAILURE;
    }
    say_ready(&program);
    result = loop_run(daemon);
    if (result < 0)
        log_error("gpusliced ends: its loop cannot wait: %s", strerror(-result));
    stop(&program);
    return result < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
