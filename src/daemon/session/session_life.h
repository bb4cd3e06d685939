/* session_life.h - a session's life: its making, its ledger, and its end.
 *
 * queued    it waits for room, has no ledger, and no process gets in
 * active    processes may attach
 * expired   no new process and no new memory; it ends with its last process
 *
 * A session ends at once when somebody ends it, and at the end of the loop's round when nothing is left that
 * it was made for. Whoever still holds it in that round finds `has_ended` set. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct admission;
struct allotment;
struct daemon;
struct session;
struct session_request;

/* Make a session of what was admitted. Nobody is told yet. */
int session_make(struct daemon *daemon, struct session_request *request, const struct admission *admission,
                 struct session **session, struct error *error);

/* Have its GPUs, limits, share and priority be these. */
void session_take_allotment(struct session *session, const struct allotment *allotment);

/* There is room for a queued session: make it active. On failure it is for the caller to end. */
int session_activate(struct session *session, struct error *error);

/* Give an admitted session a socket of its own, unless it has one. */
int session_give_socket(struct session *session, struct error *error);

/* Its time runs from now on, for `ttl_seconds`; 0: without end. */
int session_restart_expiry(struct session *session, uint64_t ttl_seconds, struct error *error);

/* Take no new process and give no new memory; the end comes with the last process, or now. `session` is not
 * queued. */
void session_expire(struct session *session, const char *why);
/* Take back that a declared session expired. */
void session_revive(struct session *session);

/* Take over a session that an earlier daemon left in the state file: `session` is filled but for its ledger,
 * which is opened where there is one. It is the daemon's from then on, also on failure of the ledger (then
 * broken). */
int session_restore(struct daemon *daemon, struct session *session, struct error *error);

/* attach.sock is served: let the programs in restored sessions see that there is another daemon. Not before:
 * a program that comes and finds nobody goes on under its old limits, and comes again a second later. */
void session_announce_all(struct daemon *daemon);

/* A process is about to attach: make the ledger, unless it is open. */
int session_open_ledger(struct session *session, struct error *error);
/* A restored ledger in which nobody is left is not kept: one of thousands of sessions that rest costs
 * nothing. */
void session_drop_idle_ledger(struct session *session);

/* The end: forget its processes, remove its files. `why` is for those who read events;
 * NULL: it never began. */
void session_end(struct session *session, const char *why);

/* When the loop's round is over, end it if it is to end by itself and nobody is left: its processes were
 * ended, it has expired, or the process that it was made for has gone. */
void session_end_when_over(struct session *session);
void session_free_all(struct daemon *daemon); /* at exit: files and records stay */

/* Look whether its ledger has been found damaged since, and if so, close it to new memory and say so. */
bool session_is_broken(struct session *session);

/* The damaged ledger of file name `name` in the ledgers' folder. */
void session_check_ledger_file(struct daemon *daemon, const char *name);
