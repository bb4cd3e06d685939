#include "kube/slices/pods.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/priority.h"
#include "client/cdi.h"
#include "client/session_fields.h"
#include "kube/grpc/messages.h"
#include "kube/node/api_server.h"
#include "kube/node/node.h"
#include "kube/node/tasks.h"
#include "kube/slices/lost_containers.h"
#include "kube/slices/slice_ids.h"

#define LOOK_NS (UINT64_C(10) * 1000000000) /* between two requests */
#define SOON_NS (UINT64_C(30) * 1000000000) /* for so long after slices were given, every second */
#define TIMEOUT_USEC UINT64_C(5000000)

/* The state of the requests; static, as there is one kubelet. */
static struct {
    struct kubelet *kubelet;
    struct grpc_request *request;
    bool is_comparing; /* a task is comparing */
    bool is_settled;   /* a container that the list lacks may have gone */
    bool is_failure_told;
    /* names of sessions whose slices were given after the list was requested */
    json_t *given;
    uint64_t looked_ns, soon_ns;
    /* sessions of living containers by name: {namespace, pod, container}; NULL: no complete list */
    json_t *wanted;
} pods;

/* --- Annotations ----------------------------------------------------------------------------------- */

/* What annotations say goes to a log and to people's terminals, and half a character is no JSON. */
static void keep_printable(char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

/* Add a problem to the text; what does not fit is left out. */
__attribute__((format(printf, 2, 3))) static void add_problem(char problems[static PODS_PROBLEMS_TEXT],
                                                              const char *format, ...)
{
    size_t length = strlen(problems);
    va_list arguments;
    if (length && length + 2 < PODS_PROBLEMS_TEXT)
        length += (size_t)sprintf(problems + length, "; ");
    va_start(arguments, format);
    vsnprintf(problems + length, PODS_PROBLEMS_TEXT - length, format, arguments);
    va_end(arguments);
    keep_printable(problems + length);
}

/* Annotations that can be read are added to `wish`, others to `problems`. */
struct reading {
    json_t *wish;
    const json_t *session;
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
        add_problem(reading->problems, "%s: %.200s", annotation, error.message);
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
        add_problem(reading->problems, "%s: %.200s", annotation, error.message);
        return;
    }
    uint32_t min = part_of(reading, "compute_min_ratio"), max = part_of(reading, "compute_max_ratio");
    share.min = share.min < min ? share.min : min;
    share.max = share.max < max ? share.max : max;
    json_object_set_new(reading->wish, "compute", json_string(units_format_share(share, formatted)));
}

/* At most what the administrator's default gives. */
static void set_host_memory(const struct reading *reading, const char *annotation, const char *text)
{
    uint64_t bytes, limit = session_number(reading->session, "host_memory_limit_bytes");
    struct error error;
    if (units_parse_bytes(text, &bytes, &error) < 0)
        add_problem(reading->problems, "%s: %.200s", annotation, error.message);
    else if (bytes > INT64_MAX)
        add_problem(reading->problems, "%s: no machine has %.64s", annotation, text);
    else
        json_object_set_new(reading->wish, "host_memory_bytes",
                            json_integer((json_int_t)(limit && bytes > limit ? limit : bytes)));
}

static void set_idle_suspend(const struct reading *reading, const char *annotation, const char *text)
{
    uint64_t usec;
    struct error error;
    if (units_parse_duration(text, &usec, &error) < 0)
        add_problem(reading->problems, "%s: %.200s", annotation, error.message);
    else
        json_object_set_new(reading->wish, "idle_suspend_seconds",
                            json_integer(usec < 1000000 ? 1 : (json_int_t)(usec / 1000000)));
}

/* Any user of a namespace writes annotations: a priority above that of others is not for pods to give themselves. */
static void set_priority(const struct reading *reading, const char *annotation, const char *text)
{
    enum session_priority priority, has = PRIORITY_NORMAL;
    bool is_priority = session_priority_parse(strcmp(text, "medium") == 0 ? "normal" : text, &priority);
    session_priority_parse(session_text(reading->session, "priority"), &has);
    if (!is_priority)
        add_problem(reading->problems, "%s: '%.40s' is not a priority; expected low or normal", annotation,
                    text);
    else if (priority > PRIORITY_NORMAL)
        add_problem(reading->problems,
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
    add_problem(reading->problems,
                "%s: slices are given before their pod is known; expected gpuslice-kubelet's "
                "--slice-oversubscribe, or a claim by DRA",
                annotation);
}

static void refuse_when_full(const struct reading *reading, const char *annotation, const char *text)
{
    add_problem(
        reading->problems,
        "%s has no effect: a slice's memory is set aside before its pod is known, so it never waits for room",
        annotation);
}

static void refuse_gpu(const struct reading *reading, const char *annotation, const char *text)
{
    add_problem(reading->problems,
                "%s has no effect: the kubelet chooses the GPU of a slice before it says whose it is; use a "
                "claim by DRA with a selector",
                annotation);
}

static void refuse_speed(const struct reading *reading, const char *annotation, const char *text)
{
    add_problem(reading->problems,
                "%s has no effect: a share is a part of the GPU's time here; expected gpuslice.io/compute or "
                "tensor-fusion.ai/compute-percent-limit",
                annotation);
}

/* Our annotations, and the names that other GPU sharing systems have for the same. Later rows win. */
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
    {"gpuslice.io/compute", set_compute},
    {"gpuslice.io/priority", set_priority},
    {"gpuslice.io/oversubscribe", refuse_oversubscribe},
    {"gpuslice.io/when-full", refuse_when_full},
    {"gpuslice.io/host-memory", set_host_memory},
    {"gpuslice.io/idle-suspend", set_idle_suspend},
};

json_t *pods_wish(const json_t *annotations, const json_t *session, char problems[static PODS_PROBLEMS_TEXT])
{
    const struct reading reading = {.wish = json_object(), .session = session, .problems = problems};
    problems[0] = '\0';
    for (size_t i = 0; i < sizeof(annotations_known) / sizeof(annotations_known[0]); i++) {
        const char *name = annotations_known[i].annotation;
        const char *text = json_string_value(json_object_get(annotations, name));
        if (text)
            annotations_known[i].read(&reading, name, text);
    }
    if (json_object_size(reading.wish))
        return reading.wish;
    json_decref(reading.wish);
    return NULL;
}

/* Tell in the log, and as an event of the pod, where its author will look. */
static void tell_problems(struct kubelet *kubelet, const json_t *pod, const json_t *container,
                          const char *problems)
{
    const char *namespace = session_text(container, "namespace"), *name = session_text(container, "pod");
    const json_t *metadata = json_object_get(pod, "metadata");
    char path[320], now[32];
    time_t seconds = time(NULL);
    struct tm utc;
    struct error error;
    json_t *answer = NULL;
    fprintf(stderr, "gpuslice-kubelet: pod %s/%s: %s\n", namespace, name, problems);
    snprintf(path, sizeof(path), "/api/v1/namespaces/%.253s/events", namespace);
    strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
    json_t *event =
        json_pack("{s:s,s:s,s:{s:s,s:s},s:{s:s,s:s,s:s,s:s,s:s},s:s,s:s,s:s,s:{s:s,s:s},s:s,s:s,s:i}",
                  "apiVersion", "v1", "kind", "Event", "metadata", "generateName", "gpuslice-", "namespace",
                  namespace, "involvedObject", "apiVersion", "v1", "kind", "Pod", "namespace", namespace,
                  "name", name, "uid", session_text(metadata, "uid"), "type", "Warning", "reason",
                  "GpuSliceAnnotations", "message", problems, "source", "component", "gpuslice-kubelet",
                  "host", kubelet->options.node ? kubelet->options.node : "", "firstTimestamp", now,
                  "lastTimestamp", now, "count", 1);
    int status = api_request(kubelet, "POST", path, event, &answer, &error);
    if (status > 299)
        status = api_refused(status, path, answer, &error);
    if (status < 0)
        fprintf(stderr, "gpuslice-kubelet: pod %s/%s: no event was made: %s\n", namespace, name,
                error.message);
    json_decref(answer);
    json_decref(event);
}

/* --- Comparing with the daemon ---------------------------------------------------------------------- */

static bool has_labels(const json_t *session, const json_t *labels)
{
    const char *label;
    json_t *value;
    json_object_foreach((json_t *)labels, label, value)
    {
        if (!json_equal(json_object_get(session, label), value))
            return false;
    }
    return true;
}

/* Ask the API server for the container's pod. Sets `*pod`: null if the server does not have it, or if there is no
 * server. */
static int read_pod(struct kubelet *kubelet, const json_t *container, json_t **pod, struct error *error)
{
    char path[512];
    int status = 404;
    *pod = NULL;
    snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s", session_text(container, "namespace"),
             session_text(container, "pod"));
    if (kubelet->options.api.url)
        status = api_request(kubelet, "GET", path, NULL, pod, error);
    if (status >= 0 && status != 200 && status != 404)
        status = api_refused(status, path, *pod, error);
    if (status != 200) {
        json_decref(*pod);
        *pod = json_null();
    }
    return status < 0 ? status : 0;
}

static void note_reading(const struct error *error)
{
    if (error && !pods.is_failure_told)
        fprintf(stderr, "gpuslice-kubelet: pods' annotations are not known: %s; it is tried again\n",
                error->message);
    pods.is_failure_told = error;
}

/* The pods of the sessions that lack a label, by the session's name. A pod that cannot be read is asked for at the
 * next comparison. So are the others if the server does not answer, as each of them would take as long. */
static json_t *read_pods(struct kubelet *kubelet, const json_t *sessions)
{
    json_t *found = json_object(), *session, *pod;
    size_t i;
    json_array_foreach((json_t *)sessions, i, session)
    {
        const char *name = session_text(session, "name");
        const json_t *container = json_object_get(pods.wanted, name);
        struct error error;
        if (!container || has_labels(session, container))
            continue;
        int result = read_pod(kubelet, container, &pod, &error);
        if (result == 0)
            json_object_set_new(found, name, pod);
        if (result != -ECANCELED)
            note_reading(result < 0 ? &error : NULL);
        if (result < 0 && result != -EREMOTEIO)
            break;
    }
    return found;
}

/* Limit the session as its pod asks, and label it, in one request: once all labels are there, the pod is not read
 * again. What the daemon refuses is left out, as it would refuse it again. */
static int limit_session(struct kubelet *kubelet, const json_t *session, const json_t *container,
                         const json_t *pod, char problems[static PODS_PROBLEMS_TEXT], struct error *error)
{
    const char *name = session_text(session, "name");
    json_t *wish =
        pods_wish(json_object_get(json_object_get(pod, "metadata"), "annotations"), session, problems);
    json_t *change = wish ? wish : json_object();
    json_object_update(change, (json_t *)container);
    int result = node_request_session(kubelet, "PATCH", name, "", change, NULL, error);
    if (result == -EREMOTEIO && wish) {
        add_problem(problems, "the node's daemon refuses what they ask for: %.400s", error->message);
        result = node_request_session(kubelet, "PATCH", name, "", container, NULL, error);
    }
    json_decref(change);
    return result;
}

/* The labels that show whose session it is, while its pod cannot be read: the one for the container is missing. */
static int label_unread(struct kubelet *kubelet, const json_t *session, const json_t *container,
                        struct error *error)
{
    json_t *labels = json_copy((json_t *)container);
    json_object_del(labels, "container");
    int result =
        has_labels(session, labels)
            ? 0
            : node_request_session(kubelet, "PATCH", session_text(session, "name"), "", labels, NULL, error);
    json_decref(labels);
    return result;
}

/* What is looked up for a comparison before it begins, and what comes of it; by the session's name. */
struct comparison {
    json_t *gone;     /* as lost_containers_find() says; NULL: not known */
    json_t *found;    /* pods that were read */
    json_t *problems; /* what to tell their authors */
};

static void compare_session(struct kubelet *kubelet, const json_t *session,
                            const struct comparison *comparison)
{
    const char *name = session_text(session, "name");
    const json_t *container = json_object_get(pods.wanted, name),
                 *pod = json_object_get(comparison->found, name);
    struct error error;
    char file[SLICES_FILE_TEXT], problems[PODS_PROBLEMS_TEXT] = "";
    int result = 0;
    if (json_object_get(pods.given, name) || strncmp(name, SLICES_PREFIX, strlen(SLICES_PREFIX)) != 0)
        return;
    if (container && !has_labels(session, container)) {
        result = pod ? limit_session(kubelet, session, container, pod, problems, &error)
                     : label_unread(kubelet, session, container, &error);
        if (result == 0 && problems[0])
            json_object_set_new(comparison->problems, name, json_string(problems));
    } else if (!container && json_object_get(comparison->gone, name)) {
        slices_file_name(name, file);
        result = node_end_session(kubelet, name, file, &error);
        if (result == 0)
            fprintf(stderr, "gpuslice-kubelet: session %s ended: its container has gone\n", name);
    }
    if (result < 0)
        fprintf(stderr, "gpuslice-kubelet: session %s: %s\n", name, error.message);
}

static bool has_session(const json_t *sessions, const char *name)
{
    const json_t *session;
    size_t i;
    json_array_foreach((json_t *)sessions, i, session)
    {
        if (strcmp(session_text(session, "name"), name) == 0)
            return true;
    }
    return false;
}

/* A CDI specification may outlive its session, when somebody else ended the session, or when the daemon or the
 * plug-in was killed while it did. */
static void remove_stale_specifications(const struct kubelet *kubelet, const json_t *sessions)
{
    cleanup_dir DIR *folder = opendir(kubelet->options.cdi_dir);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char session[SLICES_NAME_TEXT], file[SLICES_FILE_TEXT];
        struct error error;
        if (!slices_session_of(entry->d_name, session) || has_session(sessions, session) ||
            json_object_get(pods.wanted, session))
            continue;
        slices_file_name(session, file);
        if (cdi_remove(kubelet->options.cdi_dir, file, &error) < 0)
            fprintf(stderr, "gpuslice-kubelet: %s\n", error.message);
    }
}

/* Under SLICES_LOCK. */
static void compare_all(struct kubelet *kubelet, const struct comparison *comparison)
{
    json_t *sessions, *session;
    size_t i;
    if (node_request(kubelet, "GET", "/v1/sessions", NULL, &sessions, NULL) < 0)
        return;
    json_array_foreach(sessions, i, session) compare_session(kubelet, session, comparison);
    remove_stale_specifications(kubelet, sessions);
    json_decref(sessions);
}

/* Slices can be given while the API server is asked, but not while sessions are changed and ended. */
static void compare(void *context)
{
    struct kubelet *kubelet = context;
    struct comparison comparison = {.problems = json_object()};
    json_t *sessions = NULL, *text;
    const char *name;
    struct task_lock lock;
    if (node_request(kubelet, "GET", "/v1/sessions", NULL, &sessions, NULL) == 0) {
        comparison.gone = pods.is_settled ? lost_containers_find(kubelet, sessions, pods.wanted) : NULL;
        comparison.found = read_pods(kubelet, sessions);
        task_lock(&lock, SLICES_LOCK);
        compare_all(kubelet, &comparison);
        task_unlock(&lock);
    }
    json_object_foreach(comparison.problems, name, text)
        tell_problems(kubelet, json_object_get(comparison.found, name), json_object_get(pods.wanted, name),
                      json_string_value(text));
    json_decref(sessions);
    json_decref(comparison.gone);
    json_decref(comparison.found);
    json_decref(comparison.problems);
    json_decref(pods.wanted);
    pods.wanted = NULL;
    pods.is_comparing = false;
}

/* --- Asking the kubelet ---------------------------------------------------------------------------- */

static void note_container(const Kubelet__Pod *pod, const Kubelet__PodContainer *container)
{
    size_t count = 0;
    const char **ids = NULL;
    char name[SLICES_NAME_TEXT];
    for (size_t i = 0; i < container->n_devices; i++) {
        const Kubelet__PodDevices *devices = container->devices[i];
        if (strcmp(devices->resource_name, pods.kubelet->options.resource) != 0)
            continue;
        const char **more = reallocarray(ids, count + devices->n_device_ids + 1, sizeof(*ids));
        if (!more)
            break;
        ids = more;
        for (size_t j = 0; j < devices->n_device_ids; j++)
            ids[count++] = devices->device_ids[j];
    }
    if (count) {
        slices_session_name(ids, count, name);
        json_object_set_new(pods.wanted, name,
                            json_pack("{s:s,s:s,s:s}", "namespace", pod->namespace_, "pod", pod->name,
                                      "container", container->name));
    }
    free(ids);
}

static void on_list(void *context, const uint8_t *message, size_t bytes)
{
    Kubelet__PodList *list = kubelet__pod_list__unpack(NULL, bytes, message);
    if (!list)
        return;
    json_decref(pods.wanted);
    pods.wanted = json_object();
    for (size_t i = 0; i < list->n_pods; i++)
        for (size_t j = 0; j < list->pods[i]->n_containers; j++)
            note_container(list->pods[i], list->pods[i]->containers[j]);
    kubelet__pod_list__free_unpacked(list, NULL);
}

static void on_end(void *context, enum grpc_status status, const char *text)
{
    pods.request = NULL;
    pods.is_comparing = true;
    if (status == GRPC_OK && pods.wanted && task_start(compare, pods.kubelet))
        return;
    pods.is_comparing = false; /* without a list, nobody knows which containers have gone */
    json_decref(pods.wanted);
    pods.wanted = NULL;
}

static const struct grpc_answer on_answer = {on_list, on_end};

void pods_note_given(struct kubelet *kubelet, const char *session)
{
    if (!pods.given)
        pods.given = json_object();
    json_object_set_new(pods.given, session, json_true());
    pods.soon_ns = monotonic_ns() + SOON_NS;
}

void pods_tick(struct kubelet *kubelet)
{
    char path[PATH_MAX];
    uint64_t now = monotonic_ns();
    if (!kubelet->slices || pods.request || pods.is_comparing ||
        (now > pods.soon_ns && now - pods.looked_ns < LOOK_NS) ||
        kubelet_path(kubelet, path, "pod-resources/kubelet.sock", NULL) < 0)
        return;
    pods.kubelet = kubelet;
    pods.looked_ns = now;
    json_object_clear(pods.given);
    pods.is_settled = lost_containers_may_be_told(path);
    pods.request =
        grpc_ask(kubelet->loop, path, "/v1.PodResourcesLister/List", "", 0, TIMEOUT_USEC, &on_answer, NULL);
}

void pods_stop(struct kubelet *kubelet)
{
    grpc_give_up(pods.request);
    pods.request = NULL;
    json_decref(pods.wanted);
    pods.wanted = NULL;
    json_decref(pods.given);
    pods.given = NULL;
}
