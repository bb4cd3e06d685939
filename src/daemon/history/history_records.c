#include "daemon/history/history_records.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/history/history_file_state.h"

#define DAY_MS (INT64_C(86400) * 1000)
/* Which part of a user's records goes at once. */
#define DROPPED_PART 8
/* What a record takes beside its text, about. */
#define RECORD_BYTES 96

/* What may be seen: the asker is parameter 1. */
#define MAY_SEE "(?1=0 OR owner_uid=?1"

/* The tables that are bounded, and the column that says how old a record is. */
static const struct {
    const char *table, *key;
} bounded[] = {{"events", "epoch, number"}, {"ended", "session_id"}};
#define BOUNDED_COUNT (sizeof(bounded) / sizeof(bounded[0]))

/* --- Statements ------------------------------------------------------------------------------------ */

static int prepare(struct history_file *file, const char *sql, sqlite3_stmt **statement, struct error *error)
{
    return sqlite3_prepare_v2(file->database, sql, -1, statement, NULL) == SQLITE_OK
               ? 0
               : history_file_failed(file, error);
}

static int finish(struct history_file *file, sqlite3_stmt *statement, struct error *error)
{
    return sqlite3_finalize(statement) == SQLITE_OK ? 0 : history_file_failed(file, error);
}

__attribute__((format(printf, 3, 4))) static int execute(struct history_file *file, struct error *error,
                                                         const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *sql = sqlite3_vmprintf(format, arguments);
    va_end(arguments);
    int result = sql ? sqlite3_exec(file->database, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    return result == SQLITE_OK ? 0 : history_file_failed(file, error);
}

static const char *text_at(sqlite3_stmt *row, int column)
{
    const char *text = (const char *)sqlite3_column_text(row, column);
    return text ? text : "";
}

/* --- Writing --------------------------------------------------------------------------------------- */

static const char *const puts_of[] = {
    [RECORD_EVENT] = "INSERT OR REPLACE INTO events(epoch, number, at_ms, owner_uid, for_all, text)"
                     " VALUES(:epoch, :number, :at_ms, :owner_uid, :for_all, :text)",
    [RECORD_ENDED] = "INSERT OR REPLACE INTO ended(session_id, name, at_ms, owner_uid, text)"
                     " VALUES(:session_id, :name, :at_ms, :owner_uid, :text)",
    [RECORD_TOTALS] = "INSERT OR REPLACE INTO totals(session_id, text) VALUES(:session_id, :text)",
};

static void bind_number(sqlite3_stmt *statement, const char *name, int64_t number)
{
    sqlite3_bind_int64(statement, sqlite3_bind_parameter_index(statement, name), number);
}

static void bind_text(sqlite3_stmt *statement, const char *name, const char *text)
{
    sqlite3_bind_text(statement, sqlite3_bind_parameter_index(statement, name), text, -1, SQLITE_STATIC);
}

static int put(struct history_file *file, const struct history_record *record, struct error *error)
{
    sqlite3_stmt *statement;
    int result = prepare(file, puts_of[record->kind], &statement, error);
    if (result < 0)
        return result;
    bind_number(statement, ":epoch", (int64_t)record->epoch);
    bind_number(statement, ":number", (int64_t)record->number);
    bind_number(statement, ":at_ms", record->at_ms);
    bind_number(statement, ":owner_uid", record->owner);
    bind_number(statement, ":for_all", record->is_for_all);
    bind_text(statement, ":session_id", record->session_id);
    bind_text(statement, ":name", record->name);
    bind_text(statement, ":text", record->text);
    sqlite3_step(statement);
    result = finish(file, statement, error);
    if (result == 0 && record->kind == RECORD_ENDED)
        result = execute(file, error, "DELETE FROM totals WHERE session_id='%s'", record->session_id);
    return result;
}

int history_records_put(struct history_file *file, const struct history_record *records, struct error *error)
{
    int result = execute(file, error, "BEGIN IMMEDIATE");
    for (const struct history_record *at = records; at && result == 0; at = at->next)
        result = put(file, at, error);
    if (result == 0)
        result = execute(file, error, "COMMIT");
    if (result < 0 && !sqlite3_get_autocommit(file->database))
        sqlite3_exec(file->database, "ROLLBACK", NULL, NULL, NULL);
    return result;
}

/* --- Reading --------------------------------------------------------------------------------------- */

static struct history_record *event_at(sqlite3_stmt *row)
{
    const char *text = text_at(row, 3);
    struct history_record *record = malloc(sizeof(*record) + strlen(text) + 1);
    if (!record)
        return NULL;
    *record = (struct history_record){.kind = RECORD_EVENT,
                                      .epoch = (uint64_t)sqlite3_column_int64(row, 0),
                                      .number = (uint64_t)sqlite3_column_int64(row, 1),
                                      .at_ms = sqlite3_column_int64(row, 2)};
    strcpy(record->text, text);
    return record;
}

int history_records_events(struct history_file *file, const struct history_events_ask *ask,
                           void (*take)(const struct history_record *record, void *context), void *context,
                           struct error *error)
{
    sqlite3_stmt *row;
    int result = prepare(file,
                         "SELECT epoch, number, at_ms, text FROM events WHERE " MAY_SEE " OR for_all)"
                         " AND at_ms>=?2 AND (epoch, number)>(?3, ?4) ORDER BY epoch, number LIMIT ?5",
                         &row, error);
    if (result < 0)
        return result;
    sqlite3_bind_int64(row, 1, ask->uid);
    sqlite3_bind_int64(row, 2, ask->from_ms);
    sqlite3_bind_int64(row, 3, (int64_t)ask->epoch);
    sqlite3_bind_int64(row, 4, (int64_t)ask->number);
    sqlite3_bind_int64(row, 5, ask->most);
    while (sqlite3_step(row) == SQLITE_ROW) {
        cleanup_free struct history_record *record = event_at(row);
        if (record)
            take(record, context);
    }
    return finish(file, row, error);
}

int history_records_ended(struct history_file *file, const struct history_ended_ask *ask,
                          void (*take)(const char *text, void *context), void *context, struct error *error)
{
    sqlite3_stmt *row;
    int result = prepare(file,
                         "SELECT text FROM (SELECT at_ms, session_id, text FROM ended WHERE " MAY_SEE ")"
                         " AND at_ms>=?2 AND at_ms<=?3 AND (?4 IS NULL OR owner_uid=?4)"
                         " AND (?5='' OR name=?5 OR (substr(session_id, 1, length(?5))=?5"
                         " AND NOT EXISTS(SELECT 1 FROM ended WHERE " MAY_SEE ") AND name=?5)))"
                         " ORDER BY at_ms DESC, session_id LIMIT ?6) ORDER BY at_ms, session_id",
                         &row, error);
    if (result < 0)
        return result;
    sqlite3_bind_int64(row, 1, ask->uid);
    sqlite3_bind_int64(row, 2, ask->from_ms);
    sqlite3_bind_int64(row, 3, ask->to_ms);
    if (ask->has_owner)
        sqlite3_bind_int64(row, 4, ask->owner);
    sqlite3_bind_text(row, 5, ask->session, -1, SQLITE_STATIC);
    sqlite3_bind_int64(row, 6, ask->most);
    while (sqlite3_step(row) == SQLITE_ROW)
        take(text_at(row, 0), context);
    return finish(file, row, error);
}

int history_records_totals(struct history_file *file,
                           void (*take)(const char *session_id, const char *text, void *context),
                           void *context, struct error *error)
{
    sqlite3_stmt *row;
    int result = prepare(file, "SELECT session_id, text FROM totals ORDER BY session_id", &row, error);
    if (result < 0)
        return result;
    while (sqlite3_step(row) == SQLITE_ROW)
        take(text_at(row, 0), text_at(row, 1), context);
    return finish(file, row, error);
}

/* --- Less of it ------------------------------------------------------------------------------------ */

/* Remove the oldest `count` of a user's records of one kind. */
static int drop_oldest(struct history_file *file, size_t kind, int64_t owner, int64_t count,
                       struct error *error)
{
    return execute(file, error,
                   "DELETE FROM %s WHERE (%s) IN (SELECT %s FROM %s WHERE owner_uid=%lld ORDER BY at_ms, %s"
                   " LIMIT %lld)",
                   bounded[kind].table, bounded[kind].key, bounded[kind].key, bounded[kind].table,
                   (long long)owner, bounded[kind].key, (long long)count);
}

/* The user who has most records of one kind, how many these are, and how many there are of all users. */
static int find_most(struct history_file *file, size_t kind, int64_t *owner, int64_t *most, int64_t *all,
                     struct error *error)
{
    char sql[160];
    sqlite3_stmt *row;
    snprintf(sql, sizeof(sql), "SELECT owner_uid, count(*) FROM %s GROUP BY owner_uid", bounded[kind].table);
    int result = prepare(file, sql, &row, error);
    *owner = *most = *all = 0;
    if (result < 0)
        return result;
    while (sqlite3_step(row) == SQLITE_ROW) {
        int64_t count = sqlite3_column_int64(row, 1);
        *all += count;
        if (count > *most) {
            *most = count;
            *owner = sqlite3_column_int64(row, 0);
        }
    }
    return finish(file, row, error);
}

/* At least one goes each time, and at most what is too many or an eighth of what the user has. */
static int keep_bound(struct history_file *file, size_t kind, uint32_t bound, struct error *error)
{
    for (;;) {
        int64_t owner, most, all;
        int result = find_most(file, kind, &owner, &most, &all, error);
        if (result < 0 || all <= bound)
            return result;
        int64_t part = most / DROPPED_PART + 1, excess = all - bound;
        result = drop_oldest(file, kind, owner, part < excess ? part : excess, error);
        if (result < 0)
            return result;
    }
}

int history_records_prune(struct history_file *file, int64_t now, const struct history_bounds *bounds,
                          struct error *error)
{
    int result = 0;
    for (size_t kind = 0; kind < BOUNDED_COUNT && result == 0; kind++) {
        result = execute(file, error, "DELETE FROM %s WHERE at_ms<%lld", bounded[kind].table,
                         (long long)(now * 1000 - (int64_t)bounds->days * DAY_MS));
        if (result == 0)
            result = keep_bound(file, kind, bounds->records, error);
    }
    return result;
}

int history_records_drop(struct history_file *file, uid_t owner, struct error *error)
{
    int result = 0, dropped = 0;
    for (size_t kind = 0; kind < BOUNDED_COUNT && result == 0; kind++) {
        char sql[96];
        snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s WHERE owner_uid=%u", bounded[kind].table,
                 (unsigned)owner);
        int64_t count = history_file_number(file, sql, 0);
        if (count == 0)
            continue;
        result = drop_oldest(file, kind, owner, count / DROPPED_PART + 1, error);
        dropped++;
    }
    return result == 0 && !dropped ? -ENOENT : result;
}

int history_records_owners(struct history_file *file,
                           void (*take)(uid_t owner, uint64_t bytes, void *context), void *context,
                           struct error *error)
{
    int result = 0;
    for (size_t kind = 0; kind < BOUNDED_COUNT && result == 0; kind++) {
        char sql[160];
        sqlite3_stmt *row;
        snprintf(sql, sizeof(sql), "SELECT owner_uid, sum(length(text)+%d) FROM %s GROUP BY owner_uid",
                 RECORD_BYTES, bounded[kind].table);
        result = prepare(file, sql, &row, error);
        if (result < 0)
            return result;
        while (sqlite3_step(row) == SQLITE_ROW)
            take((uid_t)sqlite3_column_int64(row, 0), (uint64_t)sqlite3_column_int64(row, 1), context);
        result = finish(file, row, error);
    }
    return result;
}
