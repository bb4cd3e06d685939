#include "slurm/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

int record_write(const char *folder, const char *job, const json_t *record, struct error *error)
{
    char path[PATH_MAX + 80], draft[PATH_MAX + 96];
    snprintf(path, sizeof(path), "%s/%s", folder, job);
    snprintf(draft, sizeof(draft), "%s/.%s", folder, job);
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        return error_set_errno(error, errno, "cannot make the folder %s", folder);
    unlink(draft);
    cleanup_close int fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && json_dumpfd(record, fd, JSON_COMPACT) == 0 && rename(draft, path) == 0)
        return 0;
    int result = error_set_errno(error, errno, "cannot write %s", path);
    unlink(draft);
    return result;
}

bool record_exists(const char *folder, const char *job)
{
    char path[PATH_MAX + 80];
    snprintf(path, sizeof(path), "%s/%s", folder, job);
    return access(path, F_OK) == 0;
}

json_t *record_read(const char *folder, const char *job)
{
    char path[PATH_MAX + 80];
    snprintf(path, sizeof(path), "%s/%s", folder, job);
    return json_load_file(path, 0, NULL);
}

void record_remove(const char *folder, const char *job)
{
    char path[PATH_MAX + 80];
    snprintf(path, sizeof(path), "%s/%s", folder, job);
    unlink(path);
}
