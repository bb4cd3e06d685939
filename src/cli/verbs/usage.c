/* gpuslice usage: what sessions, users or GPUs used, as a table, CSV or JSON. */
#include <stdio.h>
#include <string.h>

#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/verbs.h"
#include "client/session_fields.h"

#define SINCE_STANDARD_SECONDS 86400
#define GIB ((double)(1 << 30))

static const struct cli_option options[] = {
    {"since", "TIME", CLI_MOMENT, offsetof(struct cli_arguments, since_usec),
     "count what was used since, like 90m, 7d, 14:30 or 2026-01-31; without, 1d"},
    {"by", "WHAT", CLI_USAGE_BY, offsetof(struct cli_arguments, by),
     "a row for each session, user or gpu; without, session"},
    {"csv", NULL, CLI_FLAG, offsetof(struct cli_arguments, csv), "print CSV, for spreadsheets"},
    CLI_OPTION_JSON,
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

const char *const cli_usage_by[] = {"session", "user", "gpu", NULL};

static double real(const json_t *row, const char *field)
{
    return json_number_value(json_object_get(row, field));
}

/* --- The table ------------------------------------------------------------------------------------- */

enum { WHAT, OWNER, GPU_TIME, MEMORY, PEAK, ACTIVE, WAITED, DENIED, LABELS };

static void add_row(struct table *table, const char *by, const json_t *row)
{
    char text[CELLS_DURATION_TEXT], owner[CELLS_USER_TEXT], peak[UNITS_BYTES_TEXT];
    struct table_cell *cells = table_add_row(table);
    bool is_by_nvml = real(row, "gpu_seconds_by_nvml") > 0;
    const char *name = session_text(row, "name");
    if (strcmp(by, "gpu") == 0)
        table_cell_print(&cells[WHAT], TABLE_PLAIN, "%s", session_text(row, "gpu_uuid"));
    else
        table_cell_print(&cells[WHAT], TABLE_PLAIN, "%s",
                         *name ? name : cells_user((uid_t)session_number(row, "owner_uid"), owner));
    if (strcmp(by, "session") == 0)
        table_cell_print(&cells[OWNER], TABLE_PLAIN, "%s",
                         cells_user((uid_t)session_number(row, "owner_uid"), owner));
    table_cell_print(&cells[GPU_TIME], TABLE_PLAIN, "%s%s", is_by_nvml ? "~" : "",
                     cells_duration(real(row, "gpu_seconds"), text));
    table_cell_print(&cells[MEMORY], TABLE_PLAIN, "%.2f", real(row, "byte_hours") / GIB);
    table_cell_print(&cells[PEAK], TABLE_PLAIN, "%s",
                     units_format_bytes(session_number(row, "peak_bytes"), peak));
    table_cell_print(&cells[ACTIVE], TABLE_PLAIN, "%s", cells_duration(real(row, "active_seconds"), text));
    table_cell_print(&cells[WAITED], TABLE_PLAIN, "%s", cells_duration(real(row, "gate_wait_seconds"), text));
    table_cell_print(&cells[DENIED], session_number(row, "denied_allocations") ? TABLE_RED : TABLE_PLAIN,
                     "%llu", (unsigned long long)session_number(row, "denied_allocations"));
    table_cell_print(&cells[LABELS], TABLE_PLAIN, "%s", session_text(row, "label"));
}

static bool any_has_labels(const json_t *rows)
{
    const json_t *row;
    size_t i;
    json_array_foreach((json_t *)rows, i, row)
    {
        if (*session_text(row, "label"))
            return true;
    }
    return false;
}

static void print_table(const json_t *answer)
{
    const char *by = session_text(answer, "by");
    bool is_by_user = strcmp(by, "user") == 0, is_by_gpu = strcmp(by, "gpu") == 0;
    const json_t *rows = json_object_get(answer, "rows"), *row;
    const struct table_column columns[] = {
        [WHAT] = {is_by_user  ? "USER"
                  : is_by_gpu ? "GPU"
                              : "SESSION",
                  .shrink = !is_by_gpu},
        [OWNER] = {"OWNER", .left_out = is_by_user || is_by_gpu},
        [GPU_TIME] = {"GPU TIME", .right = true},
        [MEMORY] = {"GiB-HOURS", .right = true},
        [PEAK] = {"PEAK", .right = true},
        [ACTIVE] = {"ACTIVE", .right = true},
        [WAITED] = {"WAITED", .right = true},
        [DENIED] = {"DENIED", .right = true},
        [LABELS] = {"LABELS", .left_out = !any_has_labels(rows)},
        {NULL},
    };
    struct table table = {.columns = columns};
    bool is_by_nvml = false;
    size_t i;
    if (json_array_size(rows) == 0) {
        puts("nothing was used in that time");
        return;
    }
    json_array_foreach((json_t *)rows, i, row)
    {
        add_row(&table, by, row);
        is_by_nvml |= real(row, "gpu_seconds_by_nvml") > 0;
    }
    table_print(&table, stdout, table_width(stdout), table_colour_wanted(stdout));
    table_free(&table);
    if (is_by_nvml)
        puts("~ where no share was in force, the time is NVML's figure for the session's processes");
}

/* --- CSV ------------------------------------------------------------------------------------------- */

/* No value contains a quote: names are [A-Za-z0-9._-], and labels have commas and equals signs besides. */
static void print_csv_value(const json_t *value)
{
    const char *text = json_string_value(value), *quote = text && strchr(text, ',') ? "\"" : "";
    if (text)
        printf("%s%s%s", quote, text, quote);
    else if (json_is_integer(value))
        printf("%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        printf("%.3f", json_number_value(value));
}

static void print_csv(const json_t *answer)
{
    static const char *const fields[] = {
        "session_id",          "name",       "owner_uid",  "gpu_uuid",       "gpu_seconds",
        "gpu_seconds_by_nvml", "byte_hours", "peak_bytes", "active_seconds", "gate_wait_seconds",
        "denied_allocations",  "label"};
    const size_t count = sizeof(fields) / sizeof(fields[0]);
    const json_t *row, *first = json_array_get(json_object_get(answer, "rows"), 0);
    size_t i;
    const char *before = "";
    for (size_t field = 0; field < count; field++)
        if (json_object_get(first, fields[field])) {
            printf("%s%s", before, fields[field]);
            before = ",";
        }
    if (first)
        putchar('\n');
    json_array_foreach(json_object_get(answer, "rows"), i, row)
    {
        before = "";
        for (size_t field = 0; field < count; field++) {
            const json_t *value = json_object_get(row, fields[field]);
            if (!value)
                continue;
            fputs(before, stdout);
            before = ",";
            print_csv_value(value);
        }
        putchar('\n');
    }
}

static enum cli_status run_usage(const struct cli_arguments *arguments)
{
    char path[96];
    json_t *answer = NULL;
    struct error error;
    uint64_t seconds = arguments->since_usec ? arguments->since_usec / 1000000 : SINCE_STANDARD_SECONDS;
    snprintf(path, sizeof(path), "/v1/usage?since=%llus&by=%s", (unsigned long long)(seconds ? seconds : 1),
             arguments->by ? arguments->by : cli_usage_by[0]);
    if (cells_get(path, arguments, &answer, &error) < 0)
        return cli_report(&error);
    if (arguments->json)
        cells_print_json(answer);
    else if (arguments->csv)
        print_csv(answer);
    else
        print_table(answer);
    json_decref(answer);
    return cli_finish_output();
}

const struct cli_verb verb_usage = {
    .name = "usage",
    .summary = "say how much GPU time and memory sessions, users or GPUs used",
    .text = "The daemon keeps as many days as history-days of gpuslice.conf says (31), in minutes after the "
            "first day. You see your own sessions; root sees all. GiB-HOURS is memory held times the time "
            "for which it was held; PEAK the most memory at any moment; ACTIVE the time with a process; "
            "WAITED the time that all threads waited for turns, and the session in the queue or for room on "
            "the card; DENIED counts refused allocations. GPU time "
            "is what the scheduler measured while shares were in force, else NVML's figure, marked ~.",
    .examples = "  gpuslice usage --since 7d --by user\n  gpuslice usage --since 1h --csv > usage.csv",
    .options = options,
    .act = run_usage,
};
