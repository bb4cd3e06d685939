#include "kube/node/api_events.h"

#include <stdio.h>
#include <time.h>

#include "client/session_fields.h"
#include "kube/node/api_server.h"

/* `of` names the object that the event is about. */
static void make_event(struct kubelet *kubelet, const char *namespace, const json_t *of, const char *type,
                       const char *reason, const char *message)
{
    char path[320], now[32];
    time_t seconds = time(NULL);
    struct tm utc;
    struct error error;
    json_t *answer = NULL;
    snprintf(path, sizeof(path), "/api/v1/namespaces/%.253s/events", namespace);
    strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
    json_t *event =
        json_pack("{s:s,s:s,s:{s:s,s:s},s:O,s:s,s:s,s:s,s:{s:s,s:s},s:s,s:s,s:i}", "apiVersion", "v1", "kind",
                  "Event", "metadata", "generateName", "gpuslice-", "namespace", namespace, "involvedObject",
                  of, "type", type, "reason", reason, "message", message, "source", "component",
                  "gpuslice-kubelet", "host", kubelet->options.node ? kubelet->options.node : "",
                  "firstTimestamp", now, "lastTimestamp", now, "count", 1);
    int status = api_request(kubelet, "POST", path, event, &answer, &error);
    if (status > 299)
        status = api_refused(status, path, answer, &error);
    if (status < 0)
        fprintf(stderr, "gpuslice-kubelet: no event was made of %s %s: %s\n", session_text(of, "kind"),
                session_text(of, "name"), error.message);
    json_decref(answer);
    json_decref(event);
}

void api_warn_pod(struct kubelet *kubelet, const json_t *pod, const char *reason, const char *message)
{
    const json_t *metadata = json_object_get(pod, "metadata");
    const char *namespace = session_text(metadata, "namespace");
    json_t *of = json_pack("{s:s,s:s,s:s,s:s,s:s}", "apiVersion", "v1", "kind", "Pod", "namespace", namespace,
                           "name", session_text(metadata, "name"), "uid", session_text(metadata, "uid"));
    make_event(kubelet, namespace, of, "Warning", reason, message);
    json_decref(of);
}

void api_tell_node(struct kubelet *kubelet, const char *type, const char *reason, const char *message)
{
    const char *node = kubelet->options.node;
    if (!kubelet->options.api.url || !node || !*node)
        return;
    /* The kubelet gives its own node's name as the UID; kubectl looks for both. */
    json_t *of =
        json_pack("{s:s,s:s,s:s,s:s}", "apiVersion", "v1", "kind", "Node", "name", node, "uid", node);
    make_event(kubelet, "default", of, type, reason, message);
    json_decref(of);
}
