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

/* Annotations that can be read are added to `wish`, others to `problems`. */
struct reading {
    json_t *wish;
    const json_t *session;
    const struct property *property; /* that the annotation is about; NULL: none */
    char *problems;
};

/* The limit on each GPU, which cannot grow; a GPU with fewer of the session's slices has a lower one. */
static void set_memory(const struct reading *reading, const char *annotation, const char *text)
{
    uint64_t bytes;
    struct error error;
    size_t i;
    json_t *gpus = json_array(), *gpu;
    if (units_parse_bytes(text, &bytes, &error) < 0) {
        pod_annotations_add_problem(reading->problems, "%s: %.200s", annotation, error.message);
        json_decref(gpus);
        return;
    }
    json_array_foreach(json_object_get(reading->session, "gpus"), i, gpu)
    {
        uint64_t limit = session_number(gpu, "limit_bytes");
        json_array_append_new(gpus, json_pack("{s:s,s:I}", "gpu", session_text(gpu, "uuid"), "memory_bytes",
                                              (json_int_t)(bytes < limit ? bytes : limit)));
    }
    json_object_set_new(reading->wish, "gpus", gpus);
}

/* A ratio of the session as a part of SHARE_WHOLE. */
static uint32_t part_of(const struct reading *reading, const char *ratio)
{
    return (uint32_t)(json_number_value(json_object_get(reading->session, ratio)) * SHARE_WHOLE + 0.5);
}

/* Others are kept from the minimum of the slices, and the administrator may bound the maximum, so a pod gives itself no
 * larger ones. */
static void set_compute(const struct reading *reading, const char *annotation, const char *text)
{
    struct share share;
    struct error error;
    char number[32], formatted[UNITS_SHARE_TEXT];
    snprintf(number, sizeof(number), "%.20s%s", text, strchr(text, '%') ? "" : "%");
    if (units_parse_share(number, &share, &error) < 0) {
        pod_annotations_add_problem(reading->problems, "%s: %.200s", annotation, error.message);
        return;
    }
    uint32_t min = part_of(reading, "compute_min_ratio"), max = part_of(reading, "compute_max_ratio");
    share.min = share.min < min ? share.min : min;
    share.max = share.max < max ? share.max : max;
    json_object_set_new(reading->wish, "compute", json_string(units_format_share(share, formatted)));
}

/* At most what the administrator's default gives. */
static void set_size(const struct reading *reading, const char *annotation, const char *text)
{
    uint64_t bytes, limit = session_number(reading->session, reading->property->answer);
    struct error error;
    if (units_parse_bytes(text, &bytes, &error) < 0)
        pod_annotations_add_problem(reading->problems, "%s: %.200s", annotation, error.message);
    else if (bytes > INT64_MAX)
        pod_annotations_add_problem(reading->problems, "%s: no machine has %.64s", annotation, text);
    else
        json_object_set_new(reading->wish, reading->property->json,
                            json_integer((json_int_t)(limit && bytes > limit ? limit : bytes)));
}

static void set_seconds(const struct reading *reading, const char *annotation, const char *text)
{
    uint64_t usec;
    struct error error;
    if (units_parse_duration(text, &usec, &error) < 0)
        pod_annotations_add_problem(reading->problems, "%s: %.200s", annotation, error.message);
    else
        json_object_set_new(reading->wish, reading->property->json,
                            json_integer(usec < 1000000 ? 1 : (json_int_t)(usec / 1000000)));
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
        json_object_set_new(reading->wish, "priority",
                            json_string(session_priority_name(priority < has ? priority : has)));
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
    {"tensor-fusion.ai/compute-percent-limit", set_compute},
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

static void read_property(struct reading *reading, const json_t *annotations, const struct property *property)
{
    char annotation[64];
    snprintf(annotation, sizeof(annotation), "gpuslice.io/%s", property->name);
    const char *text = json_string_value(json_object_get(annotations, annotation));
    reading->property = property;
    if (text && properties_read[property->id])
        properties_read[property->id](reading, annotation, text);
}

json_t *pod_annotations_read(const json_t *annotations, const json_t *session,
                             char problems[static POD_PROBLEMS_TEXT])
{
    struct reading reading = {.wish = json_object(), .session = session, .problems = problems};
    problems[0] = '\0';
    for (size_t i = 0; i < sizeof(annotations_known) / sizeof(annotations_known[0]); i++) {
        const char *name = annotations_known[i].annotation;
        const char *text = json_string_value(json_object_get(annotations, name));
        if (text)
            annotations_known[i].read(&reading, name, text);
    }
    for (size_t i = 0; i < PROPERTY_COUNT; i++)
        read_property(&reading, annotations, &session_properties[i]);
    if (json_object_size(reading.wish))
        return reading.wish;
    json_decref(reading.wish);
    return NULL;
}
