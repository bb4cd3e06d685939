/* store_columns.h - the columns of the state file's table of sessions. For the store.
 *
 * Columns are written and read by name. Each property of a session (session_properties.def) has a column, so a new property
 * needs no new layout: a file without the column gets it when it is opened, and a daemon that does not know a column leaves it
 * alone. A property's value is stored as requests have it: a number or a text, NULL where nothing is set. */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/session_properties.h"

/* The definitions of the columns, as CREATE TABLE has them; and the statement that writes a session, whose parameters are
 * called ":COLUMN". The caller frees them with sqlite3_free(); NULL without memory. */
char *store_columns_define(void);
char *store_columns_put(void);

/* Add the columns of properties that `database` lacks. Returns SQLite's result. */
int store_columns_add_missing(sqlite3 *database);

/* Read a column of a row of `sessions`: 0 or "" where it is missing or NULL. */
int64_t store_column_number(sqlite3_stmt *row, const char *column);
void store_column_text(sqlite3_stmt *row, const char *column, char *text, size_t bytes);

/* Read all properties. What a damaged file says and a request could not is left as it is in `properties`. */
void store_columns_read(sqlite3_stmt *row, struct session_properties *properties);
