/* watch.h - how long the loop was held.
 *
 * hold   the longest that one callback of the loop kept it from the next. It is *long* above LOOP_HOLD_USEC, and is
 *        then counted and logged; of 50 ms and more CHANGE_LOOP_HELD tells
 *
 * What counts is the time that the loop's thread computed, and where it waited for something in between (it gave its
 * CPU away), all that passed: so a machine whose CPUs are busy elsewhere is not taken for a callback that is slow. */
#pragma once

#include <stdint.h>

struct daemon;

/* No request, message, hang-up or file of a client may hold the loop longer. */
#define LOOP_HOLD_USEC UINT64_C(5000)

/* Run the loop until it exits, as sd_event_loop() does. */
int loop_run(struct daemon *daemon);
