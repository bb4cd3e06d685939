/* dra.h - the DRA driver (kubelet's interface v1): a claim is prepared by making its session, and unprepared by ending it.
 *
 * The kubelet does not say what a claim consumed; the API server does. A session is called after its claim's UID, so preparing
 * again finds it, whoever was restarted in between. */
#pragma once

#include "kube/kubelet.h"

int dra_start(struct kubelet *kubelet, struct error *error);
void dra_stop(struct kubelet *kubelet);

/* Look after sockets and the published slice: called every second. */
void dra_tick(struct kubelet *kubelet);
