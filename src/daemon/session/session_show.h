/* session_show.h - a session in words and sums, for those who show it. */
#pragma once

#include <stdint.h>

#include "cuda/uuid.h"

struct session;
struct session_gpu;

const char *session_state_name(const struct session *session);
const char *session_gpu_uuid(const struct session_gpu *gpu, char text[static GPU_UUID_TEXT]);

/* Bytes that its processes charged on GPU `policy_gpu`, by the daemon's own record of who is attached, and
 * together. */
uint64_t session_charged(const struct session *session, unsigned policy_gpu);

/* All that it uses there: the same, the driver line and orphans. */
uint64_t session_used(const struct session *session, unsigned policy_gpu);

/* Requests for memory that its processes were refused. */
uint64_t session_refused(const struct session *session);
