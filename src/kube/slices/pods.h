/* pods.h - asks the kubelet which pods' containers have which slices, by its pod-resources interface
 * (pod_sessions.h: what follows for the sessions). */
#pragma once

#include "kube/kubelet.h"

/* The slices of this session are about to be given, so a list of pods that was requested earlier says nothing about
 * it. */
void pods_note_given(struct kubelet *kubelet, const char *session);

/* Ask the kubelet for its pods, if it is time; called every second. */
void pods_tick(struct kubelet *kubelet);
void pods_stop(struct kubelet *kubelet);
