/* pods.h - whose containers have which slices, by the kubelet's pod-resources interface: sessions are called after them,
 * narrowed as their pods' annotations say, and ended when they have gone. */
#pragma once

#include "kube/kubelet.h"

/* The slices of this session are about to be given: a list of pods that was asked for before says nothing about it. */
void pods_note_given(struct kubelet *kubelet, const char *session);

/* Look, if it is time: called every second. */
void pods_tick(struct kubelet *kubelet);
void pods_stop(struct kubelet *kubelet);

/* What the annotations of a pod ask of its session, as the body of a PATCH; NULL: nothing. `gpus`, with their
 * uuid and limit_bytes, are the session's, and no limit becomes more. What cannot be read, or cannot be, is left out, and said in `problems` (may be ""). */
#define PODS_PROBLEMS_TEXT 900 /* an event's message has 1024 characters at most */
json_t *pods_wish(const json_t *annotations, const json_t *gpus, char problems[static PODS_PROBLEMS_TEXT]);
