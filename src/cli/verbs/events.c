/* gpuslice events: what has happened to sessions, processes and GPUs, and what happens from now on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "client/client.h"
#include "client/session_fields.h"
#include "client/session_pod.h"

static const struct cli_option options[] = {
    {"follow", NULL, CLI_FLAG, offsetof(struct cli_arguments, follow),
     "go on and print events as they come, until interrupted", .letter = 'f'},
    {"since", "TIME", CLI_MOMENT, offsetof(struct cli_arguments, since_usec),
     "leave out what happened before; without it, what happened longer ago than 1d"},
    {"lines", "COUNT", CLI_COUNT, offsetof(struct cli_arguments, lines),
     "print only the last COUNT events so far", .letter = 'n'},
    {"json", NULL, CLI_FLAG, offsetof(struct cli_arguments, json),
     "print one JSON object on each line, for programs"},
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

#define SINCE_STANDARD_USEC (UINT64_C(86400) * 1000000)

/* Events are numbered: "3-17" is the 17th event of the third daemon. */
struct place {
    uint64_t daemon, number;
};

/* Which events are printed. */
struct choice {
    const char *session; /* name, ID or the beginning of an ID, or a pod; NULL: any */
    void (*print)(const json_t *event);
    struct place after; /* of the last event that was printed already */
    json_t *last;       /* collects the last `lines` events; NULL: they are printed */
    unsigned lines;
};

static struct place place_of(const json_t *event)
{
    char *dash;
    struct place place = {.daemon = strtoull(session_text(event, "id"), &dash, 10)};
    if (*dash == '-')
        place.number = strtoull(dash + 1, NULL, 10);
    return place;
}

static bool is_behind(struct place place, struct place other)
{
    return place.daemon != other.daemon ? place.daemon > other.daemon : place.number > other.number;
}

static bool is_about(const json_t *event, const char *session)
{
    return session_pod_is_meant(session)
               ? session_pod_is_of(event, session)
               : strcmp(session_text(event, "name"), session) == 0 ||
                     strncmp(session_text(event, "session_id"), session, strlen(session)) == 0;
}

static void take_event(const json_t *event, void *context)
{
    const struct choice *choice = context;
    if (choice->session && !is_about(event, choice->session))
        return;
    if (!is_behind(place_of(event), choice->after))
        return;
    if (!choice->last) {
        choice->print(event);
        return;
    }
    json_array_append(choice->last, (json_t *)event);
    if (json_array_size(choice->last) > choice->lines)
        json_array_remove(choice->last, 0);
}

/* Print the last `lines` of the events so far; `choice` then skips them. */
static int print_last(struct client *client, const char *path, struct choice *choice, struct error *error)
{
    const json_t *event;
    size_t i;
    json_t *last = choice->last = json_array();
    int result = client_listen(client, path, take_event, choice, error);
    choice->last = NULL;
    json_array_foreach(last, i, event)
    {
        choice->print(event);
        choice->after = place_of(event);
    }
    json_decref(last);
    return result;
}

static void print_json(const json_t *event)
{
    json_dumpf(event, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12));
    putchar('\n');
    fflush(stdout);
}

static void print_line(const json_t *event)
{
    char time[SESSION_TIME_TEXT], asker[CELLS_ASKER_TEXT];
    const char *name = session_text(event, "name");
    printf("%s  %-17s  %-12s  ", session_time(session_text(event, "time"), time), session_text(event, "kind"),
           *name ? name : "-");
    table_print_text(session_text(event, "message"), stdout);
    fputs(cells_asker(event, "by", asker), stdout);
    putchar('\n');
    fflush(stdout);
}

static enum cli_status run_events(const struct cli_arguments *arguments)
{
    struct client client;
    struct error error;
    struct choice choice = {.session = arguments->operands[0],
                            .lines = arguments->lines,
                            .print = arguments->json ? print_json : print_line};
    uint64_t since_usec = arguments->since_usec ? arguments->since_usec : SINCE_STANDARD_USEC;
    char followed[64], so_far[80];
    snprintf(followed, sizeof(followed), "/v1/events?since=%llums", (unsigned long long)since_usec / 1000);
    snprintf(so_far, sizeof(so_far), "%s&follow=false", followed);
    int result = client_open(&client, arguments->simulated, &error);
    if (result == 0 && arguments->lines)
        result = print_last(&client, so_far, &choice, &error);
    if (result == 0 && (arguments->follow || !arguments->lines))
        result = client_listen(&client, arguments->follow ? followed : so_far, take_event, &choice, &error);
    if (result == 0 && arguments->follow)
        result = error_set(&error, ENOTCONN, NULL, "the daemon has ended");
    client_close(&client);
    return result < 0 ? cli_report(&error) : cli_finish_output();
}

const struct cli_verb verb_events = {
    .name = "events",
    .aliases = {"logs"},
    .operands = "[SESSION]",
    .operand_kind = CLI_SESSION,
    .operands_max = 1,
    .summary = "print what has happened to sessions, processes and GPUs",
    .text =
        "The daemon keeps events for history-days of gpuslice.conf (31), at most history-records of them "
        "(10,000). You see those of your own sessions, of the GPUs and of the daemon; root sees all. TIME is "
        "how long ago, like 90m or 7d, or when, like 2026-01-31T14:30, 2026-01-31, or 14:30 of today.",
    .examples = "  gpuslice events -f train --since 1h\n  gpuslice events --json | jq 'select(.kind == "
                "\"memory.denied\")'",
    .options = options,
    .act = run_events,
};
