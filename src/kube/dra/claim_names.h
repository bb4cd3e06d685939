/* claim_names.h - how many CDI names a claim has been given.
 *
 * Each device of a claim has a CDI name of its own, UID-N, and each name leads to the whole claim. The kubelet takes the
 * names for device IDs and cannot write a pod's status if a name occurs twice. After a restart it asks again and adds the
 * answer to what it has. So a repeated request gets new names, and the old ones stay valid. The number of names is stored
 * beside the kubelet's own records, one file a claim, as CDI's folder is empty after a reboot. */
#pragma once

#include "kube/kubelet.h"

/* Below the kubelet's folder. */
#define CLAIM_NAMES_FOLDER "plugins/gpu.gpuslice.io/claims"

unsigned claim_names_count(const struct kubelet *kubelet, const char *uid);

/* Store the number of names, before anybody learns the names. */
int claim_names_keep(const struct kubelet *kubelet, const char *uid, unsigned count, struct error *error);

/* Whether the claim has its file, which it has from before its session is made until after that has ended. */
bool claim_names_are_kept(const struct kubelet *kubelet, const char *uid);

/* Whether any claim has one. */
bool claim_names_are_left(const struct kubelet *kubelet);

void claim_names_forget(const struct kubelet *kubelet, const char *uid);
