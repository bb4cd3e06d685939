/* gpuslice scheduler --tunables: the numbers that the scheduler goes by. */
#include "cli/verbs/scheduler_tunables.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/session_cells.h"
#include "cli/table.h"
#include "wire/wire.h"

struct tunable {
    const char *name, *unit, *source, *text;
    double value;
};

static const struct tunable tunables[] = {
#define TUNABLE(type, name, value, unit, source, text) {#name, unit, #source, text, (double)(value)},
#include "daemon/schedule/tunables.def"
#undef TUNABLE
};

enum { COUNT = sizeof(tunables) / sizeof(tunables[0]) };

enum { NAME, VALUE, UNIT, SOURCE, TEXT };

static const struct table_column columns[] = {
    [NAME] = {"NAME"},     [VALUE] = {"VALUE", .right = true},
    [UNIT] = {"UNIT"},     [SOURCE] = {"SOURCE"},
    [TEXT] = {"WHAT FOR"}, {NULL},
};

static void print_table(void)
{
    struct table table = {.columns = columns};
    for (size_t i = 0; i < COUNT; i++) {
        struct table_cell *row = table_add_row(&table);
        table_cell_print(&row[NAME], TABLE_PLAIN, "%s", tunables[i].name);
        table_cell_print(&row[VALUE], TABLE_PLAIN, "%.12g", tunables[i].value);
        table_cell_print(&row[UNIT], TABLE_PLAIN, "%s", tunables[i].unit);
        table_cell_print(&row[SOURCE], TABLE_PLAIN, "%s", tunables[i].source);
        table_cell_print(&row[TEXT], TABLE_PLAIN, "%s", tunables[i].text);
    }
    table_print(&table, stdout, table_width(stdout), table_colour_wanted(stdout));
    table_free(&table);
}

void scheduler_print_tunables(bool as_json)
{
    if (!as_json) {
        print_table();
        return;
    }
    json_t *rows = json_array();
    for (size_t i = 0; i < COUNT; i++)
        json_array_append_new(rows, json_pack("{s:s,s:f,s:s,s:s,s:s}", "name", tunables[i].name, "value",
                                              tunables[i].value, "unit", tunables[i].unit, "source",
                                              tunables[i].source, "text", tunables[i].text));
    cells_print_json(rows);
    json_decref(rows);
}
