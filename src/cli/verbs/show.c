/* gpuslice show: one session, on a page. */
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "cli/ended.h"
#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/verbs.h"
#include "client/client.h"
#include "client/columns.h"
#include "client/session_fields.h"

#define EVENTS_SHOWN 5

static const char *const explained[] = {column_TIME, column_GPU_TIME, column_HELD, column_DENIED, NULL};

static const struct cli_option options[] = {
    CLI_OPTION_JSON,
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

static void print_speed(const json_t *session, bool colour)
{
    const json_t *progress = json_object_get(session, "compute_progress_ratio");
    double promised = json_number_value(json_object_get(session, "compute_min_ratio"));
    char text[96], promise[40] = "";
    if (!json_is_real(progress))
        return;
    if (promised > 0)
        snprintf(promise, sizeof(promise), ", %.4g%% promised", 100 * promised);
    snprintf(text, sizeof(text), "%.0f%% of its speed alone%s", 100 * json_real_value(progress), promise);
    cells_print_fact("Speed", text, colour);
    if (*session_text(session, "turns_why"))
        cells_print_fact("Turns", session_text(session, "turns_why"), colour);
}

static void print_waits(const json_t *waits, bool colour)
{
    char text[128], p50[SESSION_MS_TEXT], p99[SESSION_MS_TEXT];
    uint64_t count = session_number(waits, "count");
    if (count == 0)
        return;
    snprintf(text, sizeof(text), "%llu waits for turns, p50 %s ms, p99 %s ms", (unsigned long long)count,
             session_ms(waits, "p50_seconds", 3, p50), session_ms(waits, "p99_seconds", 3, p99));
    cells_print_fact("Waits", text, colour);
}

/* Prints nothing for a session that has had no turn to wait for. */
static void print_lease(const json_t *session, bool colour)
{
    char text[128];
    double waited_s = json_number_value(json_object_get(session, "gate_wait_seconds"));
    uint64_t overruns = session_number(session, "overruns");
    bool waits = json_is_true(json_object_get(session, "waiting"));
    const char *lease = session_text(session, "lease");
    if ((strcmp(lease, "free") == 0 || strcmp(lease, "none") == 0) && !waits && waited_s <= 0)
        return;
    snprintf(text, sizeof(text), "%s; threads waited %.1f s for turns, %llu overrun%s%s",
             waits ? "waits" : lease, waited_s, (unsigned long long)overruns, overruns == 1 ? "" : "s",
             json_is_true(json_object_get(session, "undrainable")) ? ", undrainable" : "");
    cells_print_fact("Lease", text, colour);
    if (json_is_true(json_object_get(session, "understates_use")))
        cells_print_fact("Charged", "as NVML shows it: its programs report much less", colour);
    print_speed(session, colour);
    print_waits(json_object_get(session, "gate_waits"), colour);
}

/* Where none of its memory could leave the card, why. */
static void print_staying(const json_t *session, bool colour)
{
    const char *why = session_text(session, "stays_why");
    char text[SESSION_STAYS_TEXT];
    if (!*why || strcmp(session_text(session, "residency"), "resident") != 0)
        return;
    snprintf(text, sizeof(text), "its memory cannot leave %s", why);
    cells_print_fact("Stays", text, colour);
}

/* Who or what keeps it waiting, where that has no known end. */
static void print_waiting(const json_t *session, bool colour)
{
    const char *why = session_text(session, "wait_why");
    if (*why)
        cells_print_fact("Waits", why, colour);
}

/* For a session whose memory can leave the card. */
static void print_residency(const json_t *session, bool colour)
{
    char text[SESSION_STAYS_TEXT], here[UNITS_BYTES_TEXT], away[UNITS_BYTES_TEXT], stays[UNITS_BYTES_TEXT],
        host[UNITS_BYTES_TEXT];
    const char *failure = session_text(session, "move_failure");
    if (strcmp(session_text(session, "oversubscribe"), "none") == 0) {
        print_waiting(session, colour);
        print_staying(session, colour);
        return;
    }
    snprintf(text, sizeof(text), "%s on the card, %s away, %s cannot move; %s of host memory",
             units_format_bytes(session_number(session, "movable_bytes"), here),
             units_format_bytes(session_number(session, "evicted_bytes"), away),
             units_format_bytes(session_number(session, "unmovable_bytes"), stays),
             units_format_bytes(session_number(session, "host_memory_bytes"), host));
    cells_print_fact("Memory", text, colour);
    print_staying(session, colour);
    if (*session_stays(session, text))
        cells_print_fact("Stays", text, colour);
    if (session_outgrows_host(session)) {
        snprintf(text, sizeof(text), "at most %s fit into host memory; with more it cannot leave the card",
                 units_format_bytes(session_number(session, "host_memory_most_bytes"), host));
        cells_print_fact("Stays", text, colour);
    }
    print_waiting(session, colour);
    if (*failure)
        cells_print_fact("Failed", failure, colour);
}

/* The session's place in the queue, and the memory and GPUs that it asks for. */
static void print_queued(const json_t *session, bool colour)
{
    const json_t *asked = json_object_get(session, "asked_gpus"), *gpu;
    char text[256], bytes[UNITS_BYTES_TEXT];
    size_t i;
    snprintf(text, sizeof(text), "%llu in the queue",
             (unsigned long long)session_number(session, "queue_position"));
    cells_print_fact("Place", text, colour);
    if (json_array_size(asked) == 0) {
        snprintf(text, sizeof(text), "%s on any GPU",
                 units_format_bytes(session_number(session, "vram_limit_bytes"), bytes));
        cells_print_fact("Asks for", text, colour);
    }
    json_array_foreach((json_t *)asked, i, gpu)
    {
        struct table_cell cell;
        cells_gpu(&cell, gpu);
        snprintf(text, sizeof(text), "%s on GPU %s (%.12s)",
                 units_format_bytes(session_number(gpu, "limit_bytes"), bytes), cell.text,
                 session_text(gpu, "uuid"));
        cells_print_fact("Asks for", text, colour);
    }
}

/* The word that `list` has, and what it means. */
static void print_status(const json_t *session, bool colour)
{
    char text[256], wait[CELLS_WAIT_TEXT];
    snprintf(text, sizeof(text), "%s: %s%s%s", session_text(session, "status"),
             session_text(session, "status_text"), cells_wait(session, wait),
             json_is_true(json_object_get(session, "declared")) ? "; declared in sessions.conf" : "");
    cells_print_fact("Status", text, colour);
}

static void print_facts(const json_t *session, bool colour)
{
    char text[128], time[SESSION_TIME_TEXT];
    uid_t owner = (uid_t)session_number(session, "owner_uid");
    const struct passwd *user = getpwuid(owner);
    const char *expires = session_text(session, "expires_at");

    cells_print_names(session, colour);
    print_status(session, colour);
    if (strcmp(session_text(session, "state"), "queued") == 0)
        print_queued(session, colour);
    snprintf(text, sizeof(text), "%s (%u)", user ? user->pw_name : "unknown user", (unsigned)owner);
    cells_print_fact("Owner", text, colour);
    cells_print_promise(session, colour);
    print_lease(session, colour);
    print_residency(session, colour);
    cells_print_fact("Created", session_time(session_text(session, "created_at"), time), colour);
    if (!*expires)
        return;
    bool kills = strcmp(session_text(session, "ttl_action"), "kill") == 0;
    snprintf(text, sizeof(text), "%s%s", session_time(expires, time),
             kills ? ", and its programs are ended then" : "");
    cells_print_fact("Expires", text, colour);
}

static void print_gpus(const json_t *session, bool colour)
{
    enum { GPU, UUID, NAME, BAR, USAGE, DRIVER, ACHIEVED, USED, HELD };
    static const struct table_column columns[] = {
        [GPU] = {column_GPU, .right = true},       [UUID] = {"UUID"},
        [NAME] = {"NAME", .shrink = true},         [BAR] = {column_MEMORY},
        [USAGE] = {column_USED, .right = true},    [DRIVER] = {"DRIVER", .right = true},
        [ACHIEVED] = {column_TIME, .right = true}, [USED] = {column_GPU_TIME, .right = true},
        [HELD] = {column_HELD, .right = true},     {NULL},
    };
    struct table table = {.columns = columns};
    const json_t *gpu;
    size_t i;
    json_array_foreach(json_object_get(session, "gpus"), i, gpu)
    {
        char driver[UNITS_BYTES_TEXT];
        struct table_cell *row = table_add_row(&table);
        cells_gpu(&row[GPU], gpu);
        table_cell_print(&row[UUID], TABLE_PLAIN, "%.12s", session_text(gpu, "uuid"));
        cells_gpu_name(&row[NAME], gpu);
        cells_usage(&row[BAR], session_number(gpu, "used_bytes"), session_number(gpu, "limit_bytes"));
        table_cell_print(&row[DRIVER], TABLE_PLAIN, "%s",
                         units_format_bytes(session_number(gpu, "driver_bytes"), driver));
        cells_achieved(&row[ACHIEVED], session, gpu);
        cells_gpu_time(&row[USED], gpu, "gpu_seconds");
        cells_gpu_time(&row[HELD], gpu, "gpu_held_seconds");
    }
    putchar('\n');
    table_print(&table, stdout, table_width(stdout), colour);
    table_free(&table);
    uint64_t orphaned = session_number(session, "orphan_bytes");
    char held[UNITS_BYTES_TEXT];
    if (orphaned)
        printf("the card still holds %s of it for processes that have died\n",
               units_format_bytes(orphaned, held));
}

static void print_processes(const json_t *session, bool colour)
{
    enum { PID, COMMAND, USED, DENIED, ATTACHED };
    static const struct table_column columns[] = {
        [PID] = {"PID", .right = true},   [COMMAND] = {"COMMAND", .shrink = true},
        [USED] = {"USED", .right = true}, [DENIED] = {column_DENIED, .right = true},
        [ATTACHED] = {"ATTACHED"},        {NULL},
    };
    struct table table = {.columns = columns};
    const json_t *processes = json_object_get(session, "processes"), *process;
    size_t i;
    putchar('\n');
    if (json_array_size(processes) == 0) {
        puts("no processes");
        return;
    }
    json_array_foreach((json_t *)processes, i, process)
    {
        char used[UNITS_BYTES_TEXT], time[SESSION_TIME_TEXT];
        uint64_t denied = session_number(process, "denied_allocations");
        struct table_cell *row = table_add_row(&table);
        table_cell_print(&row[PID], TABLE_PLAIN, "%llu", (unsigned long long)session_number(process, "pid"));
        table_cell_print(&row[COMMAND], TABLE_PLAIN, "%s", session_text(process, "command"));
        table_cell_print(&row[USED], TABLE_PLAIN, "%s",
                         units_format_bytes(session_number(process, "used_bytes"), used));
        table_cell_print(&row[DENIED], denied ? TABLE_RED : TABLE_PLAIN, "%llu", (unsigned long long)denied);
        table_cell_print(&row[ATTACHED], TABLE_PLAIN, "%s",
                         session_time(session_text(process, "attached_at"), time));
    }
    table_print(&table, stdout, table_width(stdout), colour);
    table_free(&table);
}

/* The session's last events, the oldest first. */
struct last_events {
    const char *session_id;
    json_t *events;
};

static void take_event(const json_t *event, void *context)
{
    struct last_events *last = context;
    if (strcmp(session_text(event, "session_id"), last->session_id) != 0)
        return;
    json_array_append(last->events, (json_t *)event);
    if (json_array_size(last->events) > EVENTS_SHOWN)
        json_array_remove(last->events, 0);
}

static void print_events(const json_t *events)
{
    const json_t *event;
    size_t i;
    if (json_array_size(events))
        putchar('\n');
    json_array_foreach((json_t *)events, i, event)
    {
        char time[SESSION_TIME_TEXT];
        printf("%s  ", session_time(session_text(event, "time"), time));
        table_print_text(session_text(event, "message"), stdout);
        putchar('\n');
    }
}

/* The last session of this name or ID that has ended; NULL: none is known. */
static json_t *find_ended(struct client *client, const char *session)
{
    char path[128];
    json_t *answer = NULL;
    snprintf(path, sizeof(path), "/v1/history/sessions?since=365d&most=1&session=%s", session);
    if (client_request(client, "GET", path, NULL, &answer, NULL) < 0)
        return NULL;
    json_t *found = json_incref(json_array_get(json_object_get(answer, "sessions"), 0));
    json_decref(answer);
    return found;
}

static void print_session(const json_t *session, const json_t *events)
{
    bool colour = table_colour_wanted(stdout);
    if (strcmp(session_text(session, "state"), "ended") == 0) {
        ended_print(session, colour);
    } else {
        print_facts(session, colour);
        if (json_array_size(json_object_get(session, "gpus"))) {
            print_gpus(session, colour);
            print_processes(session, colour);
        }
    }
    print_events(events);
}

static enum cli_status run_show(const struct cli_arguments *arguments)
{
    struct client client;
    struct error error;
    json_t *session = NULL;
    int result = client_open(&client, arguments->simulated, &error);
    if (result == 0)
        result = client_request_session(&client, "GET", arguments->operands[0], "", NULL, &session, &error);
    if (result < 0 && error.code && strcmp(error.code, "ERR_SESSION_NOT_FOUND") == 0 &&
        (session = find_ended(&client, arguments->operands[0])))
        result = 0;
    struct last_events last = {session_text(session, "session_id"), json_array()};
    if (result == 0 && !arguments->json)
        result = client_listen(&client, "/v1/events?follow=false", take_event, &last, &error);
    client_close(&client);
    if (result < 0) {
        json_decref(last.events);
        json_decref(session);
        return cli_report(&error);
    }
    if (arguments->json)
        cells_print_json(session);
    else
        print_session(session, last.events);
    json_decref(last.events);
    json_decref(session);
    return cli_finish_output();
}

const struct cli_verb verb_show = {
    .name = "show",
    .aliases = {"describe", "inspect"},
    .operands = "SESSION",
    .operand_kind = CLI_SESSION,
    .operands_min = 1,
    .operands_max = 1,
    .summary = "show one session, its GPUs, its processes and its last events",
    .text = "SESSION is an ID, the beginning of an ID that no other session shares, or a name. Of a session "
            "that has "
            "ended, it shows what the history keeps.",
    .columns = explained,
    .options = options,
    .act = run_show,
};
