/* promises.h - what has been promised to sessions on each GPU, and what processes outside of sessions hold there. */
#pragma once

#include <stdint.h>

#include "daemon/session/admission.h"

struct daemon;
struct session;
struct session_request;

/* Gather the state of all GPUs for admission_plan(). Sessions that wait are left out, and so is what `except` has
 * (NULL: nothing is left out). */
void promises_gather(const struct daemon *daemon, const struct session *except,
                     struct admission_state *state);
/* The same as if there were no sessions, and nobody held anything outside of them. promises_add() then adds what one
 * session has. */
void promises_gather_none(const struct daemon *daemon, struct admission_state *state);
void promises_add(const struct session *session, struct admission_state *state);
/* Gather the ceilings for `owner`, and what the owner's sessions other than `except` have. */
void promises_gather_ceilings(const struct daemon *daemon, uid_t owner, const struct session *except,
                              struct ceilings *ceilings, struct admission_state *state);

/* What `session` has. */
void promises_to(const struct session *session, struct allotment *allotment);

/* Memory reserved on a GPU. Of sessions whose memory can leave the card for each other, only the largest counts, and
 * all their contexts. */
uint64_t promises_reserved_bytes(const struct daemon *daemon, unsigned gpu);
/* What processes in no session of ours hold on a GPU, as NVML last showed it: programs outside of sessions, and other
 * daemons'. Admission leaves it to them. */
uint64_t promises_outside_bytes(const struct daemon *daemon, unsigned gpu);
