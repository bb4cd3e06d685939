/* admit.h - what people ask of the daemon: a new session, or a change of one.
 *
 * The one way in for the API, for sessions.conf and for the queue: the state of the GPUs is gathered, the
 * request planned (admission.h), and what comes of it is done and published. */
#pragma once

#include "base/error.h"

struct daemon;
struct session;
struct session_request;

/* Fill in what `request` does not say (memory, compute, priority): what [defaults] says, or where the owner's
 * ceiling is lower, the ceiling. */
void admit_apply_defaults(const struct daemon *daemon, struct session_request *request);
/* Before: what is said of the time when memory is short, by the request, for its owner, or for all. */
int admit_choose_when_full(const struct daemon *daemon, struct session_request *request, struct error *error);

/* Make a session, or have it wait in the queue if the request says so. */
int admit_new(struct daemon *daemon, struct session_request *request, struct session **session,
              struct error *error);

/* New limits, share, priority and name, all or none. In force when this returns. */
int admit_change(struct session *session, const struct session_request *request, struct error *error);
