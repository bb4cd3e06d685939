/* store_reserve.h - room on the state file's disk that is kept for the ends of sessions and for starting.
 *
 * It is a file beside the state file, STATE_DIR/state.reserve, which is given up when the disk is full and
 * something must be written all the same, and made again when there is room. */
#pragma once

#include <stdbool.h>

#include "base/paths.h"

#define STORE_RESERVE_BYTES (512 << 10)

/* Set the room aside, unless it is. Where there is none, there is none. Any thread may call. */
void store_reserve_keep(const struct paths *paths);
/* Give it up. Whether there was any. */
bool store_reserve_use(const struct paths *paths);
