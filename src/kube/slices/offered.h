/* offered.h - which of the node's slices the kubelet is offered: those that a session has, and of the others as many as
 * the daemon has room for. So what the kubelet gives away fits.
 *
 * A pod that asks for several slices at once gets one session with the sum of their memory. It fits as well, except where
 * slices' memory can leave the card and the sum is more than the card has. */
#pragma once

#include "kube/kubelet.h"

/* In a task: ask the daemon how much room there is. On failure what was offered stays. */
int offered_look(struct kubelet *kubelet, struct error *error);

/* Whether the daemon has been asked. */
bool offered_is_known(void);

bool offered_has(const char *id);

void offered_stop(void);
