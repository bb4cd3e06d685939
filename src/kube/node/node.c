#include "kube/node/node.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "client/cdi.h"
#include "client/client.h"
#include "client/session_fields.h"

/* A restart of the daemon takes less time. */
#define DAEMON_GRACE_NS (UINT64_C(10) * 1000000000)

#define TIMEOUT_MS 15000
#define LOOK_TIMEOUT_MS 5000   /* the daemon itself waits a second for NVML at most */
#define ANSWER_MAX (64u << 20) /* as in client.c */

static int request_within(const struct kubelet *kubelet, unsigned timeout_ms, const char *method,
                          const char *path, const json_t *body, json_t **answer, struct error *error)
{
    char url[512];
    json_t *said = NULL;
    snprintf(url, sizeof(url), "http://localhost%s", path);
    const struct ask_question question = {.method = method,
                                          .who = "the daemon",
                                          .url = url,
                                          .socket = kubelet->paths.control_socket,
                                          .token = client_token(),
                                          .body = body,
                                          .most_bytes = ANSWER_MAX,
                                          .timeout_ms = timeout_ms};
    int status = ask(kubelet->asker, &question, &said, error);
    int result = status < 0 ? status : 0;
    if (status >= 0 && (status < 200 || status > 299))
        result = client_refused(status, said, error);
    if (result == 0 && answer)
        *answer = json_incref(said);
    json_decref(said);
    return result;
}

int node_request(const struct kubelet *kubelet, const char *method, const char *path, const json_t *body,
                 json_t **answer, struct error *error)
{
    return request_within(kubelet, TIMEOUT_MS, method, path, body, answer, error);
}

int node_request_session(const struct kubelet *kubelet, const char *method, const char *session,
                         const char *behind, const json_t *body, json_t **answer, struct error *error)
{
    char path[256];
    snprintf(path, sizeof(path), "/v1/sessions/%s%s", session, behind);
    return node_request(kubelet, method, path, body, answer, error);
}

static void mark_unhealthy(json_t *gpus)
{
    size_t i;
    json_t *gpu;
    json_array_foreach(gpus, i, gpu) json_object_set_new(gpu, "healthy", json_false());
}

int node_look(struct kubelet *kubelet, struct error *error)
{
    json_t *gpus = NULL;
    uint64_t asked_ns = monotonic_ns();
    int result = request_within(kubelet, LOOK_TIMEOUT_MS, "GET", "/v1/gpus", NULL, &gpus, error);
    if (result == 0 && !json_is_array(gpus)) {
        json_decref(gpus);
        result = error_set(error, EPROTO, NULL,
                           "the daemon's list of GPUs cannot be read; install GPU Slice again");
    }
    if (result < 0) {
        if (!kubelet->daemon_lost_ns)
            kubelet->daemon_lost_ns = asked_ns;
        if (monotonic_ns() - kubelet->daemon_lost_ns > DAEMON_GRACE_NS)
            mark_unhealthy(kubelet->gpus);
        return result;
    }
    kubelet->daemon_lost_ns = 0;
    kubelet->is_daemon_known = true;
    json_decref(kubelet->gpus);
    kubelet->gpus = gpus;
    return 0;
}

static bool has_code(const struct error *error, const char *code)
{
    return error->code && strcmp(error->code, code) == 0;
}

/* A session that exists, with what its programs need. */
static int get_session(struct kubelet *kubelet, const char *name, json_t **session, struct error *error)
{
    json_t *environment = NULL;
    int result = node_request_session(kubelet, "POST", name, "/socket", NULL, session, error);
    if (result == 0)
        result = node_request_session(kubelet, "GET", name, "/environment", NULL, &environment, error);
    if (result == 0)
        json_object_set_new(*session, "environment", environment);
    return result;
}

static int post_session(struct kubelet *kubelet, const struct node_wish *wish, json_t **session,
                        struct error *error)
{
    const char *name = session_text(wish->body, "name");
    struct error why = {0};
    int result = node_request(kubelet, "POST", "/v1/sessions", wish->body, session, &why);
    if (result < 0 && has_code(&why, "ERR_NAME_TAKEN")) {
        if (!wish->replace)
            return get_session(kubelet, name, session, error);
        result = node_end_session(kubelet, name, wish->file, error);
        return result < 0 ? result
                          : node_request(kubelet, "POST", "/v1/sessions", wish->body, session, error);
    }
    if (result < 0)
        *error = why;
    return result;
}

int node_make_session(struct kubelet *kubelet, const struct node_wish *wish, json_t **session, json_t **parts,
                      struct error *error)
{
    const struct kubelet_options *options = &kubelet->options;
    const struct container_host host = {
        .paths = &kubelet->paths, .driver = options->driver, .devices = options->device_dir};
    json_object_set_new(wish->body, "own_socket", json_true());
    int result = post_session(kubelet, wish, session, error);
    json_decref(wish->body);
    if (result == 0)
        result = container_parts(*session, &host, parts, error);
    if (result == 0) {
        json_t *specification = cdi_specification(wish->kind, wish->names, wish->name_count, *parts);
        result = cdi_write(options->cdi_dir, wish->file, specification, error);
        json_decref(specification);
    }
    if (result < 0) {
        json_decref(*session);
        json_decref(*parts);
        *session = *parts = NULL;
    }
    return result;
}

int node_show_gpus(const struct kubelet *kubelet, const struct node_wish *wish, const json_t *gpus,
                   struct error *error)
{
    const struct kubelet_options *options = &kubelet->options;
    const struct container_host host = {
        .paths = &kubelet->paths, .driver = options->driver, .devices = options->device_dir};
    json_t *parts = NULL;
    int result = container_driver_parts(gpus, &host, &parts, error);
    if (result == 0) {
        json_t *specification = cdi_specification(wish->kind, wish->names, wish->name_count, parts);
        result = cdi_write(options->cdi_dir, wish->file, specification, error);
        json_decref(specification);
    }
    json_decref(parts);
    return result;
}

int node_end_session(struct kubelet *kubelet, const char *name, const char *file, struct error *error)
{
    struct error why = {0};
    int result = node_request_session(kubelet, "DELETE", name, "?kill=true", NULL, NULL, &why);
    if (result < 0 && !has_code(&why, "ERR_SESSION_NOT_FOUND")) {
        *error = why;
        return result;
    }
    return cdi_remove(kubelet->options.cdi_dir, file, error);
}
