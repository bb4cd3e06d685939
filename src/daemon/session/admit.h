/* admit.h - what users ask of the daemon: a new session, or a change of one.
 *
 * The one way in for the API, for sessions.conf and for the queue: it gathers the state of the GPUs, plans the request
 * (admission.h), then does what was planned and publishes it. */
#pragma once

#include "base/error.h"

struct daemon;
struct session;
struct session_request;

/* Fill in what `request` leaves out (memory, compute, priority, and so on) from [defaults]; where the owner's ceiling
 * is lower, from the ceiling. */
void admit_apply_defaults(const struct daemon *daemon, struct session_request *request);
/* Call before admit_apply_defaults(): settle what happens when memory is short, by what the request says, else the
 * owner's section, else [defaults]. -EINVAL with ERR_BAD_REQUEST when the request contradicts itself. */
int admit_choose_when_full(const struct daemon *daemon, struct session_request *request, struct error *error);

/* Make a session; or queue it, when there is no room and the request asks to wait. */
int admit_new(struct daemon *daemon, struct session_request *request, struct session **session,
              struct error *error);

/* How many sessions like `request` would have room now on the GPUs, made one after the other: `most` at most. Where that is
 * fewer, `*why` tells why one more would be refused; else its status is 0. Users' ceilings do not count. */
unsigned admit_count(struct daemon *daemon, struct session_request *request, unsigned most,
                     struct error *why);

/* Change limits, share, priority, name and the rest: all or none. The change is in force when this returns. */
int admit_change(struct session *session, const struct session_request *request, struct error *error);
