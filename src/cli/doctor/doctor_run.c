#include "cli/doctor/doctor_run.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/preload.h"

#define PATIENCE_MS 5000

static void become(char *const *words, enum doctor_environment environment, int output)
{
    int null_fd = open("/dev/null", O_RDWR);
    if (dup2(null_fd, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0)
        _exit(126);
    if (environment != DOCTOR_PLAIN && preload_set(environment == DOCTOR_IN_SIMULATED_SESSION, NULL) < 0)
        _exit(126);
    execvp(words[0], words);
    _exit(127);
}

static long now_ms(void)
{
    return (long)(monotonic_ns() / 1000000);
}

/* Read up to the end of the output, which is what it returns, or for PATIENCE_MS. What does not fit into `text` is
 * dropped. */
static bool read_all(int fd, char *text, size_t bytes)
{
    long end = now_ms() + PATIENCE_MS;
    size_t used = 0;
    for (;;) {
        char more[512];
        struct pollfd wanted = {.fd = fd, .events = POLLIN};
        long left = end - now_ms();
        if (left <= 0 || poll(&wanted, 1, (int)left) <= 0)
            return false;
        ssize_t length = read(fd, more, sizeof(more));
        if (length <= 0)
            return length == 0;
        for (ssize_t i = 0; i < length && used < bytes - 1; i++)
            text[used++] = more[i];
        text[used] = '\0';
    }
}

int doctor_run(char *const *words, enum doctor_environment environment, char *text, size_t bytes)
{
    int ends[2], status = 0;
    text[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    cleanup_close int reading = ends[0];
    pid_t child = fork();
    if (child == 0)
        become(words, environment, ends[1]);
    close(ends[1]);
    if (child < 0)
        return -1;
    if (!read_all(reading, text, bytes))
        kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
