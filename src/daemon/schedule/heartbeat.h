/* heartbeat.h - agents are shown that the daemon goes on: a process whose gate is closed waits for it.
 *
 * A daemon that dies hangs up, which opens gates. One that hangs does not: so it counts in each session's policy
 * region, and agents that wait open their gates when the count has stood still for about two seconds. */
#pragma once

#include "base/error.h"

struct daemon;

int heartbeat_start(struct daemon *daemon, struct error *error);
void heartbeat_stop(struct daemon *daemon);
