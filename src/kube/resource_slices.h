/* resource_slices.h - what the cluster's scheduler is told of this node's GPUs: one ResourceSlice (resource.k8s.io/v1). */
#pragma once

#include "kube/kubelet.h"

/* The devices of these GPUs, as a ResourceSlice has them; without those that are not healthy. The caller drops it. */
json_t *resource_slices_devices(const json_t *gpus);

/* Make the API server's slices of this node and driver be this one, or none without a GPU, and follow what others do to them:
 * called every second once the kubelet has the driver. */
void resource_slices_tick(struct kubelet *kubelet);
