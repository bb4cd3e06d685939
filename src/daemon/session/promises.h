/* promises.h - what has been promised to sessions on each GPU, and what is held there outside of sessions. */
#pragma once

#include <stdint.h>

#include "daemon/session/admission.h"

struct daemon;
struct session;
struct session_request;

/* The state of all GPUs for admission_plan(), without the sessions that wait. What `except` has (NULL: none)
 * does not count. */
void promises_gather(const struct daemon *daemon, const struct session *except,
                     struct admission_state *state);
/* The same as if nobody had sessions, or held anything outside of them; and then what one of them has as well. */
void promises_gather_none(const struct daemon *daemon, struct admission_state *state);
void promises_add(const struct session *session, struct admission_state *state);
/* And the ceilings that hold for `owner` beside what his sessions but `except` have. */
void promises_gather_ceilings(const struct daemon *daemon, uid_t owner, const struct session *except,
                              struct ceilings *ceilings, struct admission_state *state);

/* What `session` has. */
void promises_to(const struct session *session, struct allotment *allotment);

/* Memory reserved on a GPU: of sessions whose memory can leave the card for each other, the largest's alone. */
uint64_t promises_reserved_bytes(const struct daemon *daemon, unsigned gpu);
/* What processes in no session of ours hold on a GPU, as NVML last showed it: programs outside of sessions, and
 * other daemons'. Admission leaves it to them. */
uint64_t promises_outside_bytes(const struct daemon *daemon, unsigned gpu);
