/* store.h - what outlives a daemon: sessions, attached processes, context costs; in SQLite, by a helper
 * thread. */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "cuda/uuid.h"

struct daemon;
struct process;
struct session;

/* Told in the loop's thread once the change is committed (0), or why it is not. NULL: log it. */
typedef void (*store_done)(void *argument, int result, const char *message);

/* Open or make the state file, count this daemon in `daemon->epoch`, and start the thread. */
int store_open(struct daemon *daemon, struct error *error);

/* Read sessions (each handed to session_restore()), their processes, and context costs. Before the loop runs.
 */
int store_load(struct daemon *daemon, struct error *error);

/* Commit what waits, tell those who wait, end the thread. */
void store_close(struct daemon *daemon);

void store_put_session(struct session *session, store_done done, void *argument);
void store_delete_session(struct daemon *daemon, const char *id, store_done done, void *argument);
void store_put_process(const struct process *process);
void store_delete_process(const struct process *process);
void store_delete_processes(const struct session *session); /* nobody is attached */
void store_put_context_cost(struct daemon *daemon, const uint8_t uuid[static GPU_UUID_BYTES], uint64_t bytes);
