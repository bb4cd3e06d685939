/* gpuslice scheduler: how the GPUs' time is shared at the moment, and the longest turn. */
#include <stdio.h>
#include <string.h>

#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/verbs.h"
#include "cli/verbs/scheduler_tunables.h"
#include "client/client.h"
#include "client/columns.h"
#include "client/session_fields.h"

static const struct cli_option options[] = {
    {"quantum", "DURATION|auto", CLI_QUANTUM, offsetof(struct cli_arguments, quantum),
     "the longest turn while others wait: 1ms to 1s for the GPU's time, 1s to 1h for its memory; auto: fifty "
     "times what a change of turns costs, within 15 to 50 ms, and for memory ten times as long as moving it "
     "takes, within 1 to 60 s"},
    {"anti-thrash", "on|off|auto", CLI_ANTI_THRASH, offsetof(struct cli_arguments, anti_thrash),
     "sessions whose memory can leave the card take turns when their memory does not fit together (auto), "
     "always (on), or never (off: a session that needs room gets it at once)"},
    {"tunables", NULL, CLI_FLAG, offsetof(struct cli_arguments, tunables),
     "print the scheduler's numbers instead, with the source and the purpose of each"},
    CLI_OPTION_JSON,
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

enum { GPU, MODE, SESSION, LEASE, ACHIEVED, SPEED, USED, HELD, WAITS };

static const struct table_column columns[] = {
    [GPU] = {"GPU", .right = true},
    [MODE] = {"MODE"},
    [SESSION] = {column_SESSION, .shrink = true},
    [LEASE] = {"LEASE"},
    [ACHIEVED] = {column_TIME, .right = true},
    [SPEED] = {column_SPEED, .right = true},
    [USED] = {column_GPU_TIME, .right = true, .yields = 1},
    [HELD] = {column_HELD, .right = true, .yields = 2},
    [WAITS] = {"WAITS p50/p99", .right = true},
    {NULL},
};

static const char *const explained[] = {column_TIME, column_SPEED, column_GPU_TIME, column_HELD, NULL};

/* While memory takes turns on a GPU without shares, no lease says who has the turn: where its memory is does. */
static void fill_lease(struct table_cell *cell, const json_t *gpu, const json_t *session)
{
    const char *lease = session_text(session, "lease");
    bool memory_alone = strcmp(session_text(gpu, "mode"), "turns") == 0 && strcmp(lease, "free") == 0;
    if (json_is_true(json_object_get(session, "undrainable")))
        table_cell_print(cell, TABLE_RED, "undrainable");
    else if (json_is_true(json_object_get(session, "waiting")))
        table_cell_print(cell, TABLE_PLAIN, "waits");
    else if (memory_alone)
        cells_status(cell, session);
    else
        table_cell_print(cell, TABLE_PLAIN, "%s", lease);
}

static void add_session(struct table *table, const json_t *gpu, const json_t *session)
{
    struct table_cell *row = table_add_row(table);
    cells_gpu(&row[GPU], gpu);
    table_cell_print(&row[MODE], TABLE_PLAIN, "%s", session_text(gpu, "mode"));
    table_cell_print(&row[SESSION], TABLE_PLAIN, "%s", session_text(session, "name"));
    fill_lease(&row[LEASE], gpu, session);
    cells_achieved(&row[ACHIEVED], session, session);
    cells_speed(&row[SPEED], session);
    cells_gpu_time(&row[USED], session, "gpu_seconds");
    cells_gpu_time(&row[HELD], session, "gpu_held_seconds");
    const json_t *waited = json_object_get(session, "gate_waits");
    char p50[SESSION_MS_TEXT], p99[SESSION_MS_TEXT];
    if (session_number(waited, "count"))
        table_cell_print(&row[WAITS], TABLE_PLAIN, "%s/%s ms", session_ms(waited, "p50_seconds", 2, p50),
                         session_ms(waited, "p99_seconds", 2, p99));
    else
        table_cell_print(&row[WAITS], TABLE_PLAIN, "-");
}

static void print_table(const json_t *scheduler)
{
    struct table table = {.columns = columns};
    const json_t *gpu, *session;
    size_t i, j;
    json_array_foreach(json_object_get(scheduler, "gpus"), i, gpu)
    {
        const json_t *sessions = json_object_get(gpu, "sessions");
        json_array_foreach((json_t *)sessions, j, session)
        {
            add_session(&table, gpu, session);
        }
        if (json_array_size(sessions) == 0) {
            struct table_cell *row = table_add_row(&table);
            cells_gpu(&row[GPU], gpu);
            table_cell_print(&row[MODE], TABLE_PLAIN, "%s", session_text(gpu, "mode"));
            table_cell_print(&row[SESSION], TABLE_PLAIN, "-");
        }
    }
    table_print(&table, stdout, table_width(stdout), table_colour_wanted(stdout));
    table_free(&table);
}

static void print_settings(const json_t *scheduler)
{
    const json_t *memory = json_object_get(scheduler, "memory_quantum_seconds");
    printf("quantum  %.0f ms%s", 1000 * json_number_value(json_object_get(scheduler, "quantum_seconds")),
           json_is_true(json_object_get(scheduler, "quantum_auto")) ? " (automatic)" : "");
    if (json_is_number(memory))
        printf(", of memory %.0f s", json_number_value(memory));
    else
        fputs(", of memory automatic", stdout);
    printf("; anti-thrash %s\n\n", session_text(scheduler, "anti_thrash"));
}

static enum cli_status run_scheduler(const struct cli_arguments *arguments)
{
    struct client client;
    struct error error;
    json_t *body = NULL;
    if (arguments->tunables) {
        scheduler_print_tunables(arguments->json);
        return cli_finish_output();
    }
    if (arguments->quantum || arguments->anti_thrash)
        body = json_pack("{s:s*,s:s*}", "quantum", arguments->quantum, "anti_thrash", arguments->anti_thrash);
    json_t *scheduler = NULL;
    int result = client_open(&client, arguments->simulated, &error);
    if (result == 0)
        result = client_request(&client, body ? "PATCH" : "GET", "/v1/scheduler", body, &scheduler, &error);
    client_close(&client);
    json_decref(body);
    if (result < 0)
        return cli_report(&error);
    if (arguments->json) {
        cells_print_json(scheduler);
    } else {
        print_settings(scheduler);
        print_table(scheduler);
    }
    json_decref(scheduler);
    return cli_finish_output();
}

const struct cli_verb verb_scheduler = {
    .name = "scheduler",
    .summary = "show how the GPUs are shared, and set the longest turns",
    .text = "A GPU is 'free' to all until a session on it has a share or a priority. Then it is 'open' while "
            "all sessions get what was promised to them side by side, and in 'shares' while some take turns, "
            "or wait because of their maximum. It is in 'turns' while sessions whose memory does not fit "
            "together take turns on it, each a second or more long; then LEASE says where a session's memory "
            "is. WAITS is the longest that half and 99 of 100 of its threads' waits for turns were. What you "
            "set holds until the daemon ends.",
    .examples = "  gpuslice scheduler --quantum 20ms\n"
                "  gpuslice scheduler --quantum 30s --anti-thrash auto",
    .columns = explained,
    .options = options,
    .act = run_scheduler,
};
