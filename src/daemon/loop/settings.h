/* settings.h - the configuration in force: read at the start, and again when its files change or on SIGHUP.
 *
 * A file with a mistake changes nothing: what was in force stays, and the mistake is logged and shown by
 * `gpuslice config` until the file is good again. Only at the start, where nothing is in force yet, is a
 * mistake in gpuslice.conf an error. */
#pragma once

#include "base/error.h"

struct daemon;

/* Read gpuslice.conf in daemon->paths.config_dir, the environment and `idle_exit` (of --idle-exit, or NULL)
 * into daemon->config. */
int settings_load(struct daemon *daemon, const char *idle_exit, struct error *error);

/* Watch the files and SIGHUP, which is blocked. CHANGE_SETTINGS_READ is published after each reading, also of
 * a file with a mistake: sessions.conf is read by those who follow it. */
int settings_start(struct daemon *daemon, struct error *error);
void settings_stop(struct daemon *daemon);

/* Why gpuslice.conf is not in force; NULL: it is. */
const char *settings_problem(const struct daemon *daemon);
