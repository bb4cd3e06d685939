/* claim.h - reads a ResourceClaim that the scheduler has allocated, for this node's part of it. Sends no requests. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/error.h"

#define CLAIM_DRIVER "gpu.gpuslice.io"
#define CLAIM_CONFIG_VERSION "gpu.gpuslice.io/v1alpha1"
#define CLAIM_CONFIG_KIND "SessionConfig"
#define CLAIM_PREFIX "claim-" /* how the names of their sessions begin; the UID follows */

/* A Kubernetes quantity ("4Gi", "1500M", "25", "2.5e9"), rounded up to a whole number. */
int claim_parse_quantity(const char *text, uint64_t *number, struct error *error);

/* The name of a GPU as a device: its UUID in lower case. The caller frees it. */
char *claim_device_name(const char *uuid);

/* Sets `*body` to a POST for the session that `claim` asks for, and `*devices` to its devices: an array of
 * {request, pool, device, uuid, share_id}. A claim with admin access, which looks at GPUs and takes nothing of
 * them, needs no session: then the body is NULL. `gpus` are this node's. Fails if the claim has another UID than
 * `uid`, is not allocated, or asks for something impossible. The caller drops both. */
int claim_read(const json_t *claim, const char *uid, const json_t *gpus, json_t **body, json_t **devices,
               struct error *error);
