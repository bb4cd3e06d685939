/* gpuslice list: all sessions, a line for each GPU of a session. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/verbs.h"
#include "client/columns.h"
#include "client/session_fields.h"

static const struct cli_option options[] = {
    {"quiet", NULL, CLI_FLAG, offsetof(struct cli_arguments, quiet), "print only IDs, one on each line",
     .letter = 'q'},
    {"format", "FIELDS", CLI_FIELDS, offsetof(struct cli_arguments, fields),
     "print these fields of --json, separated by tabs, like session_id,name,used_bytes"},
    {"watch", NULL, CLI_FLAG, offsetof(struct cli_arguments, watch),
     "print again every 2 seconds, until interrupted", .letter = 'w'},
    {"columns", "NAMES", CLI_COLUMNS, offsetof(struct cli_arguments, columns),
     "show these columns in this order, like session,status,used; without it, what the terminal has room "
     "for"},
    {"sort", "COLUMN", CLI_SORT, offsetof(struct cli_arguments, sort),
     "by session, owner, status, used, time, processes or created; numbers begin with the highest"},
    {"output", "FORM", CLI_FORM, offsetof(struct cli_arguments, form),
     "table, wide (all columns), json or name (only names)", .letter = 'o'},
    CLI_OPTION_JSON,
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

enum {
    ID,
    SESSION,
    POD,
    OWNER,
    STATUS,
    GPU,
    MEMORY,
    USED,
    COMPUTE,
    TIME,
    SPEED,
    PRIORITY,
    PROCESSES,
    COLUMNS
};

#define WATCH_SECONDS 2

/* What people look for last yields first to a narrow terminal. */
static const struct table_column columns[COLUMNS] = {
    [ID] = {column_ID},
    [SESSION] = {column_SESSION, .shrink = true},
    [POD] = {column_POD, .yields = 1},
    [OWNER] = {column_OWNER, .yields = 2},
    [STATUS] = {column_STATUS},
    [GPU] = {column_GPU, .right = true},
    [MEMORY] = {column_MEMORY, .yields = 7},
    [USED] = {column_USED, .right = true},
    [COMPUTE] = {column_COMPUTE, .right = true, .yields = 3},
    [TIME] = {column_TIME, .right = true},
    [SPEED] = {column_SPEED, .right = true, .yields = 5},
    [PRIORITY] = {column_PRIORITY, .yields = 6},
    [PROCESSES] = {column_PROCESSES, .right = true, .yields = 4},
};

static const char *const explained[] = {
    column_ID,   column_SESSION, column_POD,  column_OWNER, column_STATUS,   column_GPU,       column_MEMORY,
    column_USED, column_COMPUTE, column_TIME, column_SPEED, column_PRIORITY, column_PROCESSES, NULL};

/* --- Cells ----------------------------------------------------------------------------------------- */

/* The cells of a session's first row, without those of its first GPU. */
static void fill_session(struct table_cell *row, const json_t *session)
{
    const char *id = session_text(session, "session_id"), *name = session_text(session, "name");
    char share[UNITS_SHARE_TEXT];
    table_cell_print(&row[ID], TABLE_PLAIN, "%s", id);
    table_cell_print(&row[SESSION], TABLE_PLAIN, "%s", strcmp(name, id) == 0 ? "-" : name);
    if (*session_text(session, "pod"))
        table_cell_print(&row[POD], TABLE_PLAIN, "%s/%s", session_text(session, "namespace"),
                         session_text(session, "pod"));
    cells_status(&row[STATUS], session);
    cells_owner(&row[OWNER], session);
    table_cell_print(&row[PRIORITY], TABLE_PLAIN, "%s", session_text(session, "priority"));
    session_share(session, share);
    table_cell_print(&row[COMPUTE], TABLE_PLAIN, "%s", strcmp(share, "0%..100%") == 0 ? "-" : share);
    cells_speed(&row[SPEED], session);
    table_cell_print(&row[PROCESSES], TABLE_PLAIN, "%zu",
                     json_array_size(json_object_get(session, "processes")));
}

/* What a queued session asks for on a GPU, or, with `gpu` NULL, on any. */
static void fill_asked(struct table_cell *row, const json_t *session, const json_t *gpu)
{
    char limit[UNITS_BYTES_TEXT];
    if (gpu)
        cells_gpu(&row[GPU], gpu);
    else
        table_cell_print(&row[GPU], TABLE_PLAIN, "any");
    table_cell_print(&row[USED], TABLE_PLAIN, "- / %s",
                     units_format_bytes(gpu ? session_number(gpu, "limit_bytes")
                                            : session_number(session, "vram_limit_bytes"),
                                        limit));
}

static void add_session(struct table *table, const json_t *session)
{
    const json_t *asked = json_object_get(session, "asked_gpus"), *gpu;
    bool is_queued = json_is_array(asked);
    json_t *gpus = is_queued ? (json_t *)asked : json_object_get(session, "gpus");
    size_t i;
    json_array_foreach(gpus, i, gpu)
    {
        struct table_cell *row = table_add_row(table);
        if (i == 0)
            fill_session(row, session);
        if (is_queued) {
            fill_asked(row, session, gpu);
        } else {
            cells_gpu(&row[GPU], gpu);
            cells_usage(&row[MEMORY], session_number(gpu, "used_bytes"), session_number(gpu, "limit_bytes"));
            cells_achieved(&row[TIME], session, gpu);
        }
    }
    if (json_array_size(gpus) == 0) {
        struct table_cell *row = table_add_row(table);
        fill_session(row, session);
        fill_asked(row, session, NULL);
    }
}

/* --- Order ----------------------------------------------------------------------------------------- */

/* What --sort takes, each with the field that is compared: of the session, else added up over its GPUs. */
static const struct {
    const char *key, *field;
} orders[] = {
    {"session", "name"},
    {"owner", "owner"},
    {"status", "status"},
    {"used", "used_bytes"},
    {"time", "compute_achieved_ratio"},
    {"processes", "processes"},
    {"created", "created_at"},
};
enum { ORDERS = sizeof(orders) / sizeof(orders[0]) };
const char *const cli_sort_keys[] = {"session", "owner",     "status",  "used",
                                     "time",    "processes", "created", NULL};

static double number_of(const json_t *session, const char *field)
{
    const json_t *value = json_object_get(session, field), *gpu;
    double sum = 0;
    size_t i;
    if (value)
        return json_is_array(value) ? (double)json_array_size(value) : json_number_value(value);
    json_array_foreach(json_object_get(session, "gpus"), i, gpu) sum +=
        json_number_value(json_object_get(gpu, field));
    return sum;
}

/* Words from A on, numbers from the highest on; equal ones stay in the daemon's order, the oldest first. */
static int compare_sessions(const void *a, const void *b, void *context)
{
    const json_t *left = *(json_t *const *)a, *right = *(json_t *const *)b;
    const char *field = context;
    if (json_is_string(json_object_get(left, field)))
        return strcmp(session_text(left, field), session_text(right, field));
    double difference = number_of(right, field) - number_of(left, field);
    return difference > 0 ? 1 : difference < 0 ? -1 : 0;
}

/* Returns a new array. */
static json_t *sorted_by(json_t *sessions, const char *key)
{
    size_t count = json_array_size(sessions), order = 0;
    json_t **list = calloc(count + 1, sizeof(json_t *)), *sorted = json_array();
    while (order < ORDERS - 1 && strcmp(orders[order].key, key) != 0)
        order++;
    for (size_t i = 0; list && i < count; i++)
        list[i] = json_array_get(sessions, i);
    if (list)
        qsort_r(list, count, sizeof(json_t *), compare_sessions, (void *)orders[order].field);
    for (size_t i = 0; list && i < count; i++)
        json_array_append(sorted, list[i]);
    free(list);
    return sorted;
}

/* --- Columns --------------------------------------------------------------------------------------- */

/* Pods are shown if there are any, owners if there is one other than this user, priorities if one is not normal,
 * speeds if one is measured. */
static void choose_columns(const json_t *sessions, bool is_wide, struct table_column chosen[static COLUMNS])
{
    const json_t *session;
    size_t i;
    memcpy(chosen, columns, sizeof(columns));
    chosen[POD].left_out = chosen[SPEED].left_out = true;
    chosen[OWNER].left_out = chosen[PRIORITY].left_out = !is_wide;
    json_array_foreach((json_t *)sessions, i, session)
    {
        if (*session_text(session, "pod"))
            chosen[POD].left_out = false;
        if (session_number(session, "owner_uid") != geteuid())
            chosen[OWNER].left_out = false;
        if (json_is_real(json_object_get(session, "compute_progress_ratio")))
            chosen[SPEED].left_out = false;
        if (strcmp(session_text(session, "priority"), "normal") != 0)
            chosen[PRIORITY].left_out = false;
    }
    for (i = 0; is_wide && i < COLUMNS; i++)
        chosen[i].yields = 0;
}

/* The number of the column that `text` begins with; COLUMNS: it is none of this table. */
static unsigned column_named(const char *text)
{
    size_t length = strcspn(text, ",");
    unsigned at = 0;
    for (; at < COLUMNS; at++) {
        const char *key = column_of_title(columns[at].title)->key;
        if (strlen(key) == length && memcmp(key, text, length) == 0)
            break;
    }
    return at;
}

/* Put the columns that `names` has in front, in its order, and leave out all others. */
static void take_named(const char *names, struct table *table, struct table_column chosen[static COLUMNS + 1])
{
    unsigned order[COLUMNS], count = 0;
    for (const char *at = names; at && count < COLUMNS; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        order[count++] = column_named(at);
    for (unsigned i = 0; i < count; i++)
        chosen[i] = (struct table_column){columns[order[i]].title, .right = columns[order[i]].right};
    chosen[count] = (struct table_column){NULL};
    for (size_t row = 0; row < table->row_count; row++) {
        struct table_cell cells[TABLE_COLUMNS];
        memcpy(cells, table->rows[row], sizeof(cells));
        for (unsigned i = 0; i < count; i++)
            table->rows[row][i] = cells[order[i]];
    }
}

static int check(const struct cli_arguments *arguments, struct error *error)
{
    for (const char *at = arguments->columns; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (column_named(at) == COLUMNS)
            return error_set(error, EINVAL, NULL, "--columns: list has no column '%.*s'; see list --help",
                             (int)strcspn(at, ","), at);
    return 0;
}

static void print_table(const json_t *sessions, const struct cli_arguments *arguments, bool is_wide)
{
    struct table_column chosen[COLUMNS + 1] = {0};
    struct table table = {.columns = chosen};
    const json_t *session;
    size_t i;
    if (json_array_size(sessions) == 0) {
        puts("no sessions; 'gpuslice run' and 'gpuslice create' make one");
        return;
    }
    choose_columns(sessions, is_wide, chosen);
    json_array_foreach((json_t *)sessions, i, session)
    {
        add_session(&table, session);
    }
    if (arguments->columns)
        take_named(arguments->columns, &table, chosen);
    table_print(&table, stdout, table_width(stdout), table_colour_wanted(stdout));
    table_free(&table);
    json_array_foreach((json_t *)sessions, i, session)
    {
        if (*session_text(session, "wait_why"))
            printf("%s waits: %s\n", session_text(session, "name"), session_text(session, "wait_why"));
    }
}

/* --- Printing -------------------------------------------------------------------------------------- */

static void print_field(const json_t *value)
{
    struct table_cell cell;
    if (json_is_string(value)) {
        table_cell_print(&cell, TABLE_PLAIN, "%s", json_string_value(value));
        fputs(cell.text, stdout);
    } else if (json_is_null(value)) {
        putchar('-');
    } else {
        json_dumpf(value, stdout, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));
    }
}

static int print_fields(const json_t *sessions, const char *fields, struct error *error)
{
    const json_t *session;
    size_t i;
    json_array_foreach((json_t *)sessions, i, session)
    {
        for (const char *at = fields; *at;) {
            size_t length = strcspn(at, ",");
            const json_t *value = json_object_getn(session, at, length);
            if (!value)
                return error_set(error, EINVAL, NULL,
                                 "sessions have no field '%.*s'; 'gpuslice list --json' shows all of them",
                                 (int)length, at);
            if (at != fields)
                putchar('\t');
            print_field(value);
            at += length;
            at += *at == ',';
        }
        putchar('\n');
    }
    return 0;
}

static bool is_form(const struct cli_arguments *arguments, const char *form)
{
    return arguments->form && strcmp(arguments->form, form) == 0;
}

/* The fields to print alone; NULL: a table, or everything as JSON. */
static const char *fields_of(const struct cli_arguments *arguments)
{
    return arguments->fields            ? arguments->fields
           : arguments->quiet           ? "session_id"
           : is_form(arguments, "name") ? "name"
                                        : NULL;
}

static int print_once(const struct cli_arguments *arguments, struct error *error)
{
    json_t *sessions = NULL;
    const char *fields = fields_of(arguments);
    bool is_json = arguments->json || is_form(arguments, "json");
    int result = cells_get("/v1/sessions", arguments, &sessions, error);
    if (result < 0)
        return result;
    if (arguments->sort) {
        json_t *sorted = sorted_by(sessions, arguments->sort);
        json_decref(sessions);
        sessions = sorted;
    }
    if (arguments->watch && isatty(STDOUT_FILENO))
        fputs("\033[H\033[J", stdout); /* to the top, and clear what is below */
    if (is_json)
        cells_print_json(sessions);
    else if (fields)
        result = print_fields(sessions, fields, error);
    else
        print_table(sessions, arguments, is_form(arguments, "wide"));
    json_decref(sessions);
    return result;
}

static enum cli_status run_list(const struct cli_arguments *arguments)
{
    struct error error;
    int result;
    while ((result = print_once(arguments, &error)) == 0 && arguments->watch &&
           cli_finish_output() == CLI_DONE)
        sleep(WATCH_SECONDS);
    return result < 0 ? cli_report(&error) : cli_finish_output();
}

const struct cli_verb verb_list = {
    .name = "list",
    .aliases = {"ps", "ls"},
    .summary = "list the sessions, what they use and may use",
    .text = "A narrow terminal shows less: the bar, PRIORITY, SPEED, PROCS, COMPUTE and OWNER are left out, "
            "in this "
            "order, before a name is cut. '-o wide' shows everything.",
    .examples = "  gpuslice list --sort used --columns session,owner,status,used",
    .columns = explained,
    .options = options,
    .check = check,
    .act = run_list,
};
