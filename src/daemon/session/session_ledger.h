/* session_ledger.h - when a session has a ledger (session.h), and what happens if a process damages it. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

struct daemon;
struct session;

/* A process is about to attach: make the ledger, unless it is open. */
int session_ledger_open(struct session *session, struct error *error);
/* Open the ledger that an earlier daemon left, if there is one. */
int session_ledger_restore(struct session *session, struct error *error);
/* Close the ledger; `remove`: tell its processes that it has ended, and remove its file. Nothing if it is not open. */
void session_ledger_close(struct session *session, bool remove);
/* Remove a restored ledger that no process uses, so that a session without programs, of which there may be thousands,
 * costs nothing. */
void session_ledger_drop_idle(struct session *session);

/* Call when attach.sock is served: tell the programs in restored sessions that there is a new daemon. Not before: a
 * program that connects too early goes on under its old limits, and tries again only a second later. */
void session_ledger_announce_all(struct daemon *daemon);

/* Whether its ledger is broken. When that is found for the first time, close the session to new memory and say so. */
bool session_ledger_is_broken(struct session *session);
/* The file `name` in the ledgers' folder was written: check its length and its room. */
void session_ledger_check_file(struct daemon *daemon, const char *name);
