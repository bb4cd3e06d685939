/* gpuslice list: all sessions, a line each, or one a GPU where a session has several. */
#include <stdio.h>
#include <string.h>

#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/verbs.h"
#include "client/session_fields.h"

static const struct cli_option options[] = {
    CLI_OPTION_JSON,
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

enum { ID, NAME, STATE, GPU, BAR, USAGE, COMPUTE, ACHIEVED, PROCESSES };

static const struct table_column columns[] = {
    [ID] = {"ID"},
    [NAME] = {"NAME", .shrink = true},
    [STATE] = {"STATE"},
    [GPU] = {"GPU", .right = true},
    [BAR] = {"MEMORY"},
    [USAGE] = {"USED / LIMIT", .right = true},
    [COMPUTE] = {"COMPUTE", .right = true},
    [ACHIEVED] = {"10s", .right = true},
    [PROCESSES] = {"PROCS", .right = true},
    {NULL},
};

/* The cells of a session's first row, beside those of its first GPU. */
static void fill_session(struct table_cell *row, const json_t *session)
{
    const char *id = session_text(session, "session_id"), *name = session_text(session, "name");
    const char *state = session_text(session, "state");
    bool is_active = strcmp(state, "active") == 0;
    bool is_declared = json_is_true(json_object_get(session, "declared"));
    char share[UNITS_SHARE_TEXT];
    table_cell_print(&row[ID], TABLE_PLAIN, "%s", id);
    table_cell_print(&row[NAME], TABLE_PLAIN, "%s", strcmp(name, id) == 0 ? "-" : name);
    if (strcmp(state, "queued") == 0)
        table_cell_print(&row[STATE], TABLE_YELLOW, "queued (%llu)",
                         (unsigned long long)session_number(session, "queue_position"));
    else
        table_cell_print(&row[STATE], is_active ? TABLE_PLAIN : TABLE_YELLOW, "%s",
                         is_active && is_declared ? "declared" : state);
    session_share(session, share);
    table_cell_print(&row[COMPUTE], TABLE_PLAIN, "%s", strcmp(share, "0%..100%") == 0 ? "-" : share);
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

static void print_table(const json_t *sessions)
{
    struct table table = {.columns = columns};
    const json_t *session;
    size_t i;
    if (json_array_size(sessions) == 0) {
        puts("no sessions; 'gpuslice run' and 'gpuslice create' make one");
        return;
    }
    json_array_foreach((json_t *)sessions, i, session)
    {
        add_session(&table, session);
    }
    table_print(&table, stdout, table_width(stdout), table_colour_wanted(stdout));
    table_free(&table);
}

static enum cli_status act(const struct cli_arguments *arguments)
{
    json_t *sessions = NULL;
    struct error error;
    if (cells_get("/v1/sessions", arguments, &sessions, &error) < 0)
        return cli_report(&error);
    if (arguments->json)
        cells_print_json(sessions);
    else
        print_table(sessions);
    json_decref(sessions);
    return cli_finish_output();
}

const struct cli_verb verb_list = {
    .name = "list",
    .aliases = {"ps"},
    .summary = "list the sessions, what they use and may use",
    .text =
        "COMPUTE is the share of its GPUs' time that a session is promised and may take, 10s the part "
        "that it got in the "
        "last ten seconds. A session that waits for room is 'queued', with its place in the queue and what "
        "it asks for.",
    .options = options,
    .act = act,
};
