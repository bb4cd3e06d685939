/* store_reserve.h - room on the state file's disk, kept free for the ends of sessions and for starting the daemon.
 *
 * The room is a file beside the state file, STATE_DIR/state.reserve. The daemon removes it when the disk is full and
 * something must be written all the same, and makes it again when there is room. */
#pragma once

#include <stdbool.h>

#include "base/paths.h"

#define STORE_RESERVE_BYTES (512 << 10)

/* Set the room aside, unless it is; nothing if the disk has no room. Any thread may call. */
void store_reserve_keep(const struct paths *paths);
/* Give the room up. Returns whether there was any. */
bool store_reserve_use(const struct paths *paths);
