/* store.h - what outlives a daemon: sessions, attached processes, context costs; in SQLite, by a helper
 * thread.
 *
 * It follows the core's changes and writes them down, in their order. A session that is new and cannot be
 * stored ends. */
#pragma once

#include "base/error.h"

struct daemon;

/* Open or make the state file, count this daemon in `daemon->epoch`, and start the thread. */
int store_open(struct daemon *daemon, struct error *error);

/* Read sessions (each handed to session_restore()), their processes, and context costs.
 * Before the loop runs. */
int store_load(struct daemon *daemon, struct error *error);

/* Commit what waits, tell those who wait, end the thread. */
void store_close(struct daemon *daemon);

/* Have `done` called in the loop's thread once the last change of the session is committed (0), or why it is
 * not; at once where none is under way. For one that asks at a time: right after it made the change. */
typedef void (*store_done)(void *argument, int result, const char *message);
void store_await(struct daemon *daemon, const char *session_id, store_done done, void *argument);
