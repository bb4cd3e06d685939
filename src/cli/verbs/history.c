/* gpuslice history: sessions that have ended. */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>

#include "cli/ended.h"
#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/verbs.h"
#include "client/session_fields.h"
#include "client/session_pod.h"

#define SINCE_STANDARD_USEC (UINT64_C(86400) * 1000000)

static const struct cli_option options[] = {
    {"since", "TIME", CLI_MOMENT, offsetof(struct cli_arguments, since_usec),
     "leave out those that ended before; without it, those that ended longer ago than 1d"},
    {"until", "TIME", CLI_MOMENT, offsetof(struct cli_arguments, until_usec),
     "leave out those that ended after"},
    {"user", "USER", CLI_USER, offsetof(struct cli_arguments, user),
     "only those of this user, by name or number"},
    {"lines", "COUNT", CLI_COUNT, offsetof(struct cli_arguments, lines),
     "only the COUNT that ended last; without it, 1000", .letter = 'n'},
    CLI_OPTION_JSON,
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

static void add_row(struct table *table, const json_t *session)
{
    enum { NAME, OWNER, ENDED, LASTED, PEAK, GPU_TIME, WAITED, DENIED, EXIT };
    char text[CELLS_DURATION_TEXT], time[SESSION_TIME_TEXT], user[CELLS_USER_TEXT], bytes[UNITS_BYTES_TEXT],
        ended[ENDED_EXIT_TEXT];
    uint64_t denied = session_number(session, "denied_allocations");
    double gpu_seconds = json_number_value(json_object_get(session, "gpu_seconds"));
    bool is_by_nvml = json_number_value(json_object_get(session, "gpu_seconds_by_nvml")) > 0;
    struct table_cell *cells = table_add_row(table);
    table_cell_print(&cells[NAME], TABLE_PLAIN, "%s", session_text(session, "name"));
    table_cell_print(&cells[OWNER], TABLE_PLAIN, "%s",
                     cells_user((uid_t)session_number(session, "owner_uid"), user));
    table_cell_print(&cells[ENDED], TABLE_PLAIN, "%.19s",
                     session_time(session_text(session, "ended_at"), time));
    table_cell_print(&cells[LASTED], TABLE_PLAIN, "%s", cells_duration(ended_seconds(session), text));
    table_cell_print(&cells[PEAK], TABLE_PLAIN, "%s",
                     units_format_bytes(session_number(session, "peak_bytes"), bytes));
    table_cell_print(&cells[GPU_TIME], TABLE_PLAIN, "%s%s", is_by_nvml ? "~" : "",
                     cells_duration(gpu_seconds, text));
    table_cell_print(&cells[WAITED], TABLE_PLAIN, "%s", cells_duration(ended_waited(session), text));
    table_cell_print(&cells[DENIED], denied ? TABLE_RED : TABLE_PLAIN, "%llu", (unsigned long long)denied);
    table_cell_print(&cells[EXIT], TABLE_PLAIN, "%s", ended_exit(session, ended));
}

static void print_table(const json_t *sessions)
{
    static const struct table_column columns[] = {
        {"NAME", .shrink = true},  {"OWNER"},
        {"ENDED (UTC)"},           {"LASTED", .right = true},
        {"PEAK", .right = true},   {"GPU TIME", .right = true},
        {"WAITED", .right = true}, {"DENIED", .right = true},
        {"EXIT", .right = true},   {NULL},
    };
    struct table table = {.columns = columns};
    const json_t *session;
    size_t i;
    if (json_array_size(sessions) == 0) {
        puts("no session has ended in that time");
        return;
    }
    json_array_foreach((json_t *)sessions, i, session)
    {
        add_row(&table, session);
    }
    table_print(&table, stdout, table_width(stdout), table_colour_wanted(stdout));
    table_free(&table);
}

/* Keep those of that pod. */
static void keep_pods(json_t *sessions, const char *pod)
{
    for (size_t i = json_array_size(sessions); i-- > 0;)
        if (!session_pod_is_of(json_array_get(sessions, i), pod))
            json_array_remove(sessions, i);
}

static int find_user(const char *text, unsigned *uid, struct error *error)
{
    const struct passwd *user = getpwnam(text);
    uint64_t number;
    if (!user && units_parse_number(text, UINT32_MAX - 1, &number, NULL) < 0)
        return error_set(error, ENOENT, NULL, "no user '%.80s'; expected a user's name or number", text);
    *uid = user ? (unsigned)user->pw_uid : (unsigned)number;
    return 0;
}

/* The request, with the words that narrow it. */
static int compose_path(const struct cli_arguments *arguments, char path[static 256], struct error *error)
{
    uint64_t since_usec = arguments->since_usec ? arguments->since_usec : SINCE_STANDARD_USEC;
    unsigned uid = 0;
    size_t length = (size_t)snprintf(path, 256, "/v1/history/sessions?since=%llums",
                                     (unsigned long long)since_usec / 1000);
    if (arguments->until_usec)
        length += (size_t)snprintf(path + length, 256 - length, "&until=%llums",
                                   (unsigned long long)arguments->until_usec / 1000);
    if (arguments->lines)
        length += (size_t)snprintf(path + length, 256 - length, "&most=%u", arguments->lines);
    if (arguments->operands[0] && !session_pod_is_meant(arguments->operands[0]))
        length += (size_t)snprintf(path + length, 256 - length, "&session=%s", arguments->operands[0]);
    if (!arguments->user)
        return 0;
    int result = find_user(arguments->user, &uid, error);
    if (result == 0)
        snprintf(path + length, 256 - length, "&owner_uid=%u", uid);
    return result;
}

static enum cli_status run_history(const struct cli_arguments *arguments)
{
    char path[256];
    json_t *answer = NULL;
    struct error error;
    if (compose_path(arguments, path, &error) < 0 || cells_get(path, arguments, &answer, &error) < 0)
        return cli_report(&error);
    json_t *sessions = json_object_get(answer, "sessions");
    if (arguments->operands[0] && session_pod_is_meant(arguments->operands[0]))
        keep_pods(sessions, arguments->operands[0]);
    if (arguments->json)
        cells_print_json(sessions);
    else
        print_table(sessions);
    json_decref(answer);
    return cli_finish_output();
}

const struct cli_verb verb_history = {
    .name = "history",
    .operands = "[SESSION]",
    .operand_kind = CLI_SESSION,
    .operands_max = 1,
    .summary = "list sessions that have ended",
    .text =
        "SESSION is a name, or the beginning of an ID; 'gpuslice show SESSION' says all that is known of the "
        "last of "
        "these. TIME is how long ago, like 90m or 7d, or when, like 2026-01-31T14:30, 2026-01-31, or 14:30 "
        "of today. "
        "PEAK is the most memory at once, of those moments at which the daemon looked (each second, and at "
        "the end of a process); WAITED adds up the queue, room on the card and all threads' waits for turns; "
        "EXIT is the exit status of COMMAND, where Linux tells. GPU time marked ~ is NVML's figure. The "
        "daemon "
        "keeps as many days as history-days of gpuslice.conf says (31), and at most history-records sessions "
        "(10,000). You see your own; root sees all.",
    .examples = "  gpuslice history --since 7d --user root\n  gpuslice history train --json",
    .options = options,
    .act = run_history,
};
