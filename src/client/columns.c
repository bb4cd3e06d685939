#include "client/columns.h"

#include <stddef.h>
#include <string.h>

#define COLUMN(name, key, title, long_title, help) const char column_##name[] = title;
#include "client/columns.def"
#undef COLUMN

const struct column session_columns[] = {
#define COLUMN(name, key, title, long_title, help) {key, column_##name, help},
#include "client/columns.def"
#undef COLUMN
    {NULL},
};

const struct column *column_of_title(const char *title)
{
    for (const struct column *column = session_columns; column->key; column++)
        if (strcmp(column->title, title) == 0)
            return column;
    return NULL;
}
