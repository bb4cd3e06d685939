/* slices.h - the device plug-in (v1beta1): equal slices of each GPU, for clusters without DRA.
 *
 * A slice's ID is UUID-slice-N. What a container is given together is one session, which is called after those IDs
 * (slices_session_name()), and which its CDI specification's devices list. The kubelet does not say whose container it is:
 * the pod-resources interface does, later (pods.h). */
#pragma once

#include "kube/kubelet.h"

#define SLICES_PREFIX "slices-" /* of the names of their sessions */
#define SLICES_NAME_TEXT 32
#define SLICES_LOCK "slices" /* who gives, changes or ends these sessions has it (tasks.h) */

int slices_start(struct kubelet *kubelet, struct error *error);
void slices_stop(struct kubelet *kubelet);

/* Look after registration and health: called every second. */
void slices_tick(struct kubelet *kubelet);

/* What the session of these slices is called, in whatever order they come. */
void slices_session_name(const char *const *ids, size_t count, char name[static SLICES_NAME_TEXT]);

/* The file of its CDI specification, without ".json". */
#define SLICES_FILE_TEXT 64
void slices_file_name(const char *session, char file[static SLICES_FILE_TEXT]);
