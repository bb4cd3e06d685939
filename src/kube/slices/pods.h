/* pods.h - which pods' containers have which slices, by the kubelet's pod-resources interface. Sessions are
 * labelled with their pods, limited as the pods' annotations say, and ended when the containers have gone. */
#pragma once

#include "kube/kubelet.h"

/* The slices of this session are about to be given, so a list of pods that was requested earlier says nothing about
 * it. */
void pods_note_given(struct kubelet *kubelet, const char *session);

/* Ask the kubelet for its pods, if it is time; called every second. */
void pods_tick(struct kubelet *kubelet);
void pods_stop(struct kubelet *kubelet);
