/* start.h - find a daemon for the verbs that need one, or start it on demand. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "client/client.h"

/* 0 if `simulated`, or if this machine has an NVIDIA driver; else -ENODEV. Simulated GPUs are never a fallback: a
 * person chooses them. */
int start_check_driver(bool simulated, struct error *error);

/* Return when the client's daemon is ready; start one if none is running. Gives up after 10 s. Two callers at once
 * both succeed. The daemon keeps nothing of the caller's: no descriptor, no terminal, no process group, and it is
 * nobody's child. */
int start_daemon(struct client *client, struct error *error);

/* The same after a request that got no answer because its daemon died or was restarted: also waits for one that others
 * start. */
int start_reach(struct client *client, struct error *error);
/* Whether a request's result says that. */
bool start_may_help(int result);
