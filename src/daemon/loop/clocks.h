/* clocks.h - the time that passes, whatever the wall clock is set to.
 *
 * The machine's time starts from 0 each time the machine starts, and goes on while the machine sleeps. Whatever has to
 * end after a while uses it; times that people see, or that are kept across starts, are the wall clock's. */
#pragma once

#include <stdint.h>

/* Milliseconds of the machine's time: CLOCK_BOOTTIME. */
int64_t clock_machine_ms(void);

/* How far the wall clock is ahead of the machine's time. The number stays the same until somebody sets the wall
 * clock by half a second or more. For the loop's thread alone. */
int64_t clock_wall_ahead_ms(void);
