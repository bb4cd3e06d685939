/* heartbeat.h - shows agents that the daemon is alive, since a process whose gate is closed waits for it.
 *
 * When the daemon dies, its connections end, which opens the gates. When it hangs, they do not end. So the daemon
 * counts in each session's policy region, and an agent that waits opens its gate when the count has stood still for
 * about two seconds. */
#pragma once

#include "base/error.h"

struct daemon;

int heartbeat_start(struct daemon *daemon, struct error *error);
void heartbeat_stop(struct daemon *daemon);
