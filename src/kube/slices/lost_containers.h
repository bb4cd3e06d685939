/* lost_containers.h - which sessions have lost their containers.
 *
 * A session that is ended too early costs a running container its GPU for good. One that is ended late costs
 * nothing: it ends when its slices are given again. So the kubelet's list is not enough: a kubelet that has just
 * started lists no pods until the API server has told it about them, while their containers run on. */
#pragma once

#include "kube/kubelet.h"

/* Whether the kubelet at the socket `path` has been running for a while. */
bool lost_containers_may_be_told(const char *path);

/* In a task: the names of those of the daemon's `sessions` whose containers have gone, as an object. `wanted` are
 * the sessions of containers that the kubelet lists, by name: {namespace, pod, container}. */
json_t *lost_containers_find(struct kubelet *kubelet, const json_t *sessions, const json_t *wanted);

/* In a task: ask the API server for the pod that the session is labelled with. 1: it has gone from this node; 0: it has
 * not; negative: unknown. */
int lost_containers_ask_about_pod(struct kubelet *kubelet, const json_t *session);
