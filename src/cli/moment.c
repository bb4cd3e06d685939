#include "cli/moment.h"

#include <errno.h>
#include <string.h>

#include "base/units.h"

/* The longest duration (units_parse_duration()). */
#define YEAR_SECONDS INT64_C(31536000)

/* In the order in which they are tried. */
static const struct {
    const char *format;
    bool is_of_today;
} formats[] = {
    {"%H:%M:%S", true},           {"%H:%M", true},           {"%Y-%m-%dT%H:%M:%S", false},
    {"%Y-%m-%d %H:%M:%S", false}, {"%Y-%m-%dT%H:%M", false}, {"%Y-%m-%d %H:%M", false},
    {"%Y-%m-%d", false},
};

static bool parse_time(const char *text, time_t now, time_t *moment)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        struct tm parts = {0};
        if (formats[i].is_of_today) {
            localtime_r(&now, &parts);
            parts.tm_hour = parts.tm_min = parts.tm_sec = 0;
        }
        const char *end = strptime(text, formats[i].format, &parts);
        if (!end || *end)
            continue;
        parts.tm_isdst = -1;
        *moment = mktime(&parts);
        return *moment != (time_t)-1;
    }
    return false;
}

int moment_parse(const char *text, time_t now, uint64_t *usec, struct error *error)
{
    time_t moment;
    if (units_parse_duration(text, usec, NULL) == 0)
        return 0;
    if (!parse_time(text, now, &moment))
        return error_set(error, EINVAL, NULL,
                         "'%.80s' is not a time; expected how long ago, like 90m or 7d, or when, like 14:30, "
                         "2026-01-31 or 2026-01-31T14:30",
                         text);
    if (moment >= now)
        return error_set(error, EINVAL, NULL, "'%.80s' is not in the past", text);
    *usec = now - moment < YEAR_SECONDS ? (uint64_t)(now - moment) * 1000000 : YEAR_SECONDS * 1000000;
    return 0;
}
