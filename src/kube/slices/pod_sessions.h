/* pod_sessions.h - brings the sessions of slices in line with the containers that have the slices: labels them with
 * their pods, limits them as the pods' annotations say, and ends those whose containers have gone. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "kube/kubelet.h"

/* What the kubelet listed, and what was given since. */
struct pod_list {
    json_t *
        wanted; /* sessions of living containers by name: {namespace, pod, container}; NULL: no complete list */
    json_t
        *given; /* names of sessions whose slices were given after the list was requested; NULL: none were */
    bool is_settled; /* a container that the list lacks may have gone */
};

/* In a task: compare the daemon's sessions with `list`, which must stay. While this waits, names may be added to
 * `given`. */
void pod_sessions_compare(struct kubelet *kubelet, const struct pod_list *list);
