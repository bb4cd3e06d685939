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

/* What a pod's annotations ask of its session, as the body of a PATCH; NULL: nothing. `session` is as
 * the API shows it; neither its limits nor its minimum share grow. What cannot be read or is impossible is left out and described in
 * `problems`, which is "" if there is nothing to say. */
#define PODS_PROBLEMS_TEXT 900 /* an event's message has 1024 characters at most */
json_t *pods_wish(const json_t *annotations, const json_t *session, char problems[static PODS_PROBLEMS_TEXT]);
