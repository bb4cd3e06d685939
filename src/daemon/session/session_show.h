/* session_show.h - a session in words and sums, for answers and logs. */
#pragma once

#include <stdint.h>

#include "base/engine.h"
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

/* Why no memory of the session could leave its GPUs by that engine (gpu_why_stays()): "GPU 0: it shares ...". NULL: it
 * could. Returns `text`. */
#define SESSION_STAYS_TEXT 256
const char *session_why_stays(const struct session *session, enum ledger_engine engine,
                              char text[static SESSION_STAYS_TEXT]);
/* The same for answers: by the engine that the session has, or should have had by the defaults. */
const char *session_shown_stays(const struct session *session, char text[static SESSION_STAYS_TEXT]);

/* How many requests for memory its processes were refused under this daemon. */
uint64_t session_refused(const struct session *session);
