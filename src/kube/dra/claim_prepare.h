/* claim_prepare.h - makes a claim's session and ends it. */
#pragma once

#include "kube/dra/claims_answer.h"
#include "kube/kubelet.h"

/* The name of the file with a claim's CDI specification, without ".json". */
#define CLAIM_FILE_TEXT 80
void claim_file_name(const char *uid, char file[static CLAIM_FILE_TEXT]);

/* Whether namespace, name and UID are such as Kubernetes makes, because they become parts of paths. */
int claim_check(const Kubelet__Claim *claim, struct error *error);

/* In a task, under the claim's lock, for a claim that claim_check() took: make the claim's session, unless it has one,
 * and set the outcome's devices; or end the session. 0 or a negative errno, with the outcome's error set. */
int claim_prepare(struct kubelet *kubelet, const Kubelet__Claim *claim, struct claim_outcome *outcome);
int claim_unprepare(struct kubelet *kubelet, const Kubelet__Claim *claim, struct claim_outcome *outcome);
