#include "daemon/api/metrics.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/names.h"
#include "daemon/api/metrics_values.h"
#include "daemon/api/session_status.h"
#include "daemon/gpu/card.h"
#include "daemon/loop/daemon.h"
#include "daemon/schedule/standing.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/session/session_show.h"

/* How many GPUs and series are one piece of the text. For a GPU, all sessions are looked at. */
#define GPUS_AT_ONCE 8
#define SERIES_AT_ONCE 256
#define LABELS_MAX 10
/* The longest label's value: a pod's name, of 253 bytes. */
#define LABEL_BYTES 256

/* The sample that is being written. */
struct sample_line {
    FILE *out;
    enum metrics_format format;
    const struct metric *metric;
    uint64_t now_ns;    /* by the wall clock */
    const char *suffix; /* after the metric's name */
    unsigned count;
    struct {
        const char *name;
        char value[LABEL_BYTES];
    } labels[LABELS_MAX];
};

__attribute__((format(printf, 3, 4))) static void add_label(struct sample_line *line, const char *name,
                                                            const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    line->labels[line->count].name = name;
    vsnprintf(line->labels[line->count++].value, LABEL_BYTES, format, arguments);
    va_end(arguments);
}

/* In InfluxDB's lines, commas, blanks and signs of equality end a value, unless a backslash is before them. */
static void write_influx_pair(FILE *out, const char *name, const char *value)
{
    fprintf(out, "%s=", name);
    for (; *value; value++) {
        if (strchr(", =", *value))
            fputc('\\', out);
        fputc(*value, out);
    }
}

/* No label's value has a character that another format would have to escape: they are names of sessions, numbers, UUIDs,
 * versions and free words of plain letters. */
static void write_labels(const struct sample_line *line)
{
    static const char *const begins[] = {
        [METRICS_PROMETHEUS] = "{", [METRICS_INFLUX] = ",", [METRICS_JSON] = ""};
    for (unsigned i = 0; i < line->count; i++) {
        const char *name = line->labels[i].name, *value = line->labels[i].value;
        fputs(i ? "," : begins[line->format], line->out);
        if (line->format == METRICS_PROMETHEUS)
            fprintf(line->out, "%s=\"%s\"", name, value);
        else if (line->format == METRICS_INFLUX)
            write_influx_pair(line->out, name, value);
        else
            fprintf(line->out, "\"%s\":\"%s\"", name, value);
    }
    if (line->count && line->format == METRICS_PROMETHEUS)
        fputc('}', line->out);
}

static void write_value(const struct sample_line *line, uint64_t value)
{
    if (line->metric->unit == METRIC_NANO)
        fprintf(line->out, "%" PRIu64 ".%09" PRIu64, value / NANO, value % NANO);
    else
        fprintf(line->out, "%" PRIu64, value);
}

/* Write the sample and drop its labels; an unknown value is left out. */
static void end_sample(struct sample_line *line, uint64_t value)
{
    if (value != METRIC_UNKNOWN) {
        fputs(line->format == METRICS_JSON ? "{\"metric\":\"" : "", line->out);
        fputs(line->metric->name, line->out);
        fputs(line->suffix, line->out);
        fputs(line->format == METRICS_JSON ? "\",\"labels\":{" : "", line->out);
        write_labels(line);
        fputs(line->format == METRICS_JSON     ? "},\"value\":"
              : line->format == METRICS_INFLUX ? " value="
                                               : " ",
              line->out);
        write_value(line, value);
        if (line->format == METRICS_JSON)
            fprintf(line->out, ",\"time\":%" PRIu64 ".%03" PRIu64 "}", line->now_ns / NANO,
                    line->now_ns % NANO / 1000000);
        else if (line->format == METRICS_INFLUX)
            fprintf(line->out, " %" PRIu64, line->now_ns);
        fputc('\n', line->out);
    }
    line->count = 0;
}

static void write_build(struct sample_line *line, struct subject *subject)
{
    add_label(line, "version", "%s", GPUSLICE_VERSION);
    if (subject->daemon->driver_version[0])
        add_label(line, "driver_version", "%s", subject->daemon->driver_version);
    end_sample(line, line->metric->value(subject));
}

/* gslice has one series without labels of each of these, and one more metric. */
static bool is_one_series(const struct daemon *daemon, const struct metric *metric)
{
    static const char *const names[] = {"gpuslice_alloc_events_total", "gpuslice_denied_alloc_total",
                                        "gpuslice_recovered_bytes_total"};
    for (size_t i = 0; daemon->config.daemon.metrics_as_gslice && i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(metric->name, names[i]) == 0)
            return true;
    return false;
}

static uint64_t sum_over_gpus(const struct metric *metric, struct subject *subject)
{
    uint64_t sum = 0;
    for (subject->gpu = 0; subject->gpu < subject->daemon->gpu_count; subject->gpu++)
        sum += metric->value(subject);
    return sum;
}

/* Write one piece. Returns whether there are more. */
static bool write_gpus(struct metrics_text *text, struct sample_line *line, struct subject *subject)
{
    unsigned end = text->gpu + GPUS_AT_ONCE;
    if (is_one_series(subject->daemon, line->metric)) {
        end_sample(line, sum_over_gpus(line->metric, subject));
        return false;
    }
    for (; text->gpu < subject->daemon->gpu_count && text->gpu < end; text->gpu++) {
        subject->gpu = text->gpu;
        add_label(line, "gpu", "%u", subject->daemon->gpus[subject->gpu].index);
        add_label(line, "UUID", "%s", subject->daemon->gpus[subject->gpu].uuid_text);
        end_sample(line, line->metric->value(subject));
    }
    return text->gpu < subject->daemon->gpu_count;
}

static void add_labels(struct sample_line *line, const struct session_properties *properties, bool has_choice)
{
    char text[PROPERTY_TEXT];
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++)
        if (row->flags & IS_LABEL && (has_choice || !(row->flags & BY_CHOICE)) &&
            *property_format(row, properties, text))
            add_label(line, row->json, "%s", text);
}

/* A name is unique only among its owner's sessions, so the owner is a label too. */
static void add_session(struct sample_line *line, struct subject *subject)
{
    const struct session *session = subject->session;
    const int gpu = session->gpus[subject->policy_gpu].gpu;
    char uuid[GPU_UUID_TEXT];
    if (strcmp(session->name, session->id) == 0 && session->unnamed)
        add_label(line, "session", "unnamed:%u", session->unnamed); /* no new series for each run */
    else
        add_label(line, "session", "%s", session->name);
    add_label(line, "owner", "%u", (unsigned)session->owner);
    if (subject->daemon->config.daemon.metrics_debug)
        add_label(line, "session_id", "%s", session->id);
    if (gpu >= 0 && line->metric->scope == OF_SESSION_GPU)
        add_label(line, "gpu", "%u", subject->daemon->gpus[gpu].index);
    if (line->metric->scope == OF_SESSION_STATUS)
        add_label(line, "status", "%s", session_status_word(session_status(session)));
    if (line->metric->scope == OF_SESSION_GPU)
        add_label(line, "UUID", "%s", session_gpu_uuid(&session->gpus[subject->policy_gpu], uuid));
    add_labels(line, &session->properties, subject->daemon->config.daemon.metrics_labels);
}

/* As Prometheus has it: each bucket's value counts the buckets before it too; then the sum, and the count of all. */
static void write_histogram(struct sample_line *line, struct subject *subject)
{
    const uint64_t *counts = standing_of(subject->session).waits_by_length;
    uint64_t sum = 0;
    struct metric count = *line->metric;
    const struct metric *whole = line->metric;
    count.unit = METRIC_WHOLE;
    line->metric = &count;
    line->suffix = "_bucket";
    for (unsigned i = 0; i < WAITS_BUCKETS; i++) {
        sum += counts ? counts[i] : 0;
        add_session(line, subject);
        if (i == WAITS_BUCKETS - 1)
            add_label(line, "le", "+Inf");
        else
            add_label(line, "le", "%g", (double)waits_bounds_ns[i] / NANO);
        end_sample(line, sum);
    }
    line->suffix = "_count";
    add_session(line, subject);
    end_sample(line, sum);
    line->metric = whole;
    line->suffix = "_sum";
    add_session(line, subject);
    end_sample(line, whole->value(subject));
    line->suffix = "";
}

/* Write a session's sample. Returns how many lines that are. */
static unsigned write_session(struct sample_line *line, struct subject *subject)
{
    if (strcmp(line->metric->type, "histogram") == 0) {
        write_histogram(line, subject);
        return WAITS_BUCKETS + 2;
    }
    add_session(line, subject);
    end_sample(line, line->metric->value(subject));
    return 1;
}

/* Write one piece. Returns whether there are more. */
static bool write_sessions(struct metrics_text *text, struct sample_line *line, struct subject *subject)
{
    for (unsigned series = 0; series < SERIES_AT_ONCE && text->session_count < METRICS_SESSIONS_MAX;) {
        const struct session *session = session_behind(subject->daemon, text->session_id, text->session);
        while (session && !session_is_visible(session, text->viewer))
            session = session->next;
        if (!session)
            return false;
        text->session_count++;
        text->session = session->number;
        strcpy(text->session_id, session->id);
        subject->session = session;
        const unsigned own = line->metric->scope == OF_SESSION_GPU ? session->gpu_count : 1;
        for (subject->policy_gpu = 0; subject->policy_gpu < own; subject->policy_gpu++)
            series += write_session(line, subject);
        subject->policy_gpu = 0;
        series++;
    }
    return text->session_count < METRICS_SESSIONS_MAX;
}

static void write_head(const struct sample_line *line)
{
    const struct metric *metric = line->metric;
    if (line->format == METRICS_PROMETHEUS)
        fprintf(line->out, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help, metric->name,
                metric->type);
}

/* Write a piece of one metric's samples. Returns whether there are more. */
static bool write_samples(struct metrics_text *text, struct sample_line *line, struct subject *subject)
{
    switch (line->metric->scope) {
    case OF_BUILD:
        write_build(line, subject);
        return false;
    case OF_DAEMON:
        end_sample(line, line->metric->value(subject));
        return false;
    case OF_GPU:
        return write_gpus(text, line, subject);
    default:
        return write_sessions(text, line, subject);
    }
}

static void write_gslice_total(struct sample_line *line, struct subject *subject)
{
    if (!subject->daemon->config.daemon.metrics_as_gslice)
        return;
    line->metric = &metrics_gslice_used;
    write_head(line);
    end_sample(line, sum_over_gpus(&metrics_gslice_used, subject));
}

struct metrics_text metrics_begin(const struct daemon *daemon, uid_t viewer, enum metrics_format format)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (struct metrics_text){.daemon = daemon,
                                 .viewer = viewer,
                                 .format = format,
                                 .now_ns = (uint64_t)now.tv_sec * NANO + (uint64_t)now.tv_nsec};
}

bool metrics_write(struct metrics_text *text, FILE *out)
{
    struct subject subject = {.daemon = text->daemon};
    struct sample_line line = {.out = out,
                               .format = text->format,
                               .suffix = "",
                               .now_ns = text->now_ns,
                               .metric = &metrics[text->metric % metrics_count]};
    if (text->metric == metrics_count) {
        write_gslice_total(&line, &subject);
        return false;
    }
    if (!text->is_in_metric)
        write_head(&line);
    text->is_in_metric = write_samples(text, &line, &subject);
    if (text->is_in_metric)
        return true;
    text->metric++;
    text->gpu = text->session_count = 0;
    text->session = 0;
    return true;
}

bool metrics_format_parse(const char *text, enum metrics_format *format)
{
    static const char *const names[] = {
        [METRICS_PROMETHEUS] = "prometheus", [METRICS_INFLUX] = "influx", [METRICS_JSON] = "json"};
    int at = names_find(names, sizeof(names) / sizeof(names[0]), text);
    if (at >= 0)
        *format = (enum metrics_format)at;
    return at >= 0;
}
