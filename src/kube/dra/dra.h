/* dra.h - the DRA driver (the kubelet's interface v1). Preparing a claim makes its session, unpreparing it ends the
 * session.
 *
 * The kubelet does not say what a claim consumed; the API server does. A session is named after its claim's UID, so
 * that preparing again finds it, whichever program was restarted in between. */
#pragma once

#include "kube/kubelet.h"

int dra_start(struct kubelet *kubelet, struct error *error);
void dra_stop(struct kubelet *kubelet);

/* Look after the sockets and the published slice; called every second. */
void dra_tick(struct kubelet *kubelet);
