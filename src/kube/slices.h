/* slices.h - the device plug-in (v1beta1): equal slices of each GPU, for clusters without DRA.
 *
 * What a container is given together is one session (slice_ids.h), which its CDI specification's devices list. The kubelet does not say whose container it is:
 * the pod-resources interface does, later (pods.h). */
#pragma once

#include "kube/kubelet.h"

#define SLICES_LOCK "slices" /* who gives, changes or ends these sessions has it (tasks.h) */

int slices_start(struct kubelet *kubelet, struct error *error);
void slices_stop(struct kubelet *kubelet);

/* Look after registration and health: called every second. */
void slices_tick(struct kubelet *kubelet);
