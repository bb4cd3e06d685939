/* resource_slices.h - what the cluster's scheduler learns about this node's GPUs: one ResourceSlice
 * (resource.k8s.io/v1). */
#pragma once

#include "kube/kubelet.h"

/* The devices of these GPUs in a ResourceSlice; unhealthy GPUs are left out. The caller drops the result. */
json_t *resource_slices_devices(const json_t *gpus);

/* Keep exactly one slice for this node and driver on the API server, or none without a GPU, and follow changes that
 * others make. Called every second once the kubelet has registered the driver. */
void resource_slices_tick(struct kubelet *kubelet);
