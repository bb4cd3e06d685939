#include "kube/slices/lost_containers.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "client/session_fields.h"
#include "kube/node/api_server.h"
#include "kube/slices/slice_ids.h"

/* enough for a container with slices to be listed, and for a new kubelet to learn its pods */
#define GRACE_SECONDS 15

bool lost_containers_may_be_told(const char *path)
{
    static struct stat seen; /* one is enough, as there is one kubelet */
    static uint64_t since_ns;
    struct stat status;
    if (stat(path, &status) < 0)
        return false;
    if (!since_ns || status.st_ino != seen.st_ino || status.st_ctim.tv_sec != seen.st_ctim.tv_sec ||
        status.st_ctim.tv_nsec != seen.st_ctim.tv_nsec) {
        seen = status;
        since_ns = monotonic_ns();
    }
    return monotonic_ns() - since_ns > GRACE_SECONDS * UINT64_C(1000000000);
}

static bool is_young(const json_t *session)
{
    struct tm parts = {0};
    const char *text = session_text(session, "created_at");
    if (!strptime(text, "%Y-%m-%dT%H:%M:%SZ", &parts))
        return false;
    time_t age = time(NULL) - timegm(&parts);
    return age >= 0 && age < GRACE_SECONDS;
}

/* A session with running programs is kept, as their container runs too: init containers do, and the kubelet never
 * lists them. */
static bool may_have_gone(const json_t *session, const json_t *wanted)
{
    const char *name = session_text(session, "name");
    return strncmp(name, SLICES_PREFIX, strlen(SLICES_PREFIX)) == 0 && !json_object_get(wanted, name) &&
           !is_young(session) && json_array_size(json_object_get(session, "processes")) == 0;
}

/* Whether another container has the session's place: that of a pod that was made again under the same name. */
static bool has_follower(const json_t *session, const json_t *wanted)
{
    const char *name;
    json_t *container;
    json_object_foreach((json_t *)wanted, name, container)
    {
        if (strcmp(session_text(session, "namespace"), session_text(container, "namespace")) == 0 &&
            strcmp(session_text(session, "pod"), session_text(container, "pod")) == 0 &&
            strcmp(session_text(session, "container"), session_text(container, "container")) == 0)
            return true;
    }
    return false;
}

int lost_containers_ask_about_pod(struct kubelet *kubelet, const json_t *session)
{
    char path[64 + 2 * 253];
    struct error error;
    json_t *pod = NULL;
    snprintf(path, sizeof(path), "/api/v1/namespaces/%.253s/pods/%.253s", session_text(session, "namespace"),
             session_text(session, "pod"));
    int status = api_request(kubelet, "GET", path, NULL, &pod, &error), result = -1;
    if (status == 404) {
        result = 1;
    } else if (status == 200) {
        const char *node = session_text(json_object_get(pod, "spec"), "nodeName");
        const char *phase = session_text(json_object_get(pod, "status"), "phase");
        result = strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0 ||
                 (kubelet->options.node && *node && strcmp(node, kubelet->options.node) != 0);
    }
    json_decref(pod);
    return result;
}

json_t *lost_containers_find(struct kubelet *kubelet, const json_t *sessions, const json_t *wanted)
{
    json_t *gone = json_object(), *session;
    size_t i;
    bool answers = true;
    json_array_foreach((json_t *)sessions, i, session)
    {
        int has_gone = may_have_gone(session, wanted);
        if (has_gone && kubelet->options.api.url && *session_text(session, "pod") &&
            !has_follower(session, wanted)) {
            has_gone = answers ? lost_containers_ask_about_pod(kubelet, session) : -1;
            answers = has_gone >= 0;
        }
        if (has_gone == 1)
            json_object_set_new(gone, session_text(session, "name"), json_true());
    }
    return gone;
}
