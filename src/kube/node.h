/* node.h - what the plug-in asks of this node's daemon. All of it is for tasks. */
#pragma once

#include "kube/kubelet.h"

/* Ask `method` `path` of docs/api.md with `body` (NULL for none; not consumed). Sets `*answer` (may be NULL) as client_request()
 * does, and fails as it does. */
int node_request(const struct kubelet *kubelet, const char *method, const char *path, const json_t *body,
                 json_t **answer, struct error *error);
/* The same on /v1/sessions/SESSION`behind`. */
int node_request_session(const struct kubelet *kubelet, const char *method, const char *session,
                         const char *behind, const json_t *body, json_t **answer, struct error *error);

/* Look at the GPUs. With a daemon that does not answer, the last look stays for a while, and then every GPU is unhealthy. */
int node_look(struct kubelet *kubelet, struct error *error);

/* Make the session that `body` describes (consumed), in place of one of the same name where `replace` says so, and write
 * its CDI specification KIND=NAMES into the file `file`. A session that exists and is not to be replaced is given as it is.
 * Sets `*session` and `*parts`, which the caller drops. */
struct node_wish {
    json_t *body;
    bool replace;
    const char *kind, *file;
    const char *const *names;
    unsigned name_count;
};
int node_make_session(struct kubelet *kubelet, const struct node_wish *wish, json_t **session, json_t **parts,
                      struct error *error);

/* Write a CDI specification of the driver alone, for who looks at these GPUs ({uuid} each). */
int node_show_gpus(const struct kubelet *kubelet, const struct node_wish *wish, const json_t *gpus,
                   struct error *error);

/* End the session and its programs; none is no error. */
int node_end_session(struct kubelet *kubelet, const char *name, const char *file, struct error *error);
