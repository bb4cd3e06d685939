/* session_life.h - a session's life: how it is made, and its end.
 *
 * queued    it waits for room, has no ledger, and no process gets in
 * active    processes may attach
 * expired   no new process and no new memory; it ends with its last process
 *
 * session_end() ends a session at once. A session also ends by itself, at the end of the loop's round, when nothing is
 * left that it was made for. A function that still holds it in that round finds `has_ended` set. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct admission;
struct allotment;
struct daemon;
struct session;
struct session_request;

/* Make a session from what was admitted. Publishes nothing yet. */
int session_make(struct daemon *daemon, struct session_request *request, const struct admission *admission,
                 struct session **session, struct error *error);

/* Set its GPUs, limits, share and priority. */
void session_take_allotment(struct session *session, const struct allotment *allotment);

/* There is room for a queued session: make it active. On failure the caller has to end it. */
int session_activate(struct session *session, struct error *error);

/* Make a socket of its own for an admitted session, unless it has one. */
int session_give_socket(struct session *session, struct error *error);

/* Its time starts again now, for `ttl_seconds`; 0: without end. */
int session_restart_expiry(struct session *session, uint64_t ttl_seconds, struct error *error);

/* Take no new process and give no new memory. The session ends with its last process; at the end of this round if it
 * has none. It must not be queued. */
void session_expire(struct session *session, const char *why);
/* Whether the session is over as its section of sessions.conf was removed, and not its time. */
bool session_is_removed(const struct session *session);
/* A declared session that expired is declared again: make it active. */
void session_revive(struct session *session);

/* Take over a session that an earlier daemon left in the state file: `session` is filled but for its ledger, which is
 * opened if there is one. The daemon owns it from then on, even if opening the ledger fails (the ledger is then
 * broken). */
int session_restore(struct daemon *daemon, struct session *session, struct error *error);

/* End it: forget its processes, remove its files. `why` is for readers of events; NULL: the session never began. */
void session_end(struct session *session, const char *why);

/* When the loop's round is over, end the session if it has no process left and should end by itself: its processes were
 * ended, it has expired, or the process that it was made for has gone. */
void session_end_when_over(struct session *session);
void session_free_all(struct daemon *daemon); /* at exit: files and records stay */
