/* metrics.h - the state as monitors read it: Prometheus' text format 0.0.4, InfluxDB's line protocol, or lines of
 * JSON. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "daemon/session/identity.h"

struct daemon;

/* Series labelled by session are for the first so many, lest a thousand sessions drown a monitor. */
#define METRICS_SESSIONS_MAX 256

enum metrics_format { METRICS_PROMETHEUS, METRICS_INFLUX, METRICS_JSON };

/* "prometheus", "influx" or "json". */
bool metrics_format_parse(const char *text, enum metrics_format *format);

/* How far the page is written. */
struct metrics_text {
    const struct daemon *daemon;
    uid_t viewer;
    enum metrics_format format;
    uint64_t now_ns; /* of the wall clock */
    unsigned metric;
    bool is_in_metric;
    unsigned gpu; /* the next */
    unsigned session_count;
    uint64_t session; /* the number of the last that was written, and its ID */
    char session_id[SESSION_ID_TEXT];
};

/* The page as user `viewer` may see it: series of sessions are of their owner's alone, and for root of all. */
struct metrics_text metrics_begin(const struct daemon *daemon, uid_t viewer, enum metrics_format format);
/* Write the next piece of it, which takes less than a millisecond. False: it was the last. */
bool metrics_write(struct metrics_text *text, FILE *out);
