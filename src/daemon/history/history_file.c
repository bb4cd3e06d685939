#include "daemon/history/history_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/history/history_file_state.h"
#include "daemon/loop/log.h"

#define LAYOUT 1

static const char schema[] =
    "CREATE TABLE IF NOT EXISTS series(id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, name TEXT NOT NULL,"
    " owner_uid INTEGER NOT NULL, gpu_uuid TEXT NOT NULL, last_at INTEGER NOT NULL, label TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS events(epoch INTEGER NOT NULL, number INTEGER NOT NULL, at_ms INTEGER NOT "
    "NULL,"
    " owner_uid INTEGER NOT NULL, for_all INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY(epoch, number))"
    " WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS ended(session_id TEXT PRIMARY KEY, name TEXT NOT NULL, at_ms INTEGER NOT "
    "NULL,"
    " owner_uid INTEGER NOT NULL, text TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS totals(session_id TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS ticks(key INTEGER PRIMARY KEY, milliseconds INTEGER NOT NULL, samples BLOB "
    "NOT "
    "NULL);"
    "PRAGMA user_version=1;";

static const char *const texts[STATEMENTS] = {
    [PUT_SERIES] =
        ("INSERT INTO series VALUES(?,?,?,?,?,?,?) ON CONFLICT(id) DO UPDATE SET name=excluded.name,"
         " last_at=excluded.last_at, label=excluded.label"),
    [PUT_TICK] = "INSERT OR REPLACE INTO ticks VALUES(?,?,?)",
    [REMOVE_TICKS] = "DELETE FROM ticks WHERE key>=? AND key<=?",
    [READ_TICKS] = "SELECT key, milliseconds, samples FROM ticks WHERE key>? AND key<=? ORDER BY key",
};

int history_file_failed(struct history_file *file, struct error *error)
{
    return error_set(error, EIO, "ERR_INTERNAL", "the history's file: %s", sqlite3_errmsg(file->database));
}

int64_t history_file_number(struct history_file *file, const char *sql, int64_t otherwise)
{
    sqlite3_stmt *row = NULL;
    int64_t number = otherwise;
    if (sqlite3_prepare_v2(file->database, sql, -1, &row, NULL) == SQLITE_OK &&
        sqlite3_step(row) == SQLITE_ROW && sqlite3_column_type(row, 0) != SQLITE_NULL)
        number = sqlite3_column_int64(row, 0);
    sqlite3_finalize(row);
    return number;
}

/* --- Opening --------------------------------------------------------------------------------------- */

static bool prepare(struct history_file *file)
{
    int64_t layout = history_file_number(file, "PRAGMA user_version", -1);
    if ((layout != 0 && layout != LAYOUT) ||
        sqlite3_exec(file->database,
                     "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=4194304",
                     NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(file->database, schema, NULL, NULL, NULL) != SQLITE_OK)
        return false;
    for (int i = 0; i < STATEMENTS; i++)
        if (sqlite3_prepare_v3(file->database, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &file->statements[i],
                               NULL) != SQLITE_OK)
            return false;
    return history_file_number(file, "SELECT count(*) FROM pragma_quick_check(1) WHERE quick_check='ok'",
                               0) == 1;
}

static void close_database(struct history_file *file)
{
    for (int i = 0; i < STATEMENTS; i++) {
        sqlite3_finalize(file->statements[i]);
        file->statements[i] = NULL;
    }
    sqlite3_close(file->database);
    file->database = NULL;
}

static int open_database(struct history_file *file, const char *path, struct error *error)
{
    /* SQLite gives its other files the mode of this one; it says which user ran what. */
    cleanup_close int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set_errno(error, errno, "cannot open the history's file %s", path);
    if (sqlite3_open_v2(path, &file->database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX, NULL) !=
            SQLITE_OK ||
        !prepare(file)) {
        history_file_failed(file, error);
        close_database(file);
        return -EBADMSG;
    }
    return 0;
}

static void put_aside(const char *path)
{
    static const char *const parts[] = {"-shm", "-wal", ""};
    char from[PATH_MAX + 8], to[PATH_MAX + 32];
    for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        snprintf(from, sizeof(from), "%s%s", path, parts[i]);
        snprintf(to, sizeof(to), "%s.damaged%s", path, parts[i]);
        rename(from, to);
    }
}

int history_file_open(const char *path, struct history_file **file_out, uint32_t *next_series,
                      struct error *error)
{
    struct history_file *file = calloc(1, sizeof(*file));
    struct error why = {0};
    if (!file)
        return error_set_errno(error, ENOMEM, "cannot keep a history");
    int result = open_database(file, path, &why);
    if (result == -EBADMSG) {
        log_warning("%s: it is kept as %s.damaged, and the history begins anew", why.message, path);
        put_aside(path);
        result = open_database(file, path, &why);
    }
    if (result < 0) {
        free(file);
        return error_set(error, EIO, NULL, "%s", why.message);
    }
    *next_series = (uint32_t)history_file_number(file, "SELECT max(id) FROM series", 0) + 1;
    *file_out = file;
    return 0;
}

void history_file_close(struct history_file *file)
{
    if (!file)
        return;
    close_database(file);
    free(file);
}

void history_ticks_free(struct history_tick *ticks)
{
    while (ticks) {
        struct history_tick *next = ticks->next;
        free(ticks->row.bytes);
        free(ticks);
        ticks = next;
    }
}

/* --- Writing --------------------------------------------------------------------------------------- */

static bool run(struct history_file *file, int which)
{
    int result = sqlite3_step(file->statements[which]);
    sqlite3_reset(file->statements[which]);
    return result == SQLITE_DONE;
}

static bool put_series(struct history_file *file, const struct history_series *series)
{
    sqlite3_stmt *put = file->statements[PUT_SERIES];
    sqlite3_bind_int64(put, 1, series->id);
    sqlite3_bind_text(put, 2, series->session_id, -1, SQLITE_STATIC);
    sqlite3_bind_text(put, 3, series->name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(put, 4, series->owner);
    sqlite3_bind_text(put, 5, series->gpu_uuid, -1, SQLITE_STATIC);
    sqlite3_bind_int64(put, 6, series->at);
    sqlite3_bind_text(put, 7, series->label, -1, SQLITE_STATIC);
    return run(file, PUT_SERIES);
}

static bool put_tick(struct history_file *file, const struct history_tick *tick)
{
    sqlite3_stmt *put = file->statements[PUT_TICK];
    sqlite3_bind_int64(put, 1, history_key(tick->level, tick->at));
    sqlite3_bind_int64(put, 2, tick->milliseconds);
    sqlite3_bind_blob(put, 3, tick->row.length ? (const void *)tick->row.bytes : "", (int)tick->row.length,
                      SQLITE_STATIC);
    return run(file, PUT_TICK);
}

/* Write all of this in one transaction, or nothing. First the ticks with keys from `first` to `last` go. */
static int write_all(struct history_file *file, int64_t first, int64_t last,
                     const struct history_series *series, const struct history_tick *ticks,
                     struct error *error)
{
    sqlite3_stmt *remove = file->statements[REMOVE_TICKS];
    bool is_well = sqlite3_exec(file->database, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK;
    sqlite3_bind_int64(remove, 1, first);
    sqlite3_bind_int64(remove, 2, last);
    if (is_well && first <= last)
        is_well = run(file, REMOVE_TICKS);
    for (; is_well && series; series = series->next)
        is_well = put_series(file, series);
    for (; is_well && ticks; ticks = ticks->next)
        is_well = put_tick(file, ticks);
    if (is_well && sqlite3_exec(file->database, "COMMIT", NULL, NULL, NULL) == SQLITE_OK)
        return 0;
    history_file_failed(file, error);
    if (!sqlite3_get_autocommit(file->database))
        sqlite3_exec(file->database, "ROLLBACK", NULL, NULL, NULL);
    return -EIO;
}

int history_file_append(struct history_file *file, const struct history_series *series,
                        const struct history_tick *ticks, struct error *error)
{
    return write_all(file, 0, -1, series, ticks, error);
}

int history_file_replace(struct history_file *file, int64_t first, int64_t last,
                         const struct history_tick *ticks, struct error *error)
{
    return write_all(file, first, last, NULL, ticks, error);
}

/* --- Reading --------------------------------------------------------------------------------------- */

int history_file_list(struct history_file *file,
                      void (*take)(const struct history_series *series, void *context), void *context,
                      struct error *error)
{
    sqlite3_stmt *row = NULL;
    if (sqlite3_prepare_v2(file->database,
                           "SELECT id, session_id, name, owner_uid, gpu_uuid, label FROM series ORDER BY "
                           "session_id, gpu_uuid, id",
                           -1, &row, NULL) != SQLITE_OK)
        return history_file_failed(file, error);
    while (sqlite3_step(row) == SQLITE_ROW) {
        struct history_series series = {.id = (uint32_t)sqlite3_column_int64(row, 0),
                                        .owner = (uid_t)sqlite3_column_int64(row, 3)};
        snprintf(series.session_id, sizeof(series.session_id), "%s", sqlite3_column_text(row, 1));
        snprintf(series.name, sizeof(series.name), "%s", sqlite3_column_text(row, 2));
        snprintf(series.gpu_uuid, sizeof(series.gpu_uuid), "%s", sqlite3_column_text(row, 4));
        snprintf(series.label, sizeof(series.label), "%s", sqlite3_column_text(row, 5));
        take(&series, context);
    }
    return sqlite3_finalize(row) == SQLITE_OK ? 0 : history_file_failed(file, error);
}

/* What is read of each level: ticks that end after `from`, up to `to`. */
struct parts {
    int64_t from[SAMPLES_LEVELS], to[SAMPLES_LEVELS];
};

/* The end of the level's first tick that ends at `at` or later; `otherwise` if there is none. */
static int64_t first_end(struct history_file *file, int level, int64_t at, int64_t otherwise)
{
    char sql[128];
    int64_t base = history_key((enum samples_level)level, 0);
    snprintf(sql, sizeof(sql), "SELECT min(key)-%lld FROM ticks WHERE key>=%lld AND key<%lld",
             (long long)base, (long long)(base + at),
             (long long)history_key((enum samples_level)(level + 1), 0));
    return history_file_number(file, sql, otherwise);
}

/* When the level's first tick that ends after `from` begins; INT64_MAX if there is none. A daemon's first tick is
 * short. */
static int64_t first_begin(struct history_file *file, int level, int64_t from)
{
    char sql[160];
    int64_t base = history_key((enum samples_level)level, 0);
    snprintf(
        sql, sizeof(sql),
        "SELECT key-(milliseconds+500)/1000-%lld FROM ticks WHERE key>%lld AND key<%lld ORDER BY key LIMIT 1",
        (long long)base, (long long)(base + from),
        (long long)history_key((enum samples_level)(level + 1), 0));
    return history_file_number(file, sql, INT64_MAX);
}

/* Whether the level has everything that any coarser level has after `from`. */
static bool knows_all(struct history_file *file, int level, int64_t from)
{
    int64_t begin = first_begin(file, level, from);
    bool knows = begin != INT64_MAX;
    for (int coarser = level + 1; knows && begin > from && coarser < SAMPLES_LEVELS; coarser++)
        knows = first_begin(file, coarser, from) >= begin;
    return knows;
}

/* Begin with the coarsest level, up to the end of the tick in which the next finer level's first tick begins; and so
 * on. */
static struct parts find_parts(struct history_file *file, int64_t from, int64_t to)
{
    struct parts parts;
    int64_t begin = from;
    for (int level = SAMPLES_LEVELS; level-- > 0;) {
        parts.from[level] = begin;
        if (level > 0) {
            int64_t first = first_end(file, level - 1, from + 1, to + 1);
            int64_t least = first - samples_levels[level - 1].step_seconds;
            if (least < begin)
                least = begin;
            begin = first_end(file, level, least, least);
        } else {
            begin = to;
        }
        if (begin > to)
            begin = to;
        parts.to[level] = begin;
    }
    /* A finer level that has everything makes the coarser ones unnecessary. */
    for (int level = 0; level < SAMPLES_LEVELS; level++) {
        if (!knows_all(file, level, from))
            continue;
        parts.from[level] = from;
        for (int coarser = level + 1; coarser < SAMPLES_LEVELS; coarser++)
            parts.to[coarser] = parts.from[coarser];
        break;
    }
    return parts;
}

uint32_t history_file_step(struct history_file *file, int64_t from, int64_t to)
{
    struct parts parts = find_parts(file, from, to);
    for (int level = SAMPLES_LEVELS; level-- > 0;)
        if (first_end(file, level, parts.from[level] + 1, INT64_MAX) <= parts.to[level])
            return samples_levels[level].step_seconds;
    return samples_levels[0].step_seconds;
}

int history_file_read(struct history_file *file, int64_t from, int64_t to,
                      void (*take)(const struct history_tick *tick, void *context), void *context,
                      struct error *error)
{
    struct parts parts = find_parts(file, from, to);
    sqlite3_stmt *read = file->statements[READ_TICKS];
    for (int level = SAMPLES_LEVELS; level-- > 0;) {
        if (parts.from[level] >= parts.to[level])
            continue;
        sqlite3_bind_int64(read, 1, history_key((enum samples_level)level, parts.from[level]));
        sqlite3_bind_int64(read, 2, history_key((enum samples_level)level, parts.to[level]));
        while (sqlite3_step(read) == SQLITE_ROW) {
            struct history_tick tick = {
                .level = (enum samples_level)level,
                .at = sqlite3_column_int64(read, 0) - history_key((enum samples_level)level, 0),
                .milliseconds = (uint32_t)sqlite3_column_int64(read, 1),
                .row = {.bytes = (uint8_t *)sqlite3_column_blob(read, 2),
                        .length = (size_t)sqlite3_column_bytes(read, 2)},
            };
            take(&tick, context);
        }
        if (sqlite3_reset(read) != SQLITE_OK)
            return history_file_failed(file, error);
    }
    return 0;
}
