/* node.h - requests of the plug-in to this node's daemon. All of them are for tasks. */
#pragma once

#include "kube/kubelet.h"

/* Send `method` `path` of docs/api.md with `body` (NULL for none; not consumed). Sets `*answer` (may be NULL) and
 * fails as client_request() does. */
int node_request(const struct kubelet *kubelet, const char *method, const char *path, const json_t *body,
                 json_t **answer, struct error *error);
/* The same on /v1/sessions/SESSION`behind`. */
int node_request_session(const struct kubelet *kubelet, const char *method, const char *session,
                         const char *behind, const json_t *body, json_t **answer, struct error *error);

/* Ask the daemon for the GPUs. If it does not answer, its last answer stays for a while; after that every GPU is
 * unhealthy. */
int node_look(struct kubelet *kubelet, struct error *error);

/* Make the session that `body` (consumed) describes, and write its CDI specification KIND=NAMES into the file
 * `file`. If a session of the same name exists, `replace` says whether to end it first or to use it. Sets
 * `*session` and `*parts`, which the caller drops. */
struct node_wish {
    json_t *body;
    bool replace;
    const char *kind, *file;
    const char *const *names;
    unsigned name_count;
};
int node_make_session(struct kubelet *kubelet, const struct node_wish *wish, json_t **session, json_t **parts,
                      struct error *error);

/* Write a CDI specification with the driver alone, for programs that only look at these GPUs (an object with `uuid`
 * each). */
int node_show_gpus(const struct kubelet *kubelet, const struct node_wish *wish, const json_t *gpus,
                   struct error *error);

/* End the session and its programs. It is not an error if it does not exist. */
int node_end_session(struct kubelet *kubelet, const char *name, const char *file, struct error *error);
