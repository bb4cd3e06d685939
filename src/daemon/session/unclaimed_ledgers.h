/* unclaimed_ledgers.h - ledgers that belong to no session of the state file: that file was lost or is an older copy, or
 * the session ended half-way.
 *
 * A ledger that a living process still uses is kept unchanged: if the state file is put back, its session goes on with
 * it. The others are removed. */
#pragma once

#include "base/error.h"

struct daemon;

/* Call when the sessions have been loaded. Never fails. */
int unclaimed_ledgers_sort(struct daemon *daemon, struct error *error);
