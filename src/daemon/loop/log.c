#include "daemon/loop/log.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/loop/appended.h"

static struct {
    pthread_mutex_t lock;
    int fd;
    off_t bytes;
    bool debug;
    bool is_stderr;
    char path[PATH_MAX];
} log_state = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = STDERR_FILENO};

/* The log says what people do: its file is nobody else's to read. */
static int keep_private(int fd, struct error *error)
{
    if (fd >= 0 && fchmod(fd, 0600) < 0) {
        int status = errno;
        close(fd);
        return error_set_errno(error, status, "cannot close the log file to other users");
    }
    return fd;
}

int log_open(const char *path, struct error *error)
{
    off_t bytes;
    if (strlen(path) + sizeof(".1") > sizeof(log_state.path))
        return error_set(error, ENAMETOOLONG, NULL, "the log file's path is too long: %s", path);
    struct error why;
    int fd = keep_private(appended_open(path, &bytes, &why), &why);
    if (fd < 0)
        return error_set(error, why.status, NULL, "the log file: %s", why.message);
    pthread_mutex_lock(&log_state.lock);
    log_state.fd = fd;
    log_state.bytes = bytes;
    strcpy(log_state.path, path);
    pthread_mutex_unlock(&log_state.lock);
    return 0;
}

bool log_is_file(void)
{
    return log_state.path[0] != '\0';
}

void log_take_stderr(void)
{
    pthread_mutex_lock(&log_state.lock);
    log_state.is_stderr = log_state.path[0] && dup2(log_state.fd, STDERR_FILENO) >= 0;
    pthread_mutex_unlock(&log_state.lock);
}

void log_set_debug(bool debug)
{
    log_state.debug = debug;
}

/* Called with the lock held. If the new file cannot be made, the old one stays in use, and the next line tries again: the
 * old one may have its new name then. */
static void begin_new_file(void)
{
    off_t bytes;
    int fd = keep_private(appended_open_anew(log_state.path, &bytes, NULL), NULL);
    if (fd < 0)
        return;
    close(log_state.fd);
    log_state.fd = fd;
    log_state.bytes = bytes;
    if (log_state.is_stderr)
        dup2(fd, STDERR_FILENO);
}

void log_write(enum log_level level, const char *format, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    if (level == LOG_LEVEL_DEBUG && !log_state.debug)
        return;

    char line[1024];
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t length = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &utc);
    length += (size_t)snprintf(line + length, sizeof(line) - length, ".%03ldZ %s: ", now.tv_nsec / 1000000,
                               names[level]);
    va_list arguments;
    va_start(arguments, format);
    int text = vsnprintf(line + length, sizeof(line) - length - 1, format, arguments);
    va_end(arguments);
    if (text > 0)
        length += (size_t)text < sizeof(line) - length - 1 ? (size_t)text : sizeof(line) - length - 2;
    /* The line may contain names that people chose: keep one event on one line. */
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    line[length++] = '\n';

    pthread_mutex_lock(&log_state.lock);
    if (log_state.path[0] && log_state.bytes >= LOG_FILE_BYTES)
        begin_new_file();
    ssize_t written = write(log_state.fd, line, length);
    if (written > 0)
        log_state.bytes += written;
    pthread_mutex_unlock(&log_state.lock);
}
