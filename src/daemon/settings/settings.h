/* settings.h - the configuration in force: read at the start, and again when its files change or on SIGHUP.
 *
 * A file with a mistake changes nothing: the old configuration stays in force, and the mistake is logged and shown by
 * `gpuslice config` until the file is good again. Only at the start, where nothing is in force yet, is a mistake in
 * gpuslice.conf an error. */
#pragma once

#include "base/error.h"

struct daemon;

/* Read gpuslice.conf in daemon->paths.config_dir, the environment and `idle_exit` (the value of --idle-exit, or
 * NULL) into daemon->config. */
int settings_load(struct daemon *daemon, const char *idle_exit, struct error *error);

/* Watch the files and SIGHUP, which must be blocked. CHANGE_SETTINGS_READ is published after each reading, even
 * of a file with a mistake: observers of it read sessions.conf themselves. */
int settings_start(struct daemon *daemon, struct error *error);
void settings_stop(struct daemon *daemon);

/* Why gpuslice.conf is not in force; NULL: it is in force. */
const char *settings_problem(const struct daemon *daemon);
