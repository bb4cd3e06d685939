/* settings.h - the configuration in force: read at the start, and again when its files change or on SIGHUP.
 *
 * A file with a mistake changes nothing: what was in force stays, and the mistake is logged and shown by
 * `gpuslice config` until the file is good again. Only at the start, where nothing is in force yet, is a
 * mistake in gpuslice.conf an error. */
#pragma once

#include <jansson.h>

#include "base/error.h"

struct daemon;

/* Read gpuslice.conf in daemon->paths.config_dir, the environment and `idle_exit` (of --idle-exit, or NULL)
 * into daemon->config. */
int settings_load(struct daemon *daemon, const char *idle_exit, struct error *error);

/* Make the declared sessions, and watch the files and SIGHUP, which is blocked. The sessions of the state
 * file are there. */
int settings_start(struct daemon *daemon, struct error *error);
void settings_stop(struct daemon *daemon);

/* The answer to GET /v1/config. */
json_t *settings_json(const struct daemon *daemon);
