/* history_file_state.h - the history's open file, for the parts of history_file.h: history_file.c writes and reads it,
 * history_prune.c keeps it within its bounds. */
#pragma once

#include <sqlite3.h>

#include "daemon/history/history_file.h"

/* A tick's key: its level in the high bits, its end in the low ones. */
#define HISTORY_LEVEL_SHIFT 40

enum { PUT_SERIES, PUT_TICK, REMOVE_TICKS, READ_TICKS, STATEMENTS };

struct history_file {
    sqlite3 *database;
    sqlite3_stmt *statements[STATEMENTS];
};

static inline int64_t history_key(enum samples_level level, int64_t at)
{
    return (int64_t)((uint64_t)level << HISTORY_LEVEL_SHIFT) + at;
}

/* What SQLite says of its last failure. Returns -EIO. */
int history_file_failed(struct history_file *file, struct error *error);
/* The first number that the statement answers, or `otherwise`. */
int64_t history_file_number(struct history_file *file, const char *sql, int64_t otherwise);
/* Put `ticks` in the place of those with keys from `first` to `last`: all, or nothing changes. */
int history_file_replace(struct history_file *file, int64_t first, int64_t last,
                         const struct history_tick *ticks, struct error *error);
