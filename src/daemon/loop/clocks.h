/* clocks.h - the time that passes, whatever the wall clock is set to.
 *
 * The machine's time begins with each of its starts, and passes while it sleeps too. What has to end after a while is kept by it;
 * what is shown to people and kept across starts is the wall clock's. */
#pragma once

#include <stdint.h>

/* Milliseconds of the machine's time; CLOCK_BOOTTIME. */
int64_t clock_machine_ms(void);

/* How far the wall clock is ahead of it: the same number until somebody sets that clock by half a second or more. Of the loop's
 * thread alone. */
int64_t clock_wall_ahead_ms(void);
