/* dra_claims.h - the kubelet's calls about claims. Preparing a claim makes its session, unpreparing it ends the
 * session. */
#pragma once

#include "kube/grpc/grpc.h"
#include "kube/kubelet.h"

/* Methods (grpc.h) whose context begins with a `struct kubelet *`. */
void dra_claims_prepare(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes);
void dra_claims_unprepare(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes);
