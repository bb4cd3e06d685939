/* drift.h - notices within 100 ms that a card shows more as used than all accounts together, and has a sample taken then, which
 * says whose that is (driver_line.h). Without it, what the driver takes by itself would count with the next sample of every
 * 5 seconds, unless a program happens to send a notice.
 *
 * drift   what a card shows as used, less what all sessions on it are charged; programs outside of sessions are part of it, so
 *         only its growth since the last sample tells anything
 *
 * Nobody looks while no program is attached. */
#pragma once

#include "base/error.h"

struct daemon;

int drift_start(struct daemon *daemon, struct error *error);
void drift_stop(struct daemon *daemon);
