/* gpuslice events: what has happened to sessions, processes and GPUs, and what happens from now on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/options.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "client/client.h"
#include "client/session_fields.h"

static const struct cli_option options[] = {
    {"follow", NULL, CLI_FLAG, offsetof(struct cli_arguments, follow),
     "go on and print events as they come, until interrupted", .letter = 'f'},
    {"since", "DURATION", CLI_DURATION, offsetof(struct cli_arguments, since_usec),
     "leave out what happened longer ago than this, like 10m or 2h"},
    {"lines", "COUNT", CLI_COUNT, offsetof(struct cli_arguments, lines),
     "print only the last COUNT events so far", .letter = 'n'},
    {"json", NULL, CLI_FLAG, offsetof(struct cli_arguments, json),
     "print one JSON object on each line, for programs"},
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

/* Which events are printed. */
struct choice {
    const char *session;           /* name, ID or the beginning of an ID; NULL: any */
    char since[SESSION_TIME_TEXT]; /* in the API's form; "": any */
    void (*print)(const json_t *event);
    uint64_t after; /* number of the last event that was printed already */
    json_t *last;   /* collects the last `lines` events; NULL: they are printed */
    unsigned lines;
};

/* Events are numbered: "3-17" is the 17th event of the third daemon. */
static uint64_t number_of(const json_t *event)
{
    const char *dash = strchr(session_text(event, "id"), '-');
    return dash ? strtoull(dash + 1, NULL, 10) : 0;
}

static void take_event(const json_t *event, void *context)
{
    const struct choice *choice = context;
    const char *id = session_text(event, "session_id");
    if (choice->session && strcmp(session_text(event, "name"), choice->session) != 0 &&
        strncmp(id, choice->session, strlen(choice->session)) != 0)
        return;
    /* All times have the same form, in which a later time sorts after an earlier one. */
    if (strcmp(session_text(event, "time"), choice->since) < 0 || number_of(event) <= choice->after)
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
static int print_last(struct client *client, struct choice *choice, struct error *error)
{
    const json_t *event;
    size_t i;
    json_t *last = choice->last = json_array();
    int result = client_listen(client, "/v1/events?follow=false", take_event, choice, error);
    choice->last = NULL;
    json_array_foreach(last, i, event)
    {
        choice->print(event);
        choice->after = number_of(event);
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
    char time[SESSION_TIME_TEXT];
    const char *name = session_text(event, "name");
    printf("%s  %-17s  %-12s  ", session_time(session_text(event, "time"), time), session_text(event, "kind"),
           *name ? name : "-");
    table_print_text(session_text(event, "message"), stdout);
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
    if (arguments->since_usec) {
        time_t since = time(NULL) - (time_t)(arguments->since_usec / 1000000);
        struct tm utc;
        strftime(choice.since, sizeof(choice.since), "%Y-%m-%dT%H:%M:%S", gmtime_r(&since, &utc));
    }
    int result = client_open(&client, arguments->simulated, &error);
    if (result == 0 && arguments->lines)
        result = print_last(&client, &choice, &error);
    if (result == 0 && (arguments->follow || !arguments->lines))
        result = client_listen(&client, arguments->follow ? "/v1/events" : "/v1/events?follow=false",
                               take_event, &choice, &error);
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
        "The daemon keeps the last 1,000 events. You see those of your own sessions and of the GPUs; root "
        "sees all.",
    .examples = "  gpuslice events -f train --since 1h\n  gpuslice events --json | jq 'select(.kind == "
                "\"memory.denied\")'",
    .options = options,
    .act = run_events,
};
