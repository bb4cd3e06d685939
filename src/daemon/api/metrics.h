/* metrics.h - the state in Prometheus' text format 0.0.4. */
#pragma once

struct daemon;

/* Series labelled by session are for the first so many, lest a thousand sessions drown a monitor. */
#define METRICS_SESSIONS_MAX 256

/* The whole page, for the caller to free; NULL without memory. */
char *metrics_text(const struct daemon *daemon);
