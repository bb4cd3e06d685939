/* columns.h - the columns of tables about sessions (columns.def): column_STATUS is the heading of the column STATUS. */
#pragma once

#define COLUMN(name, key, title, long_title, help) extern const char column_##name[];
#include "client/columns.def"
#undef COLUMN

struct column {
    const char *key, *title, *help;
};

/* All columns; ends with a NULL key. */
extern const struct column session_columns[];

/* The column with this heading, or NULL. */
const struct column *column_of_title(const char *title);
