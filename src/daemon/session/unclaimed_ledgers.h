/* unclaimed_ledgers.h - ledgers that no session of the state file has: the file was lost or is an older copy, or the
 * session ended half-way.
 *
 * One that a living process still works in is kept, with all it says: should the state file be put back, its
 * session goes on with it. The others are removed. */
#pragma once

#include "base/error.h"

struct daemon;

/* After the sessions have been loaded. Never fails. */
int unclaimed_ledgers_sort(struct daemon *daemon, struct error *error);
