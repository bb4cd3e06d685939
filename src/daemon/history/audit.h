/* audit.h - the audit file: a line of JSON for each session that was allocated, denied or ended, for administrators who keep
 * such files (docs/gslice.md). The daemon only adds to it, in a helper thread.
 *
 * A user causes at most 1,000 lines at once, and one a second: further ones are counted, and a line of `left-out` tells how
 * many there were. */
#pragma once

#include "base/error.h"

struct daemon;

/* Follow the daemon's changes, if config.daemon.audit_file names a file. */
int audit_start(struct daemon *daemon, struct error *error);
void audit_stop(struct daemon *daemon);
