/* metrics.h - the state as monitors read it: Prometheus' text format 0.0.4, InfluxDB's line protocol, or lines of
 * JSON. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct daemon;

/* Series labelled by session are for the first so many, lest a thousand sessions drown a monitor. */
#define METRICS_SESSIONS_MAX 256

enum metrics_format { METRICS_PROMETHEUS, METRICS_INFLUX, METRICS_JSON };

/* "prometheus", "influx" or "json". */
bool metrics_format_parse(const char *text, enum metrics_format *format);

/* The whole page as user `viewer` may see it: series of sessions are of their owner's alone, and for root of all.
 * For the caller to free; NULL without memory. */
char *metrics_text(const struct daemon *daemon, uid_t viewer, enum metrics_format format);
