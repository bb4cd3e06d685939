#include "client/session_fields.h"

#include <stdio.h>
#include <string.h>

#include "base/names.h"

uint64_t session_number(const json_t *object, const char *field)
{
    json_int_t value = json_integer_value(json_object_get(object, field));
    return value > 0 ? (uint64_t)value : 0;
}

const char *session_text(const json_t *object, const char *field)
{
    const char *text = json_string_value(json_object_get(object, field));
    return text ? text : "";
}

bool session_is_partly_away(const json_t *session)
{
    return strcmp(session_text(session, "residency"), "partly_away") == 0;
}

bool session_is_away(const json_t *session)
{
    return session_is_partly_away(session) || strcmp(session_text(session, "residency"), "away") == 0;
}

enum session_tone session_tone(const json_t *session)
{
    static const char *const tones[] = {
        [SESSION_CALM] = "calm", [SESSION_BUSY] = "busy", [SESSION_WAITS] = "waits", [SESSION_BAD] = "bad"};
    int at = names_find(tones, sizeof(tones) / sizeof(tones[0]), session_text(session, "status_tone"));
    return at < 0 ? SESSION_CALM : (enum session_tone)at;
}

/* The daemon lists the largest part first. */
const char *session_stays(const json_t *session, char text[static SESSION_STAYS_TEXT])
{
    enum { MOST = 32 };
    struct units_part parts[MOST];
    const json_t *row;
    unsigned count = 0;
    size_t i;
    json_array_foreach(json_object_get(session, "stays"), i,
                       row) if (strcmp(session_text(row, "why"), "context") != 0 && count < MOST)
        parts[count++] = (struct units_part){session_number(row, "bytes"), session_text(row, "text")};
    return units_format_stays(parts, count, text, SESSION_STAYS_TEXT);
}

bool session_outgrows_host(const json_t *session)
{
    const json_t *most = json_object_get(session, "host_memory_most_bytes");
    return json_is_integer(most) &&
           session_number(session, "vram_limit_bytes") > session_number(session, "host_memory_most_bytes");
}

const char *session_share(const json_t *session, char text[static UNITS_SHARE_TEXT])
{
    double min = json_number_value(json_object_get(session, "compute_min_ratio"));
    double max = json_number_value(json_object_get(session, "compute_max_ratio"));
    return units_format_share(
        (struct share){(uint32_t)(min * SHARE_WHOLE + 0.5), (uint32_t)(max * SHARE_WHOLE + 0.5)}, text);
}

const char *session_ms(const json_t *object, const char *field, int digits, char text[static SESSION_MS_TEXT])
{
    double ms = 1000 * json_number_value(json_object_get(object, field)), whole_from = 1;
    for (int i = 0; i < digits; i++)
        whole_from *= 10;
    if (ms < whole_from - 0.5)
        snprintf(text, SESSION_MS_TEXT, "%.*g", digits, ms);
    else
        snprintf(text, SESSION_MS_TEXT, "%.0f", ms);
    return text;
}

const char *session_time(const char *time, char text[static SESSION_TIME_TEXT])
{
    size_t length = strlen(time);
    if (length >= 20 && length < SESSION_TIME_TEXT - 4 && time[10] == 'T' && time[length - 1] == 'Z')
        snprintf(text, SESSION_TIME_TEXT, "%.10s %.*s UTC", time, (int)length - 12, time + 11);
    else
        snprintf(text, SESSION_TIME_TEXT, "%.30s", time);
    return text;
}
