#include "daemon/store/store_columns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is stored of a session besides its properties. */
static const struct column {
    const char *name, *definition;
    bool is_fixed; /* written with the session, and never again */
    bool is_later; /* a file of this layout may lack it, and gets it */
} columns[] = {
    {"id", "TEXT PRIMARY KEY", true},
    {"name", "TEXT NOT NULL", false},
    {"owner_uid", "INTEGER NOT NULL", true},
    {"token", "TEXT NOT NULL", true},
    {"request_key", "TEXT NOT NULL DEFAULT ''", true, .is_later = true},
    {"expired", "INTEGER NOT NULL", false},
    {"created_at", "INTEGER NOT NULL", true},
    {"updated_at", "INTEGER NOT NULL", false},
    {"expires_at_ms", "INTEGER NOT NULL", false},
    {"wall_ahead_ms", "INTEGER NOT NULL", false},
    {"run_pid", "INTEGER NOT NULL", true},
    {"run_start_ticks", "INTEGER NOT NULL", true},
    {"declared", "INTEGER NOT NULL", true},
    {"managed", "INTEGER NOT NULL", true},
    {"own_socket", "INTEGER NOT NULL", false},
    {"suspended", "INTEGER NOT NULL", false},
    {"checkpointing", "INTEGER NOT NULL", false},
};
#define COLUMN_COUNT (sizeof(columns) / sizeof(columns[0]))

static bool has_column(const struct property *row)
{
    return !(row->flags & NO_COLUMN);
}

static const char *type_of(const struct property *row)
{
    bool is_number = row->kind == PROPERTY_KIND_FLAG || row->kind == PROPERTY_KIND_SECONDS ||
                     row->kind == PROPERTY_KIND_SIZE;
    return is_number ? "INTEGER" : "TEXT";
}

char *store_columns_define(void)
{
    sqlite3_str *sql = sqlite3_str_new(NULL);
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        sqlite3_str_appendf(sql, "%s%s %s", i ? ", " : "", columns[i].name, columns[i].definition);
    for (size_t i = 0; i < PROPERTY_COUNT; i++)
        if (has_column(&session_properties[i]))
            sqlite3_str_appendf(sql, ", %s %s", session_properties[i].json, type_of(&session_properties[i]));
    return sqlite3_str_finish(sql);
}

/* Append `format`, with each column's name twice, for every column that is written; only those that change if `!is_new`. */
static void append_each(sqlite3_str *sql, const char *first, const char *between, bool is_new)
{
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        if (is_new || !columns[i].is_fixed)
            sqlite3_str_appendf(sql, "%s%s", first, columns[i].name), first = between;
    for (size_t i = 0; i < PROPERTY_COUNT; i++)
        if (has_column(&session_properties[i]))
            sqlite3_str_appendf(sql, "%s%s", first, session_properties[i].json), first = between;
}

char *store_columns_put(void)
{
    sqlite3_str *sql = sqlite3_str_new(NULL);
    append_each(sql, "INSERT INTO sessions(", ", ", true);
    append_each(sql, ") VALUES(:", ", :", true);
    append_each(sql, ") ON CONFLICT(id) DO UPDATE SET (", ", ", false);
    append_each(sql, ") = (excluded.", ", excluded.", false);
    sqlite3_str_appendall(sql, ")");
    return sqlite3_str_finish(sql);
}

static int add_if_missing(sqlite3 *database, const char *name, const char *definition)
{
    if (sqlite3_table_column_metadata(database, NULL, "sessions", name, NULL, NULL, NULL, NULL, NULL) ==
        SQLITE_OK)
        return SQLITE_OK;
    char *sql = sqlite3_mprintf("ALTER TABLE sessions ADD COLUMN %s %s", name, definition);
    int result = sql ? sqlite3_exec(database, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    return result;
}

int store_columns_add_missing(sqlite3 *database)
{
    int result = SQLITE_OK;
    for (size_t i = 0; i < COLUMN_COUNT && result == SQLITE_OK; i++)
        if (columns[i].is_later)
            result = add_if_missing(database, columns[i].name, columns[i].definition);
    for (size_t i = 0; i < PROPERTY_COUNT && result == SQLITE_OK; i++)
        if (has_column(&session_properties[i]))
            result = add_if_missing(database, session_properties[i].json, type_of(&session_properties[i]));
    return result;
}

/* --- Reading --------------------------------------------------------------------------------------- */

static int find(sqlite3_stmt *row, const char *column)
{
    for (int i = 0; i < sqlite3_column_count(row); i++)
        if (strcmp(sqlite3_column_name(row, i), column) == 0)
            return i;
    return -1;
}

int64_t store_column_number(sqlite3_stmt *row, const char *column)
{
    int at = find(row, column);
    return at < 0 ? 0 : sqlite3_column_int64(row, at);
}

void store_column_text(sqlite3_stmt *row, const char *column, char *text, size_t bytes)
{
    int at = find(row, column);
    const unsigned char *value = at < 0 ? NULL : sqlite3_column_text(row, at);
    snprintf(text, bytes, "%s", value ? (const char *)value : "");
}

static json_t *value_of(sqlite3_stmt *row, const struct property *property, int at)
{
    if (at < 0 || sqlite3_column_type(row, at) == SQLITE_NULL)
        return NULL;
    if (property->kind == PROPERTY_KIND_FLAG)
        return json_boolean(sqlite3_column_int64(row, at));
    if (sqlite3_column_type(row, at) == SQLITE_INTEGER)
        return json_integer(sqlite3_column_int64(row, at));
    return json_string((const char *)sqlite3_column_text(row, at));
}

void store_columns_read(sqlite3_stmt *row, struct session_properties *properties)
{
    for (size_t i = 0; i < PROPERTY_COUNT; i++) {
        const struct property *property = &session_properties[i];
        json_t *value = has_column(property) ? value_of(row, property, find(row, property->json)) : NULL;
        if (value)
            property_from_json(property, value, properties, NULL);
        json_decref(value);
    }
}
