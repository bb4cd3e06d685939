#include "intercept/resolve/report.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* write(2) that leaves no SIGPIPE behind: the signal is blocked for this thread, and taken out again if the
 * write has raised it. */
static void write_quietly(const char *text, size_t bytes)
{
    sigset_t pipe_signal, before, pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    sigprocmask(SIG_BLOCK, &pipe_signal, &before);
    ssize_t written = write(STDERR_FILENO, text, bytes);
    if (written < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE))
        sigtimedwait(&pipe_signal, NULL, &(struct timespec){0});
    sigprocmask(SIG_SETMASK, &before, NULL);
}

static void write_line(const char *format, va_list arguments)
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
    write_quietly(line, used);
}

void report_line(const char *format, ...)
{
    int saved_errno = errno;
    va_list arguments;
    va_start(arguments, format);
    write_line(format, arguments);
    va_end(arguments);
    errno = saved_errno;
}

static bool debug_wanted(void)
{
    enum { UNKNOWN, NO, YES };
    static atomic_int wanted;
    int known = atomic_load_explicit(&wanted, memory_order_relaxed);
    if (known == UNKNOWN) {
        const char *value = secure_getenv("GPUSLICE_DEBUG");
        known = value && *value && strcmp(value, "0") != 0 ? YES : NO;
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
    write_line(format, arguments);
    va_end(arguments);
    errno = saved_errno;
}

static atomic_uint_fast64_t unknown_pointers;

void report_unknown_pointer(const char *symbol)
{
    atomic_fetch_add_explicit(&unknown_pointers, 1, memory_order_relaxed);
    report_debug("%s: the driver answered with a function we do not know", symbol);
}

uint64_t report_unknown_pointers(void)
{
    return atomic_load_explicit(&unknown_pointers, memory_order_relaxed);
}
