/* Read a whole file, and say where in it something is wrong. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "config/config.h"

int config_blame(const char *path, unsigned line, const struct error *cause, struct error *error)
{
    if (line)
        return error_set(error, cause->status, cause->code, "%s:%u: %s", path, line, cause->message);
    return error_set(error, cause->status, cause->code, "%s: %s", path, cause->message);
}

/* The file sets limits for other people, so whoever can write it decides about them. */
static int check_file(const char *path, const struct stat *status, struct error *error)
{
    if (!S_ISREG(status->st_mode))
        return error_set(error, EINVAL, NULL, "%s is not a plain file; expected a plain file", path);
    if (status->st_uid != 0 && status->st_uid != geteuid())
        return error_set(error, EPERM, NULL, "%s belongs to user %u; expected user %u or root; chown it",
                         path, (unsigned)status->st_uid, (unsigned)geteuid());
    if (status->st_mode & S_IWOTH)
        return error_set(error, EPERM, NULL, "%s can be written by everybody (mode %04o); run 'chmod o-w %s'",
                         path, (unsigned)(status->st_mode & 07777), path);
    if (status->st_size > CONFIG_FILE_BYTES_MAX)
        return error_set(error, EFBIG, NULL, "%s is larger than 1 MiB; expected less", path);
    return 0;
}

int config_read_file(const char *path, char **text, struct error *error)
{
    struct stat status;
    *text = NULL;
    cleanup_close int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (fd < 0 || fstat(fd, &status) < 0)
        return error_set_errno(error, errno, "cannot read %s", path);
    int result = check_file(path, &status, error);
    if (result < 0)
        return result;
    cleanup_free char *buffer = malloc((size_t)CONFIG_FILE_BYTES_MAX + 1);
    if (!buffer)
        return error_set_errno(error, ENOMEM, "cannot read %s", path);
    size_t length = 0;
    ssize_t got;
    while ((got = read(fd, buffer + length, CONFIG_FILE_BYTES_MAX - length)) > 0)
        length += (size_t)got;
    if (got < 0)
        return error_set_errno(error, errno, "cannot read %s", path);
    buffer[length] = '\0';
    if (strlen(buffer) != length)
        return error_set(error, EINVAL, NULL, "%s has a zero byte in it; expected text", path);
    *text = steal_pointer(buffer);
    return 0;
}
