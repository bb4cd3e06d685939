/* store.h - what outlives a daemon: sessions, attached processes and context costs. A helper thread keeps them in SQLite.
 *
 * The store follows the core's changes and writes them down in order; change_await() waits for it. A new session that cannot be stored ends. */
#pragma once

#include "base/error.h"

struct daemon;

/* Open or make the state file, count this daemon in `daemon->epoch`, and start the thread. */
int store_open(struct daemon *daemon, struct error *error);

/* Read sessions (each is passed to session_restore()), their processes, and context costs. Call before the loop runs. */
int store_load(struct daemon *daemon, struct error *error);

/* Commit what is left, tell those who wait, and end the thread. */
void store_close(struct daemon *daemon);
