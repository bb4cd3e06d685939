#include "daemon/loop/appended.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

static bool is_ours(const struct stat *status)
{
    return S_ISREG(status->st_mode) && status->st_uid == geteuid() && status->st_nlink == 1;
}

/* A link is -ELOOP, and a FIFO without a reader is -ENXIO. */
int appended_open(const char *path, off_t *bytes, struct error *error)
{
    cleanup_close int fd =
        open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    struct stat status = {0};
    if ((fd < 0 && errno != ELOOP && errno != ENXIO) || (fd >= 0 && fstat(fd, &status) < 0))
        return error_set_errno(error, errno, "cannot open %s", path);
    if (fd < 0 || !is_ours(&status))
        return error_set(error, EPERM, NULL, "%s is not a plain file of uid %u with a single name; remove it",
                         path, (unsigned)geteuid());
    *bytes = status.st_size;
    return steal_fd(&fd);
}

int appended_open_anew(const char *path, off_t *bytes, struct error *error)
{
    char older[PATH_MAX + 2];
    if (snprintf(older, sizeof(older), "%s.1", path) >= PATH_MAX)
        return error_set(error, ENAMETOOLONG, NULL, "%s: the path is too long for a '.1' behind it", path);
    if (rename(path, older) < 0 && errno != ENOENT)
        return error_set_errno(error, errno, "cannot rename %s to %s", path, older);
    return appended_open(path, bytes, error);
}

static int write_whole(int fd, const char *path, off_t before, const char *text, size_t length,
                       struct error *error)
{
    for (size_t done = 0; done < length;) {
        ssize_t count = write(fd, text + done, length - done);
        if (count > 0) {
            done += (size_t)count;
            continue;
        }
        int why = count < 0 ? errno : ENOSPC;
        if (why == EINTR)
            continue;
        if (ftruncate(fd, before) < 0)
            why = errno;
        return error_set_errno(error, why, "cannot write %s", path);
    }
    return 0;
}

int appended_add(const char *path, uint64_t bytes_max, const char *text, size_t length, struct error *error)
{
    off_t bytes;
    cleanup_close int fd = appended_open(path, &bytes, error);
    if (fd >= 0 && bytes > 0 && (uint64_t)bytes + length > bytes_max) {
        close(steal_fd(&fd));
        fd = appended_open_anew(path, &bytes, error);
    }
    return fd < 0 ? fd : write_whole(fd, path, bytes, text, length, error);
}
