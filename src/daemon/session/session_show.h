/* session_show.h - a session in words and sums, for answers and logs. */
#pragma once

#include <stdint.h>

#include "cuda/uuid.h"

struct session;
struct session_gpu;

const char *session_state_name(const struct session *session);
const char *session_gpu_uuid(const struct session_gpu *gpu, char text[static GPU_UUID_TEXT]);

/* Bytes that its processes charged on GPU `policy_gpu`, each of its own and jointly; by the daemon's own record of
 * which processes are attached. */
uint64_t session_charged(const struct session *session, unsigned policy_gpu);

/* All that it uses there: the same, plus driver line and orphans. */
uint64_t session_used(const struct session *session, unsigned policy_gpu);

/* How many requests for memory its processes were refused under this daemon. */
uint64_t session_refused(const struct session *session);
