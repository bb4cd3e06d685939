/* start.h - a daemon for the verbs that need one: found, or started on demand. */
#pragma once

#include "base/error.h"
#include "client/client.h"

/* Refuse to go on without an NVIDIA driver when real GPUs are asked for: simulated ones are only ever chosen
 * by hand. */
int start_check_driver(bool simulated, struct error *error);

/* Return when the client's daemon is ready; start it if none is running. Two callers at once both succeed.
 * The daemon keeps nothing of ours: no descriptor, no terminal, no process group, and
 * it is nobody's child. */
int start_daemon(struct client *client, struct error *error);
