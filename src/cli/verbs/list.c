/* gpuslice list: all sessions, a line for each GPU of a session. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/verbs.h"
#include "client/session_fields.h"

static const struct cli_option options[] = {
    {"quiet", NULL, CLI_FLAG, offsetof(struct cli_arguments, quiet), "print only IDs, one on each line",
     .letter = 'q'},
    {"format", "FIELDS", CLI_FIELDS, offsetof(struct cli_arguments, fields),
     "print these fields of --json, separated by tabs, like session_id,name,used_bytes"},
    {"watch", NULL, CLI_FLAG, offsetof(struct cli_arguments, watch),
     "print again every 2 seconds, until interrupted", .letter = 'w'},
    {"output", "FORM", CLI_FORM, offsetof(struct cli_arguments, form),
     "table, wide (all columns), json or name (only names)", .letter = 'o'},
    CLI_OPTION_JSON,
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

enum { ID, NAME, POD, OWNER, STATUS, GPU, BAR, USAGE, COMPUTE, ACHIEVED, SPEED, PRIORITY, PROCESSES, COLUMNS };

#define WATCH_SECONDS 2

static const struct table_column columns[] = {
    [ID] = {"ID"},
    [NAME] = {"NAME", .shrink = true},
    [POD] = {"POD", .shrink = true},
    [OWNER] = {"OWNER"},
    [STATUS] = {"STATUS"},
    [GPU] = {"GPU", .right = true},
    [BAR] = {"MEMORY"},
    [USAGE] = {"USED / LIMIT", .right = true},
    [COMPUTE] = {"COMPUTE", .right = true},
    [ACHIEVED] = {"10s", .right = true},
    [SPEED] = {"SPEED", .right = true},
    [PRIORITY] = {"PRIORITY"},
    [PROCESSES] = {"PROCS", .right = true},
    {NULL},
};

/* The cells of a session's first row, without those of its first GPU. */
static void fill_session(struct table_cell *row, const json_t *session)
{
    const char *id = session_text(session, "session_id"), *name = session_text(session, "name");
    char share[UNITS_SHARE_TEXT];
    table_cell_print(&row[ID], TABLE_PLAIN, "%s", id);
    table_cell_print(&row[NAME], TABLE_PLAIN, "%s", strcmp(name, id) == 0 ? "-" : name);
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
    table_cell_print(&row[USAGE], TABLE_PLAIN, "- / %s",
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
            cells_usage(&row[BAR], session_number(gpu, "used_bytes"), session_number(gpu, "limit_bytes"));
            cells_achieved(&row[ACHIEVED], session, gpu);
        }
    }
    if (json_array_size(gpus) == 0) {
        struct table_cell *row = table_add_row(table);
        fill_session(row, session);
        fill_asked(row, session, NULL);
    }
}

/* Pods are shown if there are any, owners if there is one other than this user, priorities if one is not normal,
 * speeds if one is measured. */
static void choose_columns(const json_t *sessions, bool is_wide,
                           struct table_column chosen[static COLUMNS + 1])
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
}

static void print_table(const json_t *sessions, bool is_wide)
{
    struct table_column chosen[COLUMNS + 1];
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
    table_print(&table, stdout, table_width(stdout), table_colour_wanted(stdout));
    table_free(&table);
}

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
    if (arguments->watch && isatty(STDOUT_FILENO))
        fputs("\033[H\033[J", stdout); /* to the top, and clear what is below */
    if (is_json)
        cells_print_json(sessions);
    else if (fields)
        result = print_fields(sessions, fields, error);
    else
        print_table(sessions, is_form(arguments, "wide"));
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
    .text =
        "COMPUTE is the share of its GPUs' time that a session is promised and may take, 10s the part that "
        "it got in the last ten seconds. A session that waits for room is 'queued', with its place in the "
        "queue and what it asks for.",
    .options = options,
    .act = run_list,
};
