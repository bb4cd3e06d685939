/* The bounds of the history's file. Its bytes are shared by user: where it is too large, whoever has most in it loses his oldest
 * samples, so that no user's sessions push those of others out. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/history/history_file_state.h"
#include "daemon/history/history_records.h"

#define DAY_SECONDS 86400
/* Ticks are kept a little longer than their level says, because a question about that whole time is read a moment
 * later. */
#define KEPT_LONGER_SECONDS 120
/* No series is removed before its last tick, which ends less than this after the series was written. */
#define SERIES_KEPT_LONGER_SECONDS (2 * HISTORY_PUT_SECONDS)
/* If the file is too large, which part goes at once of what its largest owner has where he has most. */
#define PRUNED_PART 8
/* What a series takes in the file, about. */
#define SERIES_BYTES 128
/* Owners that are no user: of whole GPUs, and of samples whose series is gone. */
#define OWNER_GPUS (-1)
#define OWNER_NOBODY (-2)

uint64_t history_file_bytes(struct history_file *file)
{
    int64_t pages = history_file_number(file, "PRAGMA page_count", 0) -
                    history_file_number(file, "PRAGMA freelist_count", 0);
    return (uint64_t)(pages * history_file_number(file, "PRAGMA page_size", 4096));
}

static int execute(struct history_file *file, char *sql, struct error *error)
{
    int result = sql ? sqlite3_exec(file->database, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    return result == SQLITE_OK ? 0 : history_file_failed(file, error);
}

/* --- Whose the bytes are --------------------------------------------------------------------------- */

enum { IN_SERIES = SAMPLES_LEVELS, IN_RECORDS, PLACES };

struct owner {
    int64_t uid;
    uint64_t bytes[PLACES]; /* in the ticks of each level, in series, and in records */
};

struct owners {
    struct owner *all; /* the first is OWNER_NOBODY */
    size_t count;
    uint32_t *of_series; /* index into `all`, by the series' number */
    size_t series_room;
};

/* The index of the owner with this user ID, who may be new; 0 without memory. */
static uint32_t find_owner(struct owners *owners, int64_t uid)
{
    for (size_t i = 0; i < owners->count; i++)
        if (owners->all[i].uid == uid)
            return (uint32_t)i;
    struct owner *all = reallocarray(owners->all, owners->count + 1, sizeof(*all));
    if (!all)
        return 0;
    owners->all = all;
    all[owners->count] = (struct owner){.uid = uid};
    return (uint32_t)owners->count++;
}

static uint32_t owner_of(const struct owners *owners, uint32_t series)
{
    return series < owners->series_room ? owners->of_series[series] : 0;
}

static void take_series(const struct history_series *series, void *context)
{
    struct owners *owners = context;
    if (series->id >= owners->series_room) {
        size_t room = (size_t)series->id + 1 + series->id / 2;
        uint32_t *of_series = reallocarray(owners->of_series, room, sizeof(*of_series));
        if (!of_series)
            return;
        memset(of_series + owners->series_room, 0, (room - owners->series_room) * sizeof(*of_series));
        owners->of_series = of_series;
        owners->series_room = room;
    }
    uint32_t owner = find_owner(owners, series->session_id[0] ? (int64_t)series->owner : OWNER_GPUS);
    owners->of_series[series->id] = owner;
    if (owner && series->session_id[0])
        owners->all[owner].bytes[IN_SERIES] += SERIES_BYTES;
}

static void take_records(uid_t uid, uint64_t bytes, void *context)
{
    struct owners *owners = context;
    uint32_t owner = find_owner(owners, uid); /* which may move them */
    owners->all[owner].bytes[IN_RECORDS] += bytes;
}

static void take_tick(const struct history_tick *tick, struct owners *owners)
{
    struct sample sample;
    for (size_t at = 0, before = 0; samples_read(tick->row.bytes, tick->row.length, &at, &sample);
         before = at)
        owners->all[owner_of(owners, sample.series)].bytes[tick->level] += at - before;
}

static struct history_tick tick_at(sqlite3_stmt *row)
{
    int64_t key = sqlite3_column_int64(row, 0);
    enum samples_level level = (enum samples_level)(key >> HISTORY_LEVEL_SHIFT);
    return (struct history_tick){.level = level,
                                 .at = key - history_key(level, 0),
                                 .milliseconds = (uint32_t)sqlite3_column_int64(row, 1),
                                 .row = {.bytes = (uint8_t *)sqlite3_column_blob(row, 2),
                                         .length = (size_t)sqlite3_column_bytes(row, 2)}};
}

static int read_owners(struct history_file *file, struct owners *owners, struct error *error)
{
    find_owner(owners, OWNER_NOBODY);
    if (!owners->all)
        return error_set_errno(error, ENOMEM, "cannot prune the history");
    int result = history_file_list(file, take_series, owners, error);
    if (result == 0)
        result = history_records_owners(file, take_records, owners, error);
    if (result < 0)
        return result;
    sqlite3_stmt *read = file->statements[READ_TICKS];
    sqlite3_bind_int64(read, 1, -1);
    sqlite3_bind_int64(read, 2, history_key(SAMPLES_LEVELS, 0));
    while (sqlite3_step(read) == SQLITE_ROW) {
        struct history_tick tick = tick_at(read);
        take_tick(&tick, owners);
    }
    return sqlite3_reset(read) == SQLITE_OK ? 0 : history_file_failed(file, error);
}

static uint64_t bytes_of(const struct owner *owner)
{
    uint64_t bytes = 0;
    for (int place = 0; place < PLACES; place++)
        bytes += owner->bytes[place];
    return bytes;
}

/* --- Less of it ------------------------------------------------------------------------------------ */

/* The tick without the samples of this owner; without bytes where that leaves nothing. NULL without memory. */
static struct history_tick *without(const struct history_tick *tick, const struct owners *owners,
                                    uint32_t owner)
{
    struct history_tick *kept = calloc(1, sizeof(*kept));
    struct sample sample;
    if (!kept)
        return NULL;
    *kept = (struct history_tick){.level = tick->level, .at = tick->at, .milliseconds = tick->milliseconds};
    for (size_t at = 0; samples_read(tick->row.bytes, tick->row.length, &at, &sample);)
        if (owner_of(owners, sample.series) != owner && !samples_write(&kept->row, &sample)) {
            free(kept->row.bytes);
            free(kept);
            return NULL;
        }
    return kept;
}

/* The oldest samples of this owner in the ticks of `level` go. The ticks that are left of these go to new pages: in place they would
 * leave pages of the file nearly empty. */
static int remove_samples(struct history_file *file, const struct owners *owners, uint32_t owner,
                          enum samples_level level, struct error *error)
{
    uint64_t wanted = owners->all[owner].bytes[level] / PRUNED_PART + 1, removed = 0;
    int64_t first = history_key(level, 0), last = first - 1;
    struct history_tick *left = NULL, **end = &left;
    sqlite3_stmt *read = file->statements[READ_TICKS];
    int result = 0;
    sqlite3_bind_int64(read, 1, first - 1);
    sqlite3_bind_int64(read, 2, history_key(level + 1, 0) - 1);
    while (removed < wanted && sqlite3_step(read) == SQLITE_ROW) {
        struct history_tick tick = tick_at(read), *kept = without(&tick, owners, owner);
        if (!kept) {
            result = error_set_errno(error, ENOMEM, "cannot prune the history");
            break;
        }
        removed += tick.row.length - kept->row.length;
        last = history_key(level, tick.at);
        *end = kept;
        if (kept->row.length)
            end = &kept->next;
        else
            history_ticks_free(kept);
    }
    *end = NULL;
    sqlite3_reset(read);
    if (result == 0)
        result = removed ? history_file_replace(file, first, last, left, error) : -ENOENT;
    history_ticks_free(left);
    return result;
}

/* His series that were not written for longest, and with them what they did. The last number stays: the next series gets one behind
 * it. One that is sampled still is known again when it is written next. */
static int remove_series(struct history_file *file, const struct owner *owner, struct error *error)
{
    uint64_t count = owner->bytes[IN_SERIES] / SERIES_BYTES;
    int result = execute(
        file,
        sqlite3_mprintf(
            "DELETE FROM series WHERE id IN (SELECT id FROM series WHERE owner_uid=%lld AND session_id<>''"
            " AND id<(SELECT max(id) FROM series) ORDER BY last_at, id LIMIT %lld)",
            (long long)owner->uid, (long long)(count / PRUNED_PART + 1)),
        error);
    return result == 0 && sqlite3_changes(file->database) == 0 ? -ENOENT : result;
}

static int remove_at(struct history_file *file, const struct owners *owners, uint32_t owner, int place,
                     struct error *error)
{
    if (!owners->all[owner].bytes[place])
        return -ENOENT;
    if (place == IN_SERIES)
        return remove_series(file, &owners->all[owner], error);
    if (place == IN_RECORDS)
        return history_records_drop(file, (uid_t)owners->all[owner].uid, error);
    return remove_samples(file, owners, owner, (enum samples_level)place, error);
}

/* Remove the oldest of what whoever has most has where that is most. Nothing left to remove: -ENOENT. */
static int remove_some(struct history_file *file, struct error *error)
{
    struct owners owners = {0};
    int result = read_owners(file, &owners, error);
    uint32_t most = 0;
    int place = 0;
    for (uint32_t i = 0; result == 0 && i < owners.count; i++)
        if (bytes_of(&owners.all[i]) > bytes_of(&owners.all[most]))
            most = i;
    for (int i = 0; result == 0 && i < PLACES; i++)
        if (owners.all[most].bytes[i] > owners.all[most].bytes[place])
            place = i;
    if (result == 0)
        result = remove_at(file, &owners, most, place, error);
    free(owners.all);
    free(owners.of_series);
    return result;
}

static int remove_old(struct history_file *file, int64_t now, uint32_t days, struct error *error)
{
    int result = 0;
    for (int level = 0; level < SAMPLES_LEVELS && result == 0; level++) {
        int64_t kept = (int64_t)samples_levels[level].kept_seconds + KEPT_LONGER_SECONDS;
        if (kept > (int64_t)days * DAY_SECONDS)
            kept = (int64_t)days * DAY_SECONDS;
        result = execute(file,
                         sqlite3_mprintf("DELETE FROM ticks WHERE key>=%lld AND key<%lld",
                                         (long long)history_key((enum samples_level)level, 0),
                                         (long long)history_key((enum samples_level)level, now - kept)),
                         error);
    }
    if (result == 0)
        result = execute(
            file,
            sqlite3_mprintf("DELETE FROM series WHERE last_at<%lld",
                            (long long)(now - (int64_t)days * DAY_SECONDS - SERIES_KEPT_LONGER_SECONDS)),
            error);
    return result;
}

int history_file_prune(struct history_file *file, int64_t now, const struct history_bounds *bounds,
                       struct error *error)
{
    int result = remove_old(file, now, bounds->days, error);
    if (result == 0)
        result = history_records_prune(file, now, bounds, error);
    while (result == 0 && history_file_bytes(file) > bounds->bytes)
        result = remove_some(file, error);
    return result == -ENOENT ? 0 : result;
}
