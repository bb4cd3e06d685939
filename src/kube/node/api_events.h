/* api_events.h - events of Kubernetes, where whoever wrote a pod or runs a node looks for a reason. All of them are for
 * tasks. An event that cannot be made is told in the log. */
#pragma once

#include <jansson.h>

#include "kube/kubelet.h"

/* Warn in the events of `pod`, an object of the API server's. */
void api_warn_pod(struct kubelet *kubelet, const json_t *pod, const char *reason, const char *message);

/* Tell in the events of this node; `type` is Normal or Warning. Without an API server, or a node's name, nobody is told. */
void api_tell_node(struct kubelet *kubelet, const char *type, const char *reason, const char *message);
