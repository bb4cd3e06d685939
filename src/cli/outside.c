#include "cli/outside.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/process.h"
#include "base/units.h"
#include "client/client.h"
#include "client/session_fields.h"

/* How long it waits after each look. */
static const unsigned pauses_seconds[] = {2, 3, 5};
#define PAUSES (sizeof(pauses_seconds) / sizeof(pauses_seconds[0]))
#define LOOK_SECONDS_MAX 15 /* a daemon that hangs keeps nobody */
/* What a command starts at its very end counts as started by it. */
#define LATE_SECONDS 1
/* The login session of processes that belong to none (proc_pid_sessionid). */
#define NO_LOGIN 4294967295ul

/* When the command ran, in clock ticks since boot. */
struct span {
    uint64_t from_ticks, to_ticks;
};

static unsigned long login_of(const char *pid)
{
    char path[64];
    unsigned long login = NO_LOGIN;
    snprintf(path, sizeof(path), "/proc/%s/sessionid", pid);
    cleanup_file FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%lu", &login) != 1)
        login = NO_LOGIN;
    return login;
}

/* Whether it is this user's, or of this login as after sudo. */
static bool is_ours(pid_t pid)
{
    char path[64], text[24];
    struct stat status;
    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    snprintf(text, sizeof(text), "%d", (int)pid);
    return stat(path, &status) == 0 && (status.st_uid == getuid() ||
                                        (login_of("self") != NO_LOGIN && login_of(text) == login_of("self")));
}

static bool is_found(const json_t *process, const struct span *span)
{
    pid_t pid = (pid_t)session_number(process, "pid");
    uint64_t start;
    return json_is_null(json_object_get(process, "session_id")) && session_number(process, "used_bytes") &&
           process_start_time(pid, &start) == 0 && start >= span->from_ticks && start <= span->to_ticks &&
           is_ours(pid);
}

/* Say which programs on the GPUs are outside. Whether there is one. */
static bool say_found(const json_t *gpus, const struct span *span)
{
    const json_t *gpu, *process;
    size_t i, j;
    bool has_found = false;
    json_array_foreach((json_t *)gpus, i, gpu)
    {
        json_array_foreach(json_object_get(gpu, "processes"), j, process)
        {
            char held[UNITS_BYTES_TEXT];
            if (!is_found(process, span))
                continue;
            has_found = true;
            dprintf(STDERR_FILENO,
                    "gpuslice: %s (pid %llu) was started meanwhile and holds %s of GPU %llu outside of every "
                    "session, without limits; start it with 'gpuslice run'\n",
                    session_text(process, "command"), (unsigned long long)session_number(process, "pid"),
                    units_format_bytes(session_number(process, "used_bytes"), held),
                    (unsigned long long)session_number(gpu, "index"));
        }
    }
    return has_found;
}

/* Whether it is worth looking again: not where something was found, nor where no daemon answers. */
static bool look(bool simulated, const struct span *span)
{
    struct client client;
    struct error error;
    json_t *gpus = NULL;
    bool is_answered = client_open(&client, simulated, &error) == 0 &&
                       client_request(&client, "GET", "/v1/gpus", NULL, &gpus, &error) == 0;
    bool again = is_answered && !say_found(gpus, span);
    client_close(&client);
    json_decref(gpus);
    return again;
}

static uint64_t ticks_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return ((uint64_t)now.tv_sec + LATE_SECONDS) * (uint64_t)sysconf(_SC_CLK_TCK);
}

/* Whether nobody waits for the end of stderr. */
static bool has_time(void)
{
    struct stat status;
    return isatty(STDERR_FILENO) || (fstat(STDERR_FILENO, &status) == 0 && S_ISREG(status.st_mode));
}

/* Keep stderr and `pidfd`, which becomes the next. */
static int drop_descriptors(int pidfd)
{
    int null = open("/dev/null", O_RDWR);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
        dup2(pidfd, STDERR_FILENO + 1) < 0)
        return -1;
    close_range(STDERR_FILENO + 2, ~0u, 0);
    return STDERR_FILENO + 1;
}

static void watch(int pidfd, uint64_t from_ticks, bool simulated)
{
    struct pollfd end = {.fd = drop_descriptors(pidfd), .events = POLLIN};
    setsid();
    if (end.fd < 0 || chdir("/") < 0 || poll(&end, 1, -1) <= 0)
        return;
    const struct span span = {from_ticks, ticks_now()};
    alarm(LOOK_SECONDS_MAX);
    bool again = look(simulated, &span) && has_time();
    for (unsigned i = 0; i < PAUSES && again; i++) {
        sleep(pauses_seconds[i]);
        again = look(simulated, &span);
    }
}

void outside_watch(bool simulated)
{
    uint64_t from_ticks;
    cleanup_close int pidfd = pidfd_open(getpid(), 0);
    pid_t child = pidfd >= 0 && process_start_time(getpid(), &from_ticks) == 0 ? fork() : -1;
    if (child == 0) {
        if (fork() == 0)
            watch(pidfd, from_ticks, simulated);
        _exit(0);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
}
