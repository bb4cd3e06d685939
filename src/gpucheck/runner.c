#include "gpucheck/runner.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/paths.h"
#include "cuda/uuid.h"
#include "gpucheck/report.h"

/* Without persistence mode, the driver starts all GPUs anew, which takes seconds for each. */
#define GPU_FOUND_S 60.0
#define DAEMON_READY_S 60.0
#define DAEMON_END_S 5.0
#define KILLED_S 2.0 /* how long to wait until killed processes are gone */
#define LOOK_MS 10
/* With less time left, a check cannot be expected to finish. */
#define LEAST_S 5.0
/* Of the host's memory that is to be had: the rest is for the checks' own processes. */
#define HOST_PERCENT 85
#define HOST_LEAST_BYTES (256 * MIB)

static struct {
    char folder[64], log[80], daemon_log[80], gpuslice[PATH_MAX], gpusliced[PATH_MAX], self[PATH_MAX];
    pid_t daemon; /* 0: it has ended, or never started */
    struct error daemon_error;
    double begin_s, end_s; /* of the budget */
} runner;

static volatile sig_atomic_t asked_to_end;

static void ask_to_end(int number)
{
    asked_to_end = number;
}

/* --- Processes ------------------------------------------------------------------------------------- */

/* Start `words` with standard output and error going to `log_file`. It leads a process group, and dies when this
 * process does. */
static pid_t start(char *const *words, const char *log_file, int report_fd)
{
    int log = open(log_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    fflush(NULL);
    pid_t pid = log < 0 || nothing < 0 ? -1 : fork();
    if (pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        dup2(nothing, STDIN_FILENO);
        dup2(log, STDOUT_FILENO);
        dup2(log, STDERR_FILENO);
        if (report_fd >= 0 && report_fd != REPORT_FD)
            dup2(report_fd, REPORT_FD);
        else if (report_fd == REPORT_FD)
            fcntl(REPORT_FD, F_SETFD, 0);
        execv(words[0], words);
        fprintf(stderr, "%s: %s\n", words[0], strerror(errno));
        _exit(127);
    }
    if (log >= 0)
        close(log);
    if (nothing >= 0)
        close(nothing);
    return pid;
}

/* Whether `pid` has ended within `seconds`. */
static bool wait_for_end(pid_t pid, double seconds, int *status)
{
    double end = now_s() + seconds;
    for (;;) {
        pid_t ended = waitpid(pid, status, WNOHANG);
        if (ended == pid || (ended < 0 && errno != EINTR))
            return true;
        if (now_s() >= end)
            return false;
        sleep_s(LOOK_MS * 1e-3);
    }
}

/* Kill our children except the daemon, once. Returns how many there were. */
static unsigned kill_children(void)
{
    char path[64];
    unsigned count = 0;
    int pid;
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    cleanup_file FILE *list = fopen(path, "re");
    while (list && fscanf(list, "%d", &pid) == 1)
        if (pid != runner.daemon) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, WNOHANG);
            count++;
        }
    return count;
}

/* End everything that descends from this process, except the daemon: orphans become our children, as this process
 * is a subreaper. False if something remains: a process that hangs in the driver cannot be killed. */
static bool kill_strays(void)
{
    double end = now_s() + KILLED_S;
    while (kill_children()) {
        if (now_s() > end)
            return false;
        sleep_s(LOOK_MS * 0.1e-3);
    }
    return true;
}

static bool end_group(pid_t pid)
{
    kill(-pid, SIGKILL);
    return kill_strays();
}

/* --- The daemon ------------------------------------------------------------------------------------ */

/* The last line of the log, as the reason of a failure. */
static const char *last_line(const char *log_file, off_t since)
{
    static char text[1025];
    cleanup_close int fd = open(log_file, O_RDONLY | O_CLOEXEC);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    off_t from = size - since > (off_t)sizeof(text) - 1 ? size - (off_t)sizeof(text) + 1 : since;
    ssize_t length = fd < 0 ? 0 : pread(fd, text, sizeof(text) - 1, from);
    text[length > 0 ? length : 0] = '\0';
    for (char *end = text + strlen(text); end > text && end[-1] == '\n'; end--)
        end[-1] = '\0';
    char *line = strrchr(text, '\n');
    return line ? line + 1 : text;
}

static off_t log_size(void)
{
    struct stat status;
    return stat(runner.log, &status) == 0 ? status.st_size : 0;
}

static int start_daemon(void)
{
    struct error *error = &runner.daemon_error;
    char *words[] = {runner.gpusliced, settings.simulated ? "--simulated" : NULL, NULL};
    /* A verb that only a daemon can answer. */
    char *look[] = {runner.gpuslice, "scheduler", settings.simulated ? "--simulated" : NULL, NULL};
    double end = now_s() + DAEMON_READY_S;
    runner.daemon = start(words, runner.daemon_log, -1);
    if (runner.daemon < 0) {
        runner.daemon = 0;
        return error_set(error, errno, NULL, "cannot start %s: %s", runner.gpusliced, strerror(errno));
    }
    while (now_s() < end && !asked_to_end) {
        int status;
        if (waitpid(runner.daemon, &status, WNOHANG) == runner.daemon) {
            runner.daemon = 0;
            return error_set(error, ECHILD, NULL, "the daemon ended: %s", last_line(runner.daemon_log, 0));
        }
        pid_t answer = start(look, runner.log, -1);
        if (answer > 0 && wait_for_end(answer, 5, &status) && status == 0)
            return 0;
        if (answer > 0)
            end_group(answer);
        sleep_s(0.05);
    }
    return error_set(error, ETIMEDOUT, NULL, "the daemon is not ready after %.0f s: %s", DAEMON_READY_S,
                     last_line(runner.daemon_log, 0));
}

/* --- The environment ------------------------------------------------------------------------------- */

static void set(const char *name, const char *format, const char *value)
{
    char text[PATH_MAX];
    snprintf(text, sizeof(text), format, value);
    setenv(name, text, 1);
}

static void unset_our_variables(void)
{
    for (char **at = environ; *at;) {
        char name[256];
        size_t length = strcspn(*at, "=");
        if (strncmp(*at, "GPUSLICE_", strlen("GPUSLICE_")) != 0 || length >= sizeof(name)) {
            at++;
            continue;
        }
        memcpy(name, *at, length);
        name[length] = '\0';
        unsetenv(name); /* which moves the next one here */
    }
}

/* The bytes that /proc/meminfo says are to be had; 0 if it does not. */
static unsigned long long available_bytes(void)
{
    char line[128];
    unsigned long long kib = 0;
    cleanup_file FILE *file = fopen("/proc/meminfo", "re");
    while (file && !kib && fgets(line, sizeof(line), file))
        sscanf(line, "MemAvailable: %llu", &kib);
    return kib * 1024;
}

/* The daemon of the checks may use most of the host's memory: nine tenths of a card hardly fit into the half that a
 * daemon takes by default. */
static void allow_host_memory(void)
{
    char path[PATH_MAX];
    unsigned long long bytes = available_bytes() / 100 * HOST_PERCENT;
    if (bytes < HOST_LEAST_BYTES)
        return;
    snprintf(path, sizeof(path), "%s/config", runner.folder);
    mkdir(path, 0700);
    if (settings.simulated) {
        snprintf(path, sizeof(path), "%s/config/simulated", runner.folder);
        mkdir(path, 0700);
    }
    size_t length = strlen(path);
    snprintf(path + length, sizeof(path) - length, "/gpuslice.conf");
    cleanup_file FILE *file = fopen(path, "we");
    if (file)
        fprintf(file, "[daemon]\nhost-memory = %llu\n", bytes);
}

static int set_environment(struct error *error)
{
    /* A session or limit that we were started under, and what another daemon is told, must not influence the
     * results; nor may this daemon write where that one does. */
    static const char *const foreign[] = {
        "TENSOR_FUSION_CUDA_MEM_LIMIT",
        "TENSOR_FUSION_CUDA_UP_LIMIT",
        "CUDA_DEVICE_MEMORY_LIMIT",
        "CUDA_DEVICE_SM_LIMIT",
        "DISABLE_GPU_LIMITER",
        "ENABLE_CUDA_HOOKS",
        "ENABLE_NVML_HOOKS",
        "TF_VISIBLE_DEVICES",
        "TF_LOG_PATH",
        "LD_PRELOAD",
        "CUDA_LAUNCH_BLOCKING",
    };
    for (unsigned i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        unsetenv(foreign[i]);
    unset_our_variables();
    set("GPUSLICE_RUNTIME_DIR", "%s/run", runner.folder);
    set("GPUSLICE_STATE_DIR", "%s/state", runner.folder);
    set("GPUSLICE_CONFIG_DIR", "%s/config", runner.folder);
    allow_host_memory();
    /* Nobody needs the programs' caches later, so they are removed with the folder. */
    static const char *const caches[] = {"CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR",
                                         "CUPY_CACHE_DIR"};
    for (unsigned i = 0; i < sizeof(caches) / sizeof(caches[0]); i++)
        set(caches[i], "%s/cache", runner.folder);
    setenv("TMPDIR", runner.folder, 1);
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1); /* the order of NVML's indices */
    if (!settings.simulated)
        return 0;
    char drivers[PATH_MAX];
    int result = paths_library("simulated", drivers, error);
    if (result < 0)
        return result;
    const char *old = getenv("LD_LIBRARY_PATH");
    if (old && *old) {
        char both[2 * PATH_MAX];
        snprintf(both, sizeof(both), "%s:%s", drivers, old);
        setenv("LD_LIBRARY_PATH", both, 1);
    } else {
        setenv("LD_LIBRARY_PATH", drivers, 1);
    }
    setenv("GPUSLICE_SIMULATED", "1", 1);
    char name[32];
    snprintf(name, sizeof(name), "gpu-check-%d", (int)getpid());
    setenv("FAKECUDA_NAME", name, 1);
    setenv("FAKECUDA_BLOCK_BYTES", "2MiB", 0); /* a card takes memory in such blocks */
    return 0;
}

/* Ask CUDA in a process of its own, which may crash or hang, for the UUID of the first GPU that programs see. */
static int find_gpu(char uuid[static GPU_UUID_TEXT], struct error *error)
{
    char answer[80];
    char *words[] = {runner.self, "--part", "gpu", settings.simulated ? "--simulated" : NULL, NULL};
    int status = 0;
    snprintf(answer, sizeof(answer), "%s/gpu", runner.folder);
    cleanup_close int report = open(answer, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    off_t log_begin = log_size();
    pid_t pid = report < 0 ? -1 : start(words, runner.log, report);
    double end = now_s() + GPU_FOUND_S;
    bool has_ended = pid < 0;
    while (!has_ended && now_s() < end && !asked_to_end)
        has_ended = wait_for_end(pid, 0.1, &status);
    if (!has_ended) {
        end_group(pid);
        return error_set(error, ETIMEDOUT, NULL, "the driver had not answered after %.0f s", GPU_FOUND_S);
    }
    const char *line = last_line(answer, 0), failed[] = "failed\t";
    if (sscanf(line, "text\tuuid\t%40s", uuid) == 1)
        return 0;
    return error_set(error, ENODEV, NULL, "%s",
                     strncmp(line, failed, strlen(failed)) == 0 ? line + strlen(failed)
                                                                : last_line(runner.log, log_begin));
}

/* Have all programs use one GPU, by its UUID. Of a list of GPUs, sessions would be made on all; and the number of
 * a GPU in MIG mode names an instance to CUDA, but none to the daemon. Where no GPU is found, checks say why, unless
 * the user named it. */
static int choose_gpu(const char *gpu, struct error *error)
{
    struct error why;
    char uuid[GPU_UUID_TEXT];
    if (gpu)
        setenv("CUDA_VISIBLE_DEVICES", gpu, 1);
    if (find_gpu(uuid, &why) == 0)
        setenv("CUDA_VISIBLE_DEVICES", uuid, 1);
    else if (gpu)
        return error_set(
            error, why.status, NULL,
            "GPU '%.80s' cannot be used (%s); expected NVML's index of a GPU, or the UUID of a GPU "
            "or MIG instance",
            gpu, why.message);
    return 0;
}

int runner_begin(const char *gpu, double budget_s, struct error *error)
{
    const char *tmp = getenv("TMPDIR");
    int result;
    runner.begin_s = now_s();
    runner.end_s = runner.begin_s + budget_s;
    if ((result = paths_program("gpuslice", runner.gpuslice, error)) < 0 ||
        (result = paths_program("gpusliced", runner.gpusliced, error)) < 0 ||
        (result = paths_program("gpu-check", runner.self, error)) < 0)
        return result;
    if (!settings.simulated && !dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL))
        return error_set(error, ENODEV, NULL, "no NVIDIA driver (%s); add --simulated", dlerror());
    /* Short, as it holds sockets. */
    snprintf(runner.folder, sizeof(runner.folder), "%.30s/gpu-check-XXXXXX",
             tmp && *tmp == '/' && strlen(tmp) <= 30 ? tmp : "/tmp");
    if (!mkdtemp(runner.folder))
        return error_set(error, errno, NULL, "cannot make the folder %s: %s", runner.folder, strerror(errno));
    snprintf(runner.log, sizeof(runner.log), "%s/log", runner.folder);
    snprintf(runner.daemon_log, sizeof(runner.daemon_log), "%s/daemon-log", runner.folder);
    struct sigaction ask = {.sa_handler = ask_to_end};
    sigaction(SIGINT, &ask, NULL);
    sigaction(SIGTERM, &ask, NULL);
    sigaction(SIGHUP, &ask, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if ((result = set_environment(error)) < 0 || (result = choose_gpu(gpu, error)) < 0)
        return result;
    start_daemon(); /* without it, checks that need no session still run */
    return 0;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    return remove(path);
}

static void remove_simulated_gpu(void)
{
    const char *name = getenv("FAKECUDA_NAME");
    cleanup_dir DIR *folder = opendir("/dev/shm");
    for (struct dirent *entry; folder && name && (entry = readdir(folder));)
        if (strncmp(entry->d_name, "fakecuda-", 9) == 0 && strstr(entry->d_name, name))
            unlinkat(dirfd(folder), entry->d_name, 0);
}

/* --- A check --------------------------------------------------------------------------------------- */

struct outcome {
    bool failed, not_run, ended, stops;
    json_t *reasons, *figures, *details;
};

__attribute__((format(printf, 2, 3))) static void add_reason(struct outcome *outcome, const char *format, ...)
{
    char text[REPORT_LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    error_make_one_line(text); /* of a log, of which the last line may be cut */
    json_array_append_new(outcome->reasons, json_string(text));
}

/* Add how a process ended that should not have ended so, from its wait status, and its last words. */
static void add_end(struct outcome *outcome, int status, const char *last_words)
{
    outcome->failed = true;
    if (WIFSIGNALED(status))
        add_reason(outcome, "ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        add_reason(outcome, "ended with status %d: %s", WEXITSTATUS(status), last_words);
}

static void read_line(struct outcome *outcome, char *line)
{
    char *rest = line, *kind = strsep(&rest, "\t"), *first = strsep(&rest, "\t"),
         *second = strsep(&rest, "\t");
    if (strcmp(kind, "failed") == 0) {
        outcome->failed = true;
        add_reason(outcome, "%s", first ? first : "");
    } else if (strcmp(kind, "stop") == 0) {
        outcome->failed = outcome->stops = true;
        add_reason(outcome, "%s", first ? first : "");
    } else if (strcmp(kind, "not-run") == 0) {
        outcome->not_run = true;
        add_reason(outcome, "%s", first ? first : "");
    } else if (strcmp(kind, "ended") == 0) {
        outcome->ended = true;
    } else if (strcmp(kind, "text") == 0 && second) {
        json_object_set_new(outcome->figures, first, json_string(second));
    } else if (strcmp(kind, "detail") == 0 && second) {
        json_object_set_new(outcome->details, first, json_string(second));
    } else if (strcmp(kind, "figure") == 0 && second && rest) {
        json_object_set_new(outcome->figures, first,
                            json_pack("{s:f, s:s}", "value", strtod(second, NULL), "unit", rest));
    }
}

/* Read the check's reports until it has ended; false if it has not ended by the deadline. */
static bool follow(pid_t pid, int report, double deadline, struct outcome *outcome, int *status)
{
    char text[4 * REPORT_LINE_BYTES];
    size_t length = 0;
    bool ended = false;
    for (;;) {
        struct pollfd wanted = {.fd = report, .events = POLLIN};
        int found = poll(&wanted, 1, ended ? 0 : LOOK_MS);
        ssize_t bytes = found > 0 ? read(report, text + length, sizeof(text) - 1 - length) : 0;
        if (bytes > 0) {
            length += (size_t)bytes;
            text[length] = '\0';
            char *line = text, *end;
            for (; (end = strchr(line, '\n')); line = end + 1) {
                *end = '\0';
                read_line(outcome, line);
            }
            length = strlen(line);
            memmove(text, line, length);
            if (length >= sizeof(text) - 1)
                length = 0; /* our own lines are never that long */
            continue;
        }
        if (ended)
            return true;
        ended = waitpid(pid, status, WNOHANG) == pid;
        if (!ended && found > 0)
            sleep_s(LOOK_MS * 1e-3); /* its end of the pipe is closed already */
        if (!ended && (now_s() > deadline || asked_to_end))
            return false;
    }
}

static json_t *result(const struct check *check, struct outcome *outcome, double seconds)
{
    const char *word = outcome->failed ? "failed" : outcome->not_run ? "not run" : "passed";
    return json_pack("{s:s, s:s, s:s, s:o, s:f, s:o, s:o, s:b}", "name", check->name, "claim", check->claim,
                     "outcome", word, "reasons", outcome->reasons, "seconds",
                     (double)(int)(seconds * 1000 + 0.5) / 1000, "figures", outcome->figures, "details",
                     outcome->details, "stops", outcome->stops);
}

/* A check that ended early may have left turns as short as it needed them. */
static void restore_turns(void)
{
    char *words[] = {runner.gpuslice, "scheduler", "--quantum", "auto", NULL};
    int status;
    pid_t pid = start(words, runner.log, -1);
    if (pid > 0 && !wait_for_end(pid, 5, &status))
        end_group(pid);
}

json_t *runner_skip(const struct check *check, const char *stopped_by)
{
    struct outcome outcome = {
        .not_run = true, .reasons = json_array(), .figures = json_object(), .details = json_object()};
    add_reason(&outcome, "the check %s stopped the run", stopped_by);
    return result(check, &outcome, 0);
}

json_t *runner_run(const struct check *check, double until_s)
{
    struct outcome outcome = {.reasons = json_array(), .figures = json_object(), .details = json_object()};
    double begin = now_s(), deadline_s = check->deadline_s;
    until_s = until_s < runner.end_s ? until_s : runner.end_s;
    if (until_s - begin < deadline_s)
        deadline_s = until_s - begin;
    int ends[2], status = 0;
    if (deadline_s < LEAST_S) {
        outcome.not_run = true;
        add_reason(&outcome, "the time for %s was used up; --only %s runs it alone",
                   until_s < runner.end_s ? "its stage" : "all checks", check->name);
        return result(check, &outcome, 0);
    }
    char quota[32], end[32];
    snprintf(quota, sizeof(quota), "%llu", (unsigned long long)CHECK_QUOTA_BYTES);
    snprintf(end, sizeof(end), "%.3f", begin + deadline_s);
    char *words[16] = {NULL};
    unsigned count = 0;
    if (check->place == CHECK_SESSION) {
        char *run[] = {runner.gpuslice, "run", "--memory", quota, "--"};
        memcpy(words, run, sizeof(run));
        count = sizeof(run) / sizeof(run[0]);
    }
    char *rest[] = {runner.self,  "--check", (char *)check->name,
                    "--argument", end,       settings.simulated ? "--simulated" : NULL,
                    NULL};
    memcpy(words + count, rest, sizeof(rest));
    off_t log_begin = log_size();
    if (pipe2(ends, O_CLOEXEC) < 0)
        return NULL;
    pid_t pid = start(words, runner.log, ends[1]);
    close(ends[1]);
    bool in_time = pid > 0 && follow(pid, ends[0], begin + deadline_s, &outcome, &status);
    bool is_gone = pid <= 0 || end_group(pid);
    close(ends[0]);
    if (asked_to_end) {
        json_decref(outcome.reasons);
        json_decref(outcome.figures);
        json_decref(outcome.details);
        return NULL;
    }
    bool is_unexplained = !outcome.ended && !outcome.not_run && !outcome.failed;
    if (!in_time) {
        outcome.failed = true;
        add_reason(&outcome, "it had not ended after %.0f s", deadline_s);
    } else if (WIFSIGNALED(status) || is_unexplained) {
        add_end(&outcome, status, last_line(runner.log, log_begin));
    }
    if (!is_gone) {
        outcome.failed = true;
        add_reason(&outcome, "a process of it cannot be killed: it hangs in the driver");
    }
    if (!outcome.ended)
        restore_turns();
    return result(check, &outcome, now_s() - begin);
}

/* --- The end --------------------------------------------------------------------------------------- */

/* Check that the daemon ran all the time, and that it ends on SIGTERM. */
static void end_daemon(struct outcome *outcome)
{
    int status = 0;
    pid_t pid = runner.daemon;
    bool was_there = pid && !wait_for_end(pid, 0, &status);
    outcome->failed = true;
    if (was_there)
        kill(pid, SIGTERM);
    bool has_gone = !was_there || wait_for_end(pid, DAEMON_END_S, &status);
    if (runner.daemon_error.status)
        add_reason(outcome, "%s", runner.daemon_error.message);
    else if (!has_gone)
        add_reason(outcome, "it had not ended %.0f s after SIGTERM", DAEMON_END_S);
    else if (!was_there || status)
        add_end(outcome, status, last_line(runner.daemon_log, 0));
    else
        outcome->failed = false;
    runner.daemon = 0; /* if it still runs, kill_strays() ends it */
}

json_t *runner_end(void)
{
    static const struct check daemon_check = {
        .name = "daemon", .claim = "The daemon starts, is there throughout, and ends when it is told to."};
    struct outcome outcome = {.reasons = json_array(), .figures = json_object(), .details = json_object()};
    end_daemon(&outcome);
    kill_strays();
    if (settings.simulated)
        remove_simulated_gpu();
    if (runner.folder[0])
        nftw(runner.folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return result(&daemon_check, &outcome, now_s() - runner.begin_s);
}
