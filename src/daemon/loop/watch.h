/* watch.h - how long callbacks hold the loop.
 *
 * hold   the time for which one callback kept the loop from the next. Above LOOP_HOLD_USEC it is *long*: counted and
 *        logged. From 50 ms on, CHANGE_LOOP_HELD tells of it too
 *
 * A hold is the CPU time that the loop's thread used. If the thread waited for something in the callback (it gave its
 * CPU away), it is all the time that passed. So a machine that is busy with other work does not make a callback look
 * slow. */
#pragma once

#include <stdint.h>

struct daemon;

/* No request, message, hang-up or file of a client may hold the loop for longer. */
#define LOOP_HOLD_USEC UINT64_C(5000)

/* Run the loop until it exits, as sd_event_loop() does. */
int loop_run(struct daemon *daemon);
