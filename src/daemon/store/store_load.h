/* store_load.h - reads the state file back. For store.c. The functions return SQLite's results. */
#pragma once

#include <sqlite3.h>

#include "daemon/process/reaper.h"

struct daemon;
struct session;

/* A session that was read and is not restored yet: restoring writes, and a table must not be written while it is read. */
struct loaded_session {
    struct loaded_session *next;
    struct session *session;
    struct recorded_process *processes;
    unsigned process_count;
};

/* Read all sessions, oldest first, to the end of `*list`. The caller frees them, also when reading fails. */
int store_load_sessions(sqlite3 *database, struct loaded_session **list);

/* Read what contexts cost under this driver into daemon->gpus. */
int store_load_context_costs(struct daemon *daemon, sqlite3 *database);
