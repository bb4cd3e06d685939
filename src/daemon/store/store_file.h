/* store_file.h - the state file itself: its layout, and what happens to a file that cannot be used. For store.c.
 *
 * damaged   the file cannot be read whole, lacks a table or column, or belongs to another program
 * aside     where `--fresh` puts a file that cannot be used: it is renamed to state.db.damaged-TIME, and never
 *           deleted */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/paths.h"
#include "daemon/loop/daemon.h"

/* Open or make the state file, and bring its layout up to date. A damaged file, or one of a newer layout that we cannot
 * use, is refused and left as it is; the message says what to do. With `fresh` it is put aside instead (which is
 * logged), and a new one made. */
int store_file_open(const struct paths *paths, bool fresh, sqlite3 **database, struct error *error);

/* Count this daemon: an epoch that no daemon of this file, or of an older copy of it, has had. What a reboot ends is
 * forgotten. `*last_end` says how the daemon before it ended. */
int store_file_begin_epoch(sqlite3 *database, const struct paths *paths, uint64_t *epoch,
                           enum daemon_end *last_end, struct error *error);
/* This daemon stops in order. */
void store_file_end_epoch(sqlite3 *database);

/* Set `error` to what SQLite said last. */
int store_file_error(struct error *error, sqlite3 *database, const struct paths *paths);
