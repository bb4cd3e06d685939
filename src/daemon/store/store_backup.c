#include "daemon/store/store_backup.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/store/store_file.h"

/* How long a daemon may keep the file locked. */
#define PATIENCE_MS 10000

/* Copy all pages as they are at one moment, those of the log too. Returns SQLite's result. */
static int copy_pages(sqlite3 *from, sqlite3 *to)
{
    sqlite3_backup *backup = sqlite3_backup_init(to, "main", from, "main");
    if (!backup)
        return sqlite3_errcode(to);
    sqlite3_backup_step(backup, -1);
    return sqlite3_backup_finish(backup);
}

static int copy(const struct paths *paths, const char *path, struct error *error)
{
    sqlite3 *from = NULL, *to = NULL;
    int result = sqlite3_open_v2(paths->state_file, &from, SQLITE_OPEN_READWRITE, NULL);
    if (result == SQLITE_OK)
        result = sqlite3_open_v2(path, &to, SQLITE_OPEN_READWRITE, NULL);
    if (result == SQLITE_OK) {
        sqlite3_busy_timeout(from, PATIENCE_MS);
        result = copy_pages(from, to);
    }
    if (result == SQLITE_OK)
        store_file_end_epoch(to); /* whoever puts it back starts no daemon after one that died */
    sqlite3_close(from);
    if (sqlite3_close(to) != SQLITE_OK && result == SQLITE_OK)
        result = SQLITE_IOERR;
    return result == SQLITE_OK ? 0
                               : error_set(error, EIO, NULL, "cannot copy the state file %s to %s: %s",
                                           paths->state_file, path, sqlite3_errstr(result));
}

int store_backup(const struct paths *paths, const char *path, struct error *error)
{
    if (access(paths->state_file, R_OK) != 0)
        return error_set_errno(error, errno, "cannot read the state file %s", paths->state_file);
    cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set_errno(error, errno, "cannot make %s%s", path,
                               errno == EEXIST ? ", which must be a new file" : "");
    int result = copy(paths, path, error);
    if (result == 0 && fsync(fd) < 0)
        result = error_set_errno(error, errno, "cannot write %s", path);
    if (result < 0)
        unlink(path);
    return result;
}
