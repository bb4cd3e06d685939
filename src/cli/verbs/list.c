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

static void add_session(struct table *table, const json_t *session)
{
    const json_t *gpus = json_object_get(session, "gpus"), *gpu;
    const char *id = session_text(session, "session_id"), *name = session_text(session, "name");
    const char *state = session_text(session, "state");
    bool is_active = strcmp(state, "active") == 0;
    bool is_declared = json_is_true(json_object_get(session, "declared"));
    size_t i;
    json_array_foreach((json_t *)gpus, i, gpu)
    {
        struct table_cell *row = table_add_row(table);
        if (i == 0) {
            table_cell_print(&row[ID], TABLE_PLAIN, "%s", id);
            table_cell_print(&row[NAME], TABLE_PLAIN, "%s", strcmp(name, id) == 0 ? "-" : name);
            table_cell_print(&row[STATE], is_active ? TABLE_PLAIN : TABLE_YELLOW, "%s",
                             is_active && is_declared ? "declared" : state);
            char share[UNITS_SHARE_TEXT];
            session_share(session, share);
            table_cell_print(&row[COMPUTE], TABLE_PLAIN, "%s", strcmp(share, "0%..100%") == 0 ? "-" : share);
            table_cell_print(&row[PROCESSES], TABLE_PLAIN, "%zu",
                             json_array_size(json_object_get(session, "processes")));
        }
        cells_gpu(&row[GPU], gpu);
        cells_usage(&row[BAR], session_number(gpu, "used_bytes"), session_number(gpu, "limit_bytes"));
        cells_achieved(&row[ACHIEVED], session, gpu);
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
    .text = "COMPUTE is the share of its GPUs' time that a session is promised and may take, 10s the part "
            "that it got in the "
            "last ten seconds.",
    .options = options,
    .act = act,
};
