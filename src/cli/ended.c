#include "cli/ended.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/session_cells.h"
#include "client/session_fields.h"

static double real(const json_t *session, const char *field)
{
    return json_number_value(json_object_get(session, field));
}

static time_t time_of(const json_t *session, const char *field)
{
    struct tm parts = {0};
    return strptime(session_text(session, field), "%Y-%m-%dT%H:%M:%SZ", &parts) ? timegm(&parts) : 0;
}

double ended_seconds(const json_t *session)
{
    return difftime(time_of(session, "ended_at"), time_of(session, "created_at"));
}

const char *ended_exit(const json_t *session, char text[static ENDED_EXIT_TEXT])
{
    const json_t *ended = json_object_get(session, "exit");
    if (!json_is_object(ended))
        snprintf(text, ENDED_EXIT_TEXT, "-");
    else if (json_object_get(ended, "code"))
        snprintf(text, ENDED_EXIT_TEXT, "%d", (int)session_number(ended, "code"));
    else
        snprintf(text, ENDED_EXIT_TEXT, "signal %d", (int)session_number(ended, "signal"));
    return text;
}

double ended_waited(const json_t *session)
{
    return real(session, "queue_wait_seconds") + real(session, "room_wait_seconds") +
           real(session, "gate_wait_seconds");
}

static void print_end(const json_t *session, bool colour)
{
    char text[512], asker[CELLS_ASKER_TEXT], ended[ENDED_EXIT_TEXT];
    snprintf(text, sizeof(text), "%s%s", session_text(session, "end_reason"),
             cells_asker(session, "released_by", asker));
    cells_print_fact("Ended", text, colour);
    if (json_is_object(json_object_get(session, "exit")))
        cells_print_fact("Exit", ended_exit(session, ended), colour);
}

static void print_use(const json_t *session, bool colour)
{
    char text[256], peak[UNITS_BYTES_TEXT], limit[UNITS_BYTES_TEXT], gpu[CELLS_DURATION_TEXT],
        queue[CELLS_DURATION_TEXT], room[CELLS_DURATION_TEXT], turns[CELLS_DURATION_TEXT];
    snprintf(text, sizeof(text), "%s at most, of %s",
             units_format_bytes(session_number(session, "peak_bytes"), peak),
             units_format_bytes(session_number(session, "vram_limit_bytes"), limit));
    cells_print_fact("Memory", text, colour);
    snprintf(text, sizeof(text), "%s%s", cells_duration(real(session, "gpu_seconds"), gpu),
             real(session, "gpu_seconds_by_nvml") > 0 ? ", by NVML" : "");
    cells_print_fact("GPU time", text, colour);
    snprintf(text, sizeof(text), "%s in the queue, %s for room on the card, %s for turns",
             cells_duration(real(session, "queue_wait_seconds"), queue),
             cells_duration(real(session, "room_wait_seconds"), room),
             cells_duration(real(session, "gate_wait_seconds"), turns));
    cells_print_fact("Waited", text, colour);
}

static void print_refusals(const json_t *session, bool colour)
{
    uint64_t count = session_number(session, "denied_allocations");
    const json_t *refusal;
    char text[48];
    size_t i;
    if (count == 0)
        return;
    snprintf(text, sizeof(text), "%llu allocation%s", (unsigned long long)count, count == 1 ? "" : "s");
    cells_print_fact("Denied", text, colour);
    json_array_foreach(json_object_get(session, "refusals"), i, refusal)
    {
        cells_print_fact("", json_is_string(refusal) ? json_string_value(refusal) : "", colour);
    }
}

void ended_print(const json_t *session, bool colour)
{
    char time[SESSION_TIME_TEXT], user[CELLS_USER_TEXT];
    const char *command = session_text(session, "command");
    cells_print_names(session, colour);
    cells_print_fact("State", "ended", colour);
    cells_print_fact("Owner", cells_user((uid_t)session_number(session, "owner_uid"), user), colour);
    if (*command)
        cells_print_fact("Command", command, colour);
    cells_print_promise(session, colour);
    print_use(session, colour);
    print_refusals(session, colour);
    cells_print_fact("Created", session_time(session_text(session, "created_at"), time), colour);
    cells_print_fact("Until", session_time(session_text(session, "ended_at"), time), colour);
    print_end(session, colour);
}
