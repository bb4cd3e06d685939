/* metrics_values.h - the rows of metrics.def, each with the function that reads the metric's value. */
#pragma once

#include <stdint.h>

#define NANO UINT64_C(1000000000)
#define METRIC_UNKNOWN UINT64_MAX /* the metric then has no sample */

struct daemon;
struct session;

/* What one value of a metric is about: the daemon, a GPU, or a session on one of its GPUs. */
struct subject {
    const struct daemon *daemon;
    unsigned gpu;
    const struct session *session;
    unsigned policy_gpu;
};

/* What a metric has a series for. */
enum metric_scope { OF_BUILD, OF_DAEMON, OF_GPU, OF_SESSION, OF_SESSION_STATUS, OF_SESSION_GPU };

enum metric_unit { METRIC_WHOLE, METRIC_NANO };

struct metric {
    const char *name, *type, *help;
    enum metric_scope scope;
    uint64_t (*value)(const struct subject *subject); /* or METRIC_UNKNOWN */
    enum metric_unit unit;
};

/* In the order of /metrics. */
extern const struct metric metrics[];
extern const unsigned metrics_count;

/* gslice has one series over all GPUs, under a name of its own. */
extern const struct metric metrics_gslice_used;
