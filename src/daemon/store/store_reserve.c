#include "daemon/store/store_reserve.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

static void fill_path(const struct paths *paths, char path[static PATH_MAX + 16])
{
    snprintf(path, PATH_MAX + 16, "%s/state.reserve", paths->state_dir);
}

void store_reserve_keep(const struct paths *paths)
{
    char path[PATH_MAX + 16];
    struct stat status;
    fill_path(paths, path);
    cleanup_close int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) ||
        status.st_blocks * 512 >= STORE_RESERVE_BYTES)
        return;
    if (posix_fallocate(fd, 0, STORE_RESERVE_BYTES) != 0)
        unlink(path);
}

bool store_reserve_use(const struct paths *paths)
{
    char path[PATH_MAX + 16];
    fill_path(paths, path);
    return unlink(path) == 0;
}
