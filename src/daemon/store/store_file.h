/* store_file.h - the state file itself: its layout, and what is done about one that cannot be used. For
 * store.c.
 *
 * damaged   it cannot be read whole, lacks a table or column, or is another program's
 * aside     where `--fresh` puts a file that cannot be used: it is renamed to state.db.damaged-TIME, and never
 *           deleted */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/paths.h"

/* Open the state file, or make it, and bring its layout up to date. One that is damaged or of a newer layout
 * that we cannot use is refused and left as it is, with what to do in the message; if `fresh`, it is put
 * aside instead (said in the log) and a new one made. */
int store_file_open(const struct paths *paths, bool fresh, sqlite3 **database, struct error *error);

/* Count this daemon: an epoch that no daemon of this file, or of an older copy of it, had before. What ends
 * with a reboot is forgotten. */
int store_file_begin_epoch(sqlite3 *database, const struct paths *paths, uint64_t *epoch,
                           struct error *error);

/* What SQLite said last. */
int store_file_error(struct error *error, sqlite3 *database, const struct paths *paths);
