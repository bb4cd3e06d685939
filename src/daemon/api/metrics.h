/* metrics.h - the daemon's state for monitors: in Prometheus' text format 0.0.4, InfluxDB's line protocol, or lines of
 * JSON. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "daemon/session/identity.h"

struct daemon;

/* Only this many sessions have series of their own, so that a thousand sessions do not drown a monitor. */
#define METRICS_SESSIONS_MAX 256

enum metrics_format { METRICS_PROMETHEUS, METRICS_INFLUX, METRICS_JSON };

/* "prometheus", "influx" or "json". */
bool metrics_format_parse(const char *text, enum metrics_format *format);

/* How far the page has been written. */
struct metrics_text {
    const struct daemon *daemon;
    uid_t viewer;
    enum metrics_format format;
    uint64_t now_ns; /* by the wall clock */
    unsigned metric;
    bool is_in_metric;
    unsigned gpu; /* the next one */
    unsigned session_count;
    uint64_t session; /* the session that was written last: its number, and its ID */
    char session_id[SESSION_ID_TEXT];
};

/* Begin the page as user `viewer` may see it: only the owner sees a session's series, and root sees all. */
struct metrics_text metrics_begin(const struct daemon *daemon, uid_t viewer, enum metrics_format format);
/* Write the next piece of the page, which takes less than a millisecond. False: it was the last. */
bool metrics_write(struct metrics_text *text, FILE *out);
