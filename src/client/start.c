#include "client/start.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define READY_MS 10000
#define READY_LOOK_MS 20 /* between two looks whether a daemon that others started is ready */

int start_check_driver(bool simulated, struct error *error)
{
    /* Signs of the driver's kernel side: what it creates on a server, in a container with a GPU, under WSL, and on
     * a Jetson. The driver's library proves nothing: build machines have it too. */
    static const char *const signs[] = {"/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg",
                                        "/dev/nvhost-ctrl-gpu"};
    if (simulated)
        return 0;
    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++)
        if (access(signs[i], F_OK) == 0)
            return 0;
    return error_set(
        error, ENODEV, NULL,
        "there is no NVIDIA driver here (no /dev/nvidiactl); 'gpuslice doctor' says more; --simulated runs "
        "on a simulated GPU");
}

static int64_t now_ms(void)
{
    return (int64_t)(monotonic_ns() / 1000000);
}

/* Become `gpusliced --on-demand`, which puts itself into the background. Only async-signal-safe calls: this may be
 * the child of a process with threads (an interceptor's). */
static void become_daemon(const char *program, bool simulated, int said_fd)
{
    char *arguments[] = {"gpusliced", "--on-demand", simulated ? "--simulated" : NULL, NULL};
    int null_fd = open("/dev/null", O_RDWR);
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigset_t none;
    for (int number = 1; number < NSIG; number++)
        sigaction(number, &standard, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (null_fd >= 0) {
        dup2(null_fd, STDIN_FILENO);
        dup2(null_fd, STDOUT_FILENO);
    }
    dup2(said_fd, STDERR_FILENO);
    execv(program, arguments);
    dprintf(STDERR_FILENO, "cannot start %s: %s\n", program, strerror(errno));
    _exit(127);
}

/* Report the last line that the daemon wrote, without its name in front. */
static int report_failure(int said_fd, const struct paths *paths, struct error *error)
{
    char text[1024];
    struct stat status;
    off_t from = fstat(said_fd, &status) == 0 && status.st_size > (off_t)sizeof(text) - 1
                     ? status.st_size - (off_t)sizeof(text) + 1
                     : 0;
    ssize_t length = pread(said_fd, text, sizeof(text) - 1, from);
    text[length > 0 ? length : 0] = '\0';
    for (char *end = text + strlen(text); end > text && end[-1] == '\n'; end--)
        end[-1] = '\0';
    char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    if (strncmp(line, "gpusliced: ", 11) == 0)
        line += 11;
    if (*line)
        return error_set(error, ECHILD, NULL, "cannot start the daemon: %s", line);
    return error_set(error, ECHILD, NULL, "cannot start the daemon; it gave no reason; see %s",
                     paths->log_file);
}

/* Wait until `child` has ended, or until `end_ms`. Returns its wait status; 0 if somebody else reaped it; -1 if it
 * still runs at `end_ms`. */
static int wait_until(pid_t child, int64_t end_ms)
{
    cleanup_close int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    int status = -1;
    for (;;) {
        int64_t left = end_ms - now_ms();
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child || (ended < 0 && errno != EINTR))
            return ended == child ? status : 0;
        if (left <= 0)
            return -1;
        /* Kernels before 5.3 have no pidfd; there it looks every 20 ms. */
        struct pollfd wanted = {.fd = pidfd, .events = POLLIN};
        poll(&wanted, 1, pidfd >= 0 ? (int)left : left < READY_LOOK_MS ? (int)left : READY_LOOK_MS);
    }
}

static int start(const struct client *client, int64_t end_ms, struct error *error)
{
    char program[PATH_MAX];
    int result = paths_program("gpusliced", program, error);
    if (result < 0)
        return result;
    /* A file rather than a pipe: a process that keeps it open can neither block on it nor be killed by it. */
    cleanup_close int said_fd = memfd_create("gpusliced-stderr", MFD_CLOEXEC);
    pid_t child = said_fd < 0 ? -1 : fork();
    if (child < 0)
        return error_set_errno(error, errno, "cannot start the daemon");
    if (child == 0)
        become_daemon(program, client->paths.simulated, said_fd);

    int status = wait_until(child, end_ms);
    if (status == -1) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        return error_set(error, ETIMEDOUT, NULL, "the daemon was not ready after %d s; see %s",
                         READY_MS / 1000, client->paths.log_file);
    }
    return status == 0 ? 0 : report_failure(said_fd, &client->paths, error);
}

bool start_may_help(int result)
{
    return result == -ECONNRESET || result == -EIO || result == -ENOTCONN;
}

int start_reach(struct client *client, struct error *error)
{
    int64_t end_ms = now_ms() + READY_MS;
    client_close(client);
    int result = start_daemon(client, error);
    while (start_may_help(result) && now_ms() < end_ms) {
        nanosleep(&(struct timespec){.tv_nsec = READY_LOOK_MS * 1000000}, NULL);
        client_close(client);
        result = start_daemon(client, error);
    }
    return result;
}

int start_daemon(struct client *client, struct error *error)
{
    int64_t end_ms = now_ms() + READY_MS;
    int result = client_ready(client, error);
    if (result == -ENOTCONN && client->paths.system)
        return error_set(
            error, ENOTCONN, NULL,
            "the system daemon does not answer at %s; start it with 'systemctl start gpusliced', or set "
            "GPUSLICE_RUNTIME_DIR to a folder of yours",
            client->paths.control_socket);
    if (result == -ENOTCONN) {
        struct error failure;
        if (start(client, end_ms, &failure) < 0 && client_ready(client, NULL) == -ENOTCONN) {
            if (error)
                *error = failure;
            return -failure.status;
        }
        result = client_ready(client, error);
    }
    while (result == -EAGAIN && now_ms() < end_ms) {
        nanosleep(&(struct timespec){.tv_nsec = READY_LOOK_MS * 1000000}, NULL);
        result = client_ready(client, error);
    }
    return result;
}
