#include "kube/slices/pods.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "client/cdi.h"
#include "client/session_fields.h"
#include "kube/grpc/messages.h"
#include "kube/node/api_events.h"
#include "kube/node/api_server.h"
#include "kube/node/node.h"
#include "kube/node/notes.h"
#include "kube/node/tasks.h"
#include "kube/slices/lost_containers.h"
#include "kube/slices/pod_annotations.h"
#include "kube/slices/slice_files.h"
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

/* --- Problems -------------------------------------------------------------------------------------- */

/* Tell in the log, and as an event of the pod, where its author will look. */
static void tell_problems(struct kubelet *kubelet, const json_t *pod, const json_t *container,
                          const char *problems)
{
    fprintf(stderr, "gpuslice-kubelet: pod %s/%s: %s\n", session_text(container, "namespace"),
            session_text(container, "pod"), problems);
    api_warn_pod(kubelet, pod, "GpuSliceAnnotations", problems);
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
        fprintf(stderr, "gpuslice-kubelet: cannot read pods' annotations: %s; trying again\n",
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

/* What the daemon refuses is left out, as it would refuse it again: each part of the wish is asked for alone. `said` has
 * the annotation of each. */
static int limit_in_parts(struct kubelet *kubelet, const char *name, const json_t *wish, const json_t *said,
                          char problems[static POD_PROBLEMS_TEXT], struct error *error)
{
    const char *key;
    json_t *value;
    int result = 0;
    json_object_foreach((json_t *)wish, key, value)
    {
        json_t *part = json_pack("{s:O}", key, value);
        result = node_request_session(kubelet, "PATCH", name, "", part, NULL, error);
        json_decref(part);
        if (result == -EREMOTEIO)
            pod_annotations_add_problem(problems, "%s: the daemon on this node refuses it: %.200s",
                                        session_text(said, key), error->message);
        else if (result < 0)
            break;
    }
    return result == -EREMOTEIO ? 0 : result;
}

/* Limit the session as its pod asks, then label it: once all labels are there, the pod is not read again. */
static int limit_session(struct kubelet *kubelet, const json_t *session, const json_t *container,
                         const json_t *pod, char problems[static POD_PROBLEMS_TEXT], struct error *error)
{
    const char *name = session_text(session, "name");
    json_t *said = json_object();
    json_t *wish = pod_annotations_read(json_object_get(json_object_get(pod, "metadata"), "annotations"),
                                        session, said, problems);
    json_t *change = json_copy(wish);
    json_object_update(change, (json_t *)container);
    int result = node_request_session(kubelet, "PATCH", name, "", change, NULL, error);
    if (result == -EREMOTEIO && json_object_size(wish)) {
        result = limit_in_parts(kubelet, name, wish, said, problems, error);
        if (result == 0)
            result = node_request_session(kubelet, "PATCH", name, "", container, NULL, error);
    }
    json_decref(change);
    json_decref(wish);
    json_decref(said);
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
    char file[SLICES_FILE_TEXT], problems[POD_PROBLEMS_TEXT] = "";
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
            fprintf(stderr, "gpuslice-kubelet: session %s ended: its container does not exist any more\n",
                    name);
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

/* Of whatever resource: it may have been renamed since the container was made. What is not ours has no session. */
static void note_devices(const Kubelet__Pod *pod, const Kubelet__PodContainer *container,
                         const char *resource)
{
    size_t count = 0;
    const char **ids = NULL;
    char name[SLICES_NAME_TEXT];
    for (size_t i = 0; i < container->n_devices; i++) {
        const Kubelet__PodDevices *devices = container->devices[i];
        if (strcmp(devices->resource_name, resource) != 0)
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

static bool is_first_of(const Kubelet__PodContainer *container, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (strcmp(container->devices[i]->resource_name, container->devices[at]->resource_name) == 0)
            return false;
    return true;
}

static void note_container(const Kubelet__Pod *pod, const Kubelet__PodContainer *container)
{
    for (size_t i = 0; i < container->n_devices; i++)
        if (is_first_of(container, i))
            note_devices(pod, container, container->devices[i]->resource_name);
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

/* Containers keep their slices where the mode is another one now. */
static bool may_have_containers(struct kubelet *kubelet)
{
    bool are_left = !kubelet->slices && slice_files_are_left(kubelet->options.cdi_dir);
    notes_set(
        kubelet, "slices",
        are_left
            ? "containers still have slices of the device plug-in, which this mode does not offer; their "
              "sessions end with them"
            : NULL);
    return kubelet->slices || are_left;
}

void pods_tick(struct kubelet *kubelet)
{
    char path[PATH_MAX];
    uint64_t now = monotonic_ns();
    if (!kubelet->is_daemon_known || pods.request || pods.is_comparing ||
        (now > pods.soon_ns && now - pods.looked_ns < LOOK_NS) || !may_have_containers(kubelet) ||
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
