/* dra_claims.h - the kubelet's calls about claims: each is prepared by making its session, and unprepared by ending it. */
#pragma once

#include "kube/grpc.h"
#include "kube/kubelet.h"

/* Below the kubelet's folder: what is known of claims and must outlive the machine's start, a file each. */
#define DRA_CLAIMS_FOLDER "plugins/gpu.gpuslice.io/claims"

/* Methods (grpc.h) whose context begins with a `struct kubelet *`. */
void dra_claims_prepare(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes);
void dra_claims_unprepare(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes);
