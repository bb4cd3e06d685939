#include "kube/slices/pod_sessions.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/cdi.h"
#include "client/session_fields.h"
#include "kube/node/api_events.h"
#include "kube/node/api_server.h"
#include "kube/node/node.h"
#include "kube/node/tasks.h"
#include "kube/slices/lost_containers.h"
#include "kube/slices/pod_annotations.h"
#include "kube/slices/slice_ids.h"

/* Tell in the log, and as an event of the pod, where its author will look. */
static void tell_problems(struct kubelet *kubelet, const json_t *pod, const json_t *container,
                          const char *problems)
{
    fprintf(stderr, "gpuslice-kubelet: pod %s/%s: %s\n", session_text(container, "namespace"),
            session_text(container, "pod"), problems);
    api_warn_pod(kubelet, pod, "GpuSliceAnnotations", problems);
}

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
    static bool is_told;
    if (error && !is_told)
        fprintf(stderr, "gpuslice-kubelet: cannot read pods' annotations: %s; trying again\n",
                error->message);
    is_told = error;
}

/* The pods of the sessions that lack a label, by the session's name. A pod that cannot be read is asked for at the
 * next comparison. So are the others if the server does not answer, as each of them would take as long. */
static json_t *read_pods(struct kubelet *kubelet, const json_t *sessions, const json_t *wanted)
{
    json_t *found = json_object(), *session, *pod;
    size_t i;
    json_array_foreach((json_t *)sessions, i, session)
    {
        const char *name = session_text(session, "name");
        const json_t *container = json_object_get(wanted, name);
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
    const struct pod_list *list;
    json_t *gone;     /* as lost_containers_find() says; NULL: not known */
    json_t *found;    /* pods that were read */
    json_t *problems; /* what to tell their authors */
};

static void compare_session(struct kubelet *kubelet, const json_t *session,
                            const struct comparison *comparison)
{
    const char *name = session_text(session, "name");
    const json_t *container = json_object_get(comparison->list->wanted, name),
                 *pod = json_object_get(comparison->found, name);
    struct error error;
    char file[SLICES_FILE_TEXT], problems[POD_PROBLEMS_TEXT] = "";
    int result = 0;
    if (json_object_get(comparison->list->given, name) ||
        strncmp(name, SLICES_PREFIX, strlen(SLICES_PREFIX)) != 0)
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
static void remove_stale_specifications(const struct kubelet *kubelet, const json_t *sessions,
                                        const json_t *wanted)
{
    cleanup_dir DIR *folder = opendir(kubelet->options.cdi_dir);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char session[SLICES_NAME_TEXT], file[SLICES_FILE_TEXT];
        struct error error;
        if (!slices_session_of(entry->d_name, session) || has_session(sessions, session) ||
            json_object_get(wanted, session))
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
    remove_stale_specifications(kubelet, sessions, comparison->list->wanted);
    json_decref(sessions);
}

/* Slices can be given while the API server is asked, but not while sessions are changed and ended. */
void pod_sessions_compare(struct kubelet *kubelet, const struct pod_list *list)
{
    struct comparison comparison = {.list = list, .problems = json_object()};
    json_t *sessions = NULL, *text;
    const char *name;
    struct task_lock lock;
    if (node_request(kubelet, "GET", "/v1/sessions", NULL, &sessions, NULL) == 0) {
        comparison.gone = list->is_settled ? lost_containers_find(kubelet, sessions, list->wanted) : NULL;
        comparison.found = read_pods(kubelet, sessions, list->wanted);
        task_lock(&lock, SLICES_LOCK);
        compare_all(kubelet, &comparison);
        task_unlock(&lock);
    }
    json_object_foreach(comparison.problems, name, text)
        tell_problems(kubelet, json_object_get(comparison.found, name), json_object_get(list->wanted, name),
                      json_string_value(text));
    json_decref(sessions);
    json_decref(comparison.gone);
    json_decref(comparison.found);
    json_decref(comparison.problems);
}
