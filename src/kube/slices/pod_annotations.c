#include "kube/slices/pod_annotations.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "client/session_fields.h"
#include "config/session_properties.h"

/* What annotations say goes to a log and to people's terminals, and half a character is no JSON. */
static void keep_printable(char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

void pod_annotations_add_problem(char problems[static POD_PROBLEMS_TEXT], const char *format, ...)
{
    size_t length = strlen(problems);
    va_list arguments;
    if (length && length + 2 < POD_PROBLEMS_TEXT)
        length += (size_t)sprintf(problems + length, "; ");
    va_start(arguments, format);
    vsnprintf(problems + length, POD_PROBLEMS_TEXT - length, format, arguments);
    va_end(arguments);
    keep_printable(problems + length);
}

/* Annotations that can be read are added to `wish`, with what says them to `said`; others to `problems`. */
struct reading {
    json_t *wish, *said;
    const json_t *session;
    const struct property *property; /* that the annotation is about; NULL: none */
    char *problems;
};

static void wish_for(const struct reading *reading, const char *key, json_t *value, const char *annotation,
                     const char *text)
{
    json_object_set_new(reading->wish, key, value);
    json_object_set_new(reading->said, key, json_sprintf("%s: %.60s", annotation, text));
}

/* The limit on each GPU, which cannot grow; a GPU with fewer of the session's slices has a lower one. */
static void set_memory(const struct reading *reading, const char *annotation, const char *text)
{
    uint64_t bytes, most = 0;
    struct error error;
    size_t i;
    char asked[UNITS_BYTES_TEXT], has[UNITS_BYTES_TEXT];
    json_t *gpus = json_array(), *gpu;
    if (units_parse_bytes(text, &bytes, &error) < 0) {
        pod_annotations_add_problem(reading->problems, "%s: %.200s", annotation, error.message);
        json_decref(gpus);
        return;
    }
    json_array_foreach(json_object_get(reading->session, "gpus"), i, gpu)
    {
        uint64_t limit = session_number(gpu, "limit_bytes");
        most = limit > most ? limit : most;
        json_array_append_new(gpus, json_pack("{s:s,s:I}", "gpu", session_text(gpu, "uuid"), "memory_bytes",
                                              (json_int_t)(bytes < limit ? bytes : limit)));
    }
    if (bytes <= most) {
        wish_for(reading, "gpus", gpus, annotation, text);
        return;
    }
    pod_annotations_add_problem(reading->problems,
                                "%s: %s is more than the %s of the pod's slices, which stay", annotation,
                                units_format_bytes(bytes, asked), units_format_bytes(most, has));
    json_decref(gpus);
}

/* A ratio of the session as a part of SHARE_WHOLE. */
static uint32_t part_of(const struct reading *reading, const char *ratio)
{
    return (uint32_t)(json_number_value(json_object_get(reading->session, ratio)) * SHARE_WHOLE + 0.5);
}

static bool parse_share(const struct reading *reading, const char *annotation, const char *text,
                        struct share *share)
{
    struct error error;
    if (units_parse_share(text, share, &error) == 0)
        return true;
    pod_annotations_add_problem(reading->problems, "%s: %.200s", annotation, error.message);
    return false;
}

/* Others count on what the slices leave them, and the administrator may bound the maximum, so a pod that asks for more
 * keeps what its slices have. */
static void set_compute(const struct reading *reading, const char *annotation, const char *text)
{
    struct share share, has = {part_of(reading, "compute_min_ratio"), part_of(reading, "compute_max_ratio")};
    char asked[UNITS_SHARE_TEXT], stays[UNITS_SHARE_TEXT];
    if (!parse_share(reading, annotation, text, &share))
        return;
    if (share.min > has.min || share.max > has.max)
        pod_annotations_add_problem(
            reading->problems,
            "%s: %s is more than the %s of the pod's slices, which stay; ask for more slices", annotation,
            units_format_share(share, asked), units_format_share(has, stays));
    else
        wish_for(reading, "compute", json_string(units_format_share(share, asked)), annotation, text);
}

/* A maximum alone, in hundredths of a GPU's time. */
static void set_compute_limit(const struct reading *reading, const char *annotation, const char *text)
{
    struct share share;
    char number[32], formatted[UNITS_SHARE_TEXT];
    uint32_t min = part_of(reading, "compute_min_ratio");
    snprintf(number, sizeof(number), "%.20s%s", text, strchr(text, '%') ? "" : "%");
    if (!parse_share(reading, annotation, number, &share))
        return;
    share.min = share.max < min ? share.max : min;
    set_compute(reading, annotation, units_format_share(share, formatted));
}

/* At most what the administrator's default gives. */
static void set_size(const struct reading *reading, const char *annotation, const char *text)
{
    uint64_t bytes, limit = session_number(reading->session, reading->property->answer);
    struct error error;
    char asked[UNITS_BYTES_TEXT], has[UNITS_BYTES_TEXT];
    if (units_parse_bytes(text, &bytes, &error) < 0)
        pod_annotations_add_problem(reading->problems, "%s: %.200s", annotation, error.message);
    else if (bytes > INT64_MAX)
        pod_annotations_add_problem(reading->problems, "%s: no machine has %.64s", annotation, text);
    else if (limit && bytes > limit)
        pod_annotations_add_problem(reading->problems,
                                    "%s: %s is more than the %s of sessions here, which stay", annotation,
                                    units_format_bytes(bytes, asked), units_format_bytes(limit, has));
    else
        wish_for(reading, reading->property->json, json_integer((json_int_t)bytes), annotation, text);
}

static void set_seconds(const struct reading *reading, const char *annotation, const char *text)
{
    uint64_t usec;
    struct error error;
    if (units_parse_duration(text, &usec, &error) < 0)
        pod_annotations_add_problem(reading->problems, "%s: %.200s", annotation, error.message);
    else
        wish_for(reading, reading->property->json,
                 json_integer(usec < 1000000 ? 1 : (json_int_t)(usec / 1000000)), annotation, text);
}

/* Any user of a namespace writes annotations: a priority above that of others is not for pods to give themselves. */
static void set_priority(const struct reading *reading, const char *annotation, const char *text)
{
    enum session_priority priority, has = PRIORITY_NORMAL;
    bool is_priority = session_priority_parse(strcmp(text, "medium") == 0 ? "normal" : text, &priority);
    session_priority_parse(session_text(reading->session, "priority"), &has);
    if (!is_priority)
        pod_annotations_add_problem(
            reading->problems, "%s: '%.40s' is not a priority; expected low or normal", annotation, text);
    else if (priority > PRIORITY_NORMAL)
        pod_annotations_add_problem(
            reading->problems,
            "%s: pods with slices cannot have the priority %.40s; expected low or normal, or a claim "
            "by DRA of a "
            "DeviceClass that gives it",
            annotation, text);
    else
        wish_for(reading, "priority", json_string(session_priority_name(priority < has ? priority : has)),
                 annotation, text);
}

static void refuse_oversubscribe(const struct reading *reading, const char *annotation, const char *text)
{
    pod_annotations_add_problem(reading->problems,
                                "%s: slices are given before their pod is known; use gpuslice-kubelet's "
                                "--slice-oversubscribe, or a claim by DRA",
                                annotation);
}

static void refuse_when_full(const struct reading *reading, const char *annotation, const char *text)
{
    pod_annotations_add_problem(
        reading->problems,
        "%s has no effect: a slice's memory is set aside before its pod is known, so it never waits for room",
        annotation);
}

static void refuse_gpu(const struct reading *reading, const char *annotation, const char *text)
{
    pod_annotations_add_problem(reading->problems,
                                "%s has no effect: the kubelet chooses a slice's GPU before it names the "
                                "pod; use a claim by DRA with a selector",
                                annotation);
}

static void refuse_speed(const struct reading *reading, const char *annotation, const char *text)
{
    pod_annotations_add_problem(
        reading->problems,
        "%s has no effect: a share is a part of the GPU's time here; expected gpuslice.io/compute or "
        "tensor-fusion.ai/compute-percent-limit",
        annotation);
}

/* The names that other GPU sharing systems have for the same, and what is not a property. */
static const struct {
    const char *annotation;
    void (*read)(const struct reading *reading, const char *annotation, const char *text);
} annotations_known[] = {
    {"tensor-fusion.ai/vram-limit", set_memory},
    {"tensor-fusion.ai/compute-percent-limit", set_compute_limit},
    {"tensor-fusion.ai/qos", set_priority},
    {"tensor-fusion.ai/gpu-ids", refuse_gpu},
    {"tensor-fusion.ai/container-gpus", refuse_gpu},
    {"tensor-fusion.ai/tflops-limit", refuse_speed},
    {"gpuslice.io/memory", set_memory},
};

/* What a pod may say of the properties of its session, by "gpuslice.io/" and their names; these win. */
static void (*const properties_read[PROPERTY_COUNT])(const struct reading *reading, const char *annotation,
                                                     const char *text) = {
    [PROPERTY_COMPUTE] = set_compute,
    [PROPERTY_PRIORITY] = set_priority,
    [PROPERTY_OVERSUBSCRIBE] = refuse_oversubscribe,
    [PROPERTY_WHEN_FULL] = refuse_when_full,
    [PROPERTY_HOST_MEMORY] = set_size,
    [PROPERTY_IDLE_SUSPEND] = set_seconds,
};

#define OURS "gpuslice.io/"

static void read_property(struct reading *reading, const json_t *annotations, const struct property *property)
{
    char annotation[64];
    snprintf(annotation, sizeof(annotation), OURS "%s", property->name);
    const char *text = json_string_value(json_object_get(annotations, annotation));
    reading->property = property;
    if (text && properties_read[property->id])
        properties_read[property->id](reading, annotation, text);
}

/* Whether `annotation`, one of ours, is known; if not, add the known ones to `names`. */
static bool is_known(const char *annotation, char names[static 200])
{
    const char *name = annotation + strlen(OURS);
    size_t length = (size_t)snprintf(names, 200, "memory");
    bool is_known = strcmp(name, "memory") == 0;
    for (size_t i = 0; i < PROPERTY_COUNT; i++) {
        const struct property *property = &session_properties[i];
        if (!properties_read[property->id])
            continue;
        is_known |= strcmp(name, property->name) == 0;
        if (length < 200)
            length += (size_t)snprintf(names + length, 200 - length, ", %s", property->name);
    }
    return is_known;
}

static void tell_unknown(const struct reading *reading, const json_t *annotations)
{
    const char *annotation;
    json_t *value;
    char names[200];
    json_object_foreach((json_t *)annotations, annotation, value)
    {
        if (strncmp(annotation, OURS, strlen(OURS)) == 0 && !is_known(annotation, names))
            pod_annotations_add_problem(
                reading->problems, "%.80s is unknown; expected " OURS " and one of %s", annotation, names);
    }
}

json_t *pod_annotations_read(const json_t *annotations, const json_t *session, json_t *said,
                             char problems[static POD_PROBLEMS_TEXT])
{
    struct reading reading = {.wish = json_object(), .said = said, .session = session, .problems = problems};
    problems[0] = '\0';
    for (size_t i = 0; i < sizeof(annotations_known) / sizeof(annotations_known[0]); i++) {
        const char *name = annotations_known[i].annotation;
        const char *text = json_string_value(json_object_get(annotations, name));
        if (text)
            annotations_known[i].read(&reading, name, text);
    }
    for (size_t i = 0; i < PROPERTY_COUNT; i++)
        read_property(&reading, annotations, &session_properties[i]);
    tell_unknown(&reading, annotations);
    return reading.wish;
}
