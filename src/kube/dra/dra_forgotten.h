/* dra_forgotten.h - ends sessions of claims that the kubelet has forgotten.
 *
 * A kubelet that has lost its folder, by `kubeadm reset` say, unprepares nothing, while the daemon keeps the sessions
 * of the claims and counts their memory. The records of the claims (dra_claims.h) are in that folder too. */
#pragma once

#include "kube/kubelet.h"

/* Look after them from the start on, until no session lacks its record; called every second. */
void dra_forgotten_tick(struct kubelet *kubelet);
