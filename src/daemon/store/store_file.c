#include "daemon/store/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/loop/log.h"
#include "daemon/store/store_columns.h"

/* The layout's number is SQLite's user_version; 0 is a new file. Columns of properties come by themselves (store_columns.h).
 * For every other change the number rises, and the daemon converts the files of all released layouts
 * (docs/compatibility.md). It cannot use files of later layouts. */
#define STORE_LAYOUT 1
static const char schema[] =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE sessions(%s) WITHOUT ROWID;"
    "CREATE TABLE session_gpus(session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,"
    " position INTEGER NOT NULL, uuid TEXT NOT NULL, limit_bytes INTEGER NOT NULL, reserved INTEGER NOT NULL,"
    " PRIMARY KEY(session_id, position)) WITHOUT ROWID;"
    "CREATE TABLE processes(session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,"
    " slot INTEGER NOT NULL, generation INTEGER NOT NULL, pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL,"
    " attached_at INTEGER NOT NULL, PRIMARY KEY(session_id, slot)) WITHOUT "
    "ROWID;"
    "CREATE TABLE context_costs(uuid TEXT NOT NULL, driver_version TEXT NOT NULL, bytes INTEGER NOT NULL,"
    " cuda_bytes INTEGER NOT NULL, traits INTEGER NOT NULL, PRIMARY KEY(uuid, driver_version)) WITHOUT "
    "ROWID;";

/* Why a file cannot be used. */
struct trouble {
    bool is_newer;
    char text[200];
};

int store_file_error(struct error *error, sqlite3 *database, const struct paths *paths)
{
    int status = (sqlite3_errcode(database) & 0xff) == SQLITE_FULL ? ENOSPC : EIO;
    return error_set(error, status, "ERR_INTERNAL", "the state file %s: %s", paths->state_file,
                     sqlite3_errmsg(database));
}

__attribute__((format(printf, 2, 3))) static int damaged(struct trouble *trouble, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(trouble->text, sizeof(trouble->text), format, arguments);
    va_end(arguments);
    return -EBADMSG;
}

/* SQLite has failed: find out whether the file is at fault, or the machine. */
static int failed(sqlite3 *database, const struct paths *paths, struct trouble *trouble, struct error *error)
{
    int code = sqlite3_errcode(database) & 0xff;
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR)
        return damaged(trouble, "%s", sqlite3_errmsg(database));
    return store_file_error(error, database, paths);
}

/* Read the first column of the first row, or `otherwise`. */
static int read_number(sqlite3 *database, const char *sql, int64_t otherwise, int64_t *number)
{
    sqlite3_stmt *prepared;
    int result = sqlite3_prepare_v2(database, sql, -1, &prepared, NULL);
    if (result != SQLITE_OK)
        return result;
    *number = sqlite3_step(prepared) == SQLITE_ROW ? sqlite3_column_int64(prepared, 0) : otherwise;
    return sqlite3_finalize(prepared);
}

/* --- Its layout ------------------------------------------------------------------------------------ */

static int check_pages(sqlite3 *database, const struct paths *paths, struct trouble *trouble,
                       struct error *error)
{
    sqlite3_stmt *prepared;
    if (sqlite3_prepare_v2(database, "PRAGMA quick_check(1)", -1, &prepared, NULL) != SQLITE_OK)
        return failed(database, paths, trouble, error);
    int result = 0;
    if (sqlite3_step(prepared) == SQLITE_ROW) {
        const char *said = (const char *)sqlite3_column_text(prepared, 0);
        const char *line = said ? strrchr(said, '\n') : NULL; /* the first line only says which database */
        if (!said || strcmp(said, "ok") != 0)
            result = damaged(trouble, "%s", line ? line + 1 : said ? said : "it cannot be checked");
    }
    if (sqlite3_finalize(prepared) != SQLITE_OK && result == 0)
        result = failed(database, paths, trouble, error);
    return result;
}

/* Make the tables of a new file. */
static int make_tables(sqlite3 *database)
{
    char *columns = store_columns_define();
    char *tables = columns ? sqlite3_mprintf(schema, columns) : NULL;
    char *sql =
        tables ? sqlite3_mprintf("BEGIN; %s PRAGMA user_version=%d; COMMIT", tables, STORE_LAYOUT) : NULL;
    int result = sql ? sqlite3_exec(database, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
    sqlite3_free(columns);
    sqlite3_free(tables);
    sqlite3_free(sql);
    return result;
}

/* Check that every table and column exists that a new file has. */
static int check_columns(sqlite3 *database, const struct paths *paths, struct trouble *trouble,
                         struct error *error)
{
    sqlite3 *model = NULL;
    sqlite3_stmt *row = NULL;
    int result = 0;
    if (sqlite3_open(":memory:", &model) != SQLITE_OK || make_tables(model) != SQLITE_OK ||
        sqlite3_prepare_v2(model,
                           "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c"
                           " WHERE t.type='table'",
                           -1, &row, NULL) != SQLITE_OK)
        result = store_file_error(error, model, paths);
    while (result == 0 && sqlite3_step(row) == SQLITE_ROW) {
        const char *table = (const char *)sqlite3_column_text(row, 0);
        const char *column = (const char *)sqlite3_column_text(row, 1);
        if (sqlite3_table_column_metadata(database, NULL, table, column, NULL, NULL, NULL, NULL, NULL) !=
            SQLITE_OK)
            result = damaged(trouble, "it has no column %s in a table %s", column, table);
    }
    sqlite3_finalize(row);
    sqlite3_close(model);
    return result;
}

static int settle_layout(sqlite3 *database, const struct paths *paths, struct trouble *trouble,
                         struct error *error)
{
    int64_t layout, tables;
    if (read_number(database, "PRAGMA user_version", 0, &layout) != SQLITE_OK ||
        read_number(database, "SELECT count(*) FROM sqlite_master", 0, &tables) != SQLITE_OK)
        return failed(database, paths, trouble, error);
    int result = check_pages(database, paths, trouble, error);
    if (result < 0)
        return result;
    if (layout < 0 || (layout == 0 && tables > 0))
        return damaged(trouble, "it is not a state file of gpusliced");
    if (layout > STORE_LAYOUT) {
        trouble->is_newer = true;
        return damaged(trouble, "layout %" PRId64 ", this one knows %d", layout, STORE_LAYOUT);
    }
    if (sqlite3_exec(database, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON",
                     NULL, NULL, NULL) != SQLITE_OK)
        return failed(database, paths, trouble, error);
    if ((layout == 0 && make_tables(database) != SQLITE_OK) ||
        store_columns_add_missing(database) != SQLITE_OK)
        return failed(database, paths, trouble, error);
    return check_columns(database, paths, trouble, error);
}

/* --- Opening --------------------------------------------------------------------------------------- */

/* -EBADMSG: the file cannot be used, and `trouble` says why. */
static int open_database(const struct paths *paths, sqlite3 **database_out, struct trouble *trouble,
                         struct error *error)
{
    const char *path = paths->state_file;
    /* SQLite gives its other files the mode of the first; ours hold tokens. */
    cleanup_close int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) < 0 || fchmod(fd, 0600) < 0)
        return error_set_errno(error, errno, "cannot open the state file %s", path);
    if (!S_ISREG(status.st_mode) || status.st_uid != geteuid())
        return error_set(error, EPERM, NULL,
                         "the state file %s is not a plain file of the daemon's user; move it away", path);
    sqlite3 *database;
    int result = 0;
    if (sqlite3_open_v2(path, &database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX, NULL) != SQLITE_OK)
        result = store_file_error(error, database, paths);
    if (result == 0) {
        sqlite3_busy_timeout(database, 2000);
        /* A file that is refused is left as it was found, with its log. */
        sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        result = settle_layout(database, paths, trouble, error);
    }
    if (result < 0) {
        sqlite3_close(database);
        return result;
    }
    sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    *database_out = database;
    return 0;
}

/* Rename the log before the file, so that a new file does not find the old one's log. */
static int put_aside(const struct paths *paths, char aside[static PATH_MAX + 64], struct error *error)
{
    static const char *const parts[] = {"-shm", "-wal", ""};
    char from[PATH_MAX + 8], to[PATH_MAX + 72], when[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", gmtime_r(&now, &utc));
    snprintf(aside, PATH_MAX + 64, "%s.damaged-%s", paths->state_file, when);
    for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        snprintf(from, sizeof(from), "%s%s", paths->state_file, parts[i]);
        snprintf(to, sizeof(to), "%s%s", aside, parts[i]);
        if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) < 0 && errno != ENOENT)
            return error_set_errno(error, errno, "cannot put the state file aside as %s", to);
    }
    return 0;
}

int store_file_open(const struct paths *paths, bool fresh, sqlite3 **database, struct error *error)
{
    struct trouble trouble = {0};
    char aside[PATH_MAX + 64];
    int result = open_database(paths, database, &trouble, error);
    if (result != -EBADMSG)
        return result;
    if (!fresh)
        return error_set(error, EBADMSG, NULL,
                         "the state file %s %s (%s); %s, or start once with --fresh, which keeps it aside as "
                         "%s.damaged-TIME and begins without sessions",
                         paths->state_file, trouble.is_newer ? "is of a newer gpusliced" : "is damaged",
                         trouble.text, trouble.is_newer ? "run that one" : "put a copy of it back",
                         paths->state_file);
    if ((result = put_aside(paths, aside, error)) < 0)
        return result;
    log_warning("the state file %s (%s): it is kept as %s, and gpusliced begins without sessions",
                trouble.is_newer ? "was of a newer gpusliced" : "was damaged", trouble.text, aside);
    result = open_database(paths, database, &trouble, error);
    return result == -EBADMSG ? error_set(error, EIO, NULL, "cannot make a new state file %s: %s",
                                          paths->state_file, trouble.text)
                              : result;
}

/* --- Its epoch ------------------------------------------------------------------------------------- */

/* A daemon that stops in order takes its mark away. */
static int find_last_end(sqlite3 *database, const char *boot_id, enum daemon_end *last_end)
{
    int64_t serves, is_same_boot;
    char *sql = sqlite3_mprintf("SELECT count(*) FROM meta WHERE key='boot_id' AND value=%Q", boot_id);
    int result = sql ? read_number(database, sql, 0, &is_same_boot) : SQLITE_NOMEM;
    sqlite3_free(sql);
    if (result == SQLITE_OK)
        result = read_number(database, "SELECT count(*) FROM meta WHERE key='serves'", 0, &serves);
    if (result == SQLITE_OK)
        *last_end = !serves ? DAEMON_END_NONE : is_same_boot ? DAEMON_END_DEATH : DAEMON_END_MACHINE;
    return result;
}

void store_file_end_epoch(sqlite3 *database)
{
    sqlite3_exec(database, "DELETE FROM meta WHERE key='serves'", NULL, NULL, NULL);
}

/* After a reboot pids mean nothing, and neither does the machine's time: forget the processes, the sessions that were
 * to end with a process, and how far the wall clock was ahead. The epoch is at least the time (microseconds since
 * 1970), so that a copy of the file that is put back later does not give the same epoch again. */
int store_file_begin_epoch(sqlite3 *database, const struct paths *paths, uint64_t *epoch,
                           enum daemon_end *last_end, struct error *error)
{
    char boot_id[64] = "";
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    cleanup_close int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, boot_id, sizeof(boot_id) - 1) > 0)
        boot_id[strcspn(boot_id, "\n")] = '\0';
    if (find_last_end(database, boot_id, last_end) != SQLITE_OK)
        return store_file_error(error, database, paths);
    char *sql = sqlite3_mprintf(
        "BEGIN IMMEDIATE;"
        "INSERT OR REPLACE INTO meta VALUES('serves','1');"
        "DELETE FROM processes WHERE EXISTS(SELECT 1 FROM meta WHERE key='boot_id' AND value<>%Q);"
        "DELETE FROM sessions WHERE run_pid<>0 AND EXISTS(SELECT 1 FROM meta WHERE key='boot_id' AND "
        "value<>%Q);"
        "UPDATE sessions SET wall_ahead_ms=0 WHERE EXISTS(SELECT 1 FROM meta WHERE key='boot_id' AND "
        "value<>%Q);"
        "INSERT OR REPLACE INTO meta VALUES('boot_id',%Q);"
        "INSERT INTO meta VALUES('epoch',%lld) ON CONFLICT(key) DO UPDATE SET"
        " value=max(CAST(value AS INTEGER)+1, CAST(excluded.value AS INTEGER));"
        "COMMIT",
        boot_id, boot_id, boot_id, boot_id, (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    int64_t number;
    int result = sql ? sqlite3_exec(database, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    if (result != SQLITE_OK ||
        read_number(database, "SELECT value FROM meta WHERE key='epoch'", 0, &number) != SQLITE_OK)
        return store_file_error(error, database, paths);
    *epoch = (uint64_t)number;
    return 0;
}
