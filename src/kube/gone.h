/* gone.h - which sessions of slices have lost their containers.
 *
 * A session that is ended too early costs a container that runs its GPU for good. One that is ended late costs nothing:
 * it ends where its slices are given again. So what the kubelet lists is not enough: one that has just started lists no pods,
 * until the API server has told it its own, and containers run on meanwhile. */
#pragma once

#include "kube/kubelet.h"

/* Whether the kubelet at the socket `path` has been there for a while. */
bool gone_may_be_told(const char *path);

/* In a task: the names of those that have gone, as an object; NULL where the daemon does not answer. `wanted` are sessions
 * of containers that the kubelet lists, by name: {namespace, pod, container}. */
json_t *gone_sessions(struct kubelet *kubelet, const json_t *wanted);
