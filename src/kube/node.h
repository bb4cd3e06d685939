/* node.h - what the plug-in asks of this node's daemon. */
#pragma once

#include "kube/kubelet.h"

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

/* End the session and its programs; none is no error. */
int node_end_session(struct kubelet *kubelet, const char *name, const char *file, struct error *error);
