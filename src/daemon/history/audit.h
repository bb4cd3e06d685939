/* audit.h - the audit file: a line of JSON for each session that was allocated, denied or ended, for administrators who keep
 * such files (docs/gslice.md). The daemon only adds to it. */
#pragma once

#include "base/error.h"

struct daemon;

/* Follow the daemon's changes, if config.daemon.audit_file names a file. */
int audit_start(struct daemon *daemon, struct error *error);
void audit_stop(struct daemon *daemon);
