/* claim.h - reads a ResourceClaim that the scheduler has allocated, for this node's part of it. Sends no requests. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/error.h"

/* The name of a GPU as a device: its UUID in lower case. The caller frees it. */
char *claim_device_name(const char *uuid);

/* Sets `*body` to a POST for the session that `claim` asks for, and `*devices` to its devices: an array of
 * {request, pool, device, uuid, share_id}. A claim with admin access, which looks at GPUs and takes nothing of
 * them, needs no session: then the body is NULL. `gpus` are this node's. Fails if the claim has another UID than
 * `uid`, is not allocated, or asks for something impossible. The caller drops both. */
int claim_read(const json_t *claim, const char *uid, const json_t *gpus, json_t **body, json_t **devices,
               struct error *error);
