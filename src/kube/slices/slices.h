/* slices.h - the device plug-in (v1beta1): equal slices of each GPU, for clusters without DRA.
 *
 * The slices that a container gets together are one session (slice_ids.h), whose CDI specification lists them as
 * devices. The kubelet does not say here whose container it is; the pod-resources interface does, later (pods.h). */
#pragma once

#include "kube/kubelet.h"

int slices_start(struct kubelet *kubelet, struct error *error);
void slices_stop(struct kubelet *kubelet);

/* Look after registration and health; called every second. */
void slices_tick(struct kubelet *kubelet);
