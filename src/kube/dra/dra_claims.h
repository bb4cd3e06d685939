/* dra_claims.h - the kubelet's calls about claims. Preparing a claim makes its session, unpreparing it ends the
 * session. */
#pragma once

#include "kube/grpc/grpc.h"
#include "kube/kubelet.h"

/* Below the kubelet's folder: what must survive a reboot, one file for each claim. */
#define DRA_CLAIMS_FOLDER "plugins/gpu.gpuslice.io/claims"

/* The name of the file with a claim's CDI specification, without ".json". */
#define DRA_CLAIMS_FILE_TEXT 80
void dra_claims_file_name(const char *uid, char file[static DRA_CLAIMS_FILE_TEXT]);

/* Whether the claim has its file in that folder, from before its session was made until after that has ended. */
bool dra_claims_is_known(const struct kubelet *kubelet, const char *uid);

/* Methods (grpc.h) whose context begins with a `struct kubelet *`. */
void dra_claims_prepare(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes);
void dra_claims_unprepare(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes);
