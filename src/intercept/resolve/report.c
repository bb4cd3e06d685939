#include "intercept/resolve/report.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* write(2) that leaves no SIGPIPE behind: the signal is blocked in this thread, and taken out again if the write has
 * raised it. */
static void write_quietly(int fd, const char *text, size_t bytes)
{
    sigset_t pipe_signal, before, pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    sigprocmask(SIG_BLOCK, &pipe_signal, &before);
    ssize_t written = write(fd, text, bytes);
    if (written < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE))
        sigtimedwait(&pipe_signal, NULL, &(struct timespec){0});
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* Open vgpu.rs's TF_LOG_PATH: a file, or a folder in which tf.log is. Returns a descriptor, or -1. It is opened for
 * each line, since lines are few and a program may close all descriptors that it does not know. */
static int open_log(void)
{
    const char *path = secure_getenv("TF_LOG_PATH");
    char inside[4096];
    if (!path || !*path)
        return -1;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
    if (fd < 0 && errno == EISDIR &&
        (size_t)snprintf(inside, sizeof(inside), "%s/tf.log", path) < sizeof(inside))
        fd = open(inside, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
    return fd;
}

/* Write one line: to TF_LOG_PATH if that can be opened, and otherwise to stderr. An important line, such as one about
 * memory that the program does not get, goes to stderr in any case. */
static void write_line(bool is_important, const char *format, va_list arguments)
{
    static const char prefix[] = "gpuslice: ";
    char line[REPORT_LINE_BYTES];
    size_t used = sizeof prefix - 1;
    memcpy(line, prefix, used);

    int length = vsnprintf(line + used, sizeof line - used - 1, format, arguments);
    if (length < 0)
        return;
    size_t room = sizeof line - used - 2; /* for the newline and the terminator */
    used += (size_t)length < room ? (size_t)length : room;
    line[used++] = '\n';
    int log = open_log();
    if (log >= 0) {
        write_quietly(log, line, used);
        close(log);
    }
    if (log < 0 || is_important)
        write_quietly(STDERR_FILENO, line, used);
}

void report_line(const char *format, ...)
{
    int saved_errno = errno;
    va_list arguments;
    va_start(arguments, format);
    write_line(true, format, arguments);
    va_end(arguments);
    errno = saved_errno;
}

/* vgpu.rs's TF_ENABLE_LOG and TF_LOG_LEVEL, where GPUSLICE_DEBUG says nothing. */
static bool foreign_debug_wanted(void)
{
    const char *enabled = secure_getenv("TF_ENABLE_LOG"), *level = secure_getenv("TF_LOG_LEVEL");
    bool is_off = enabled &&
                  (strcmp(enabled, "off") == 0 || strcmp(enabled, "0") == 0 || strcmp(enabled, "false") == 0);
    return !is_off && level && (strcmp(level, "debug") == 0 || strcmp(level, "trace") == 0);
}

static bool debug_wanted(void)
{
    enum { UNKNOWN, NO, YES };
    static atomic_int wanted;
    int known = atomic_load_explicit(&wanted, memory_order_relaxed);
    if (known == UNKNOWN) {
        const char *value = secure_getenv("GPUSLICE_DEBUG");
        bool is_yes = value && *value ? strcmp(value, "0") != 0 : foreign_debug_wanted();
        known = is_yes ? YES : NO;
        atomic_store_explicit(&wanted, known, memory_order_relaxed);
    }
    return known == YES;
}

void report_debug(const char *format, ...)
{
    if (!debug_wanted())
        return;
    int saved_errno = errno;
    va_list arguments;
    va_start(arguments, format);
    write_line(false, format, arguments);
    va_end(arguments);
    errno = saved_errno;
}

static atomic_uint_fast64_t unknown_pointers;

void report_unknown_pointer(const char *symbol)
{
    atomic_fetch_add_explicit(&unknown_pointers, 1, memory_order_relaxed);
    report_debug("%s: the driver answered with a function that GPU Slice does not know", symbol);
}

uint64_t report_unknown_pointers(void)
{
    return atomic_load_explicit(&unknown_pointers, memory_order_relaxed);
}
