/* pods.h - whose containers have which slices, by the kubelet's pod-resources interface: sessions are called after them,
 * narrowed as their pods' annotations say, and ended when they have gone. */
#pragma once

#include "kube/kubelet.h"

/* The slices of this session are about to be given: a list of pods that was asked for before says nothing about it. */
void pods_note_given(struct kubelet *kubelet, const char *session);

/* Look, if it is time: called every second. */
void pods_tick(struct kubelet *kubelet);
void pods_stop(struct kubelet *kubelet);

/* What the annotations of a pod ask of its session, as the body of a PATCH; NULL: nothing. `limit_bytes` is the most that
 * it can have. What cannot be read is left out, and said in `problem` (may be ""). */
json_t *pods_wish(const json_t *annotations, uint64_t limit_bytes, char problem[static 256]);
