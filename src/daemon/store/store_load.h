/* store_load.h - reading the state file back. For store.c. Functions return SQLite's results. */
#pragma once

#include <sqlite3.h>

#include "daemon/process/reaper.h"

struct daemon;
struct session;

/* In the column of a session's engine: its limits may be more than the card has. */
#define STORE_PASSES_CARD 256
/* And behind that what becomes of it when memory is short, an enum when_full. */
#define STORE_WHEN_FULL_SHIFT 9
#define STORE_WHEN_FULL_MASK (3 << STORE_WHEN_FULL_SHIFT)

/* In that of whether it is suspended: the driver is still to bring that about. */
#define STORE_CHECKPOINTING 2

/* A session read and not yet restored: restoring writes, and a table is not written while it is read. */
struct loaded_session {
    struct loaded_session *next;
    struct session *session;
    struct recorded_process *processes;
    unsigned process_count;
};

/* All sessions, oldest first, at the end of `*list`; the caller's to free, also those of a failed reading. */
int store_load_sessions(sqlite3 *database, struct loaded_session **list);

/* What contexts cost under this driver, into daemon->gpus. */
int store_load_context_costs(struct daemon *daemon, sqlite3 *database);
