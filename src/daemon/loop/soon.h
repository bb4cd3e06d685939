/* soon.h - work that goes on a part at a time, and takes its turn among all that waits in the loop.
 *
 * A deferred source of sd-event does not: it counts as waiting since it was made, so one that enables itself anew keeps
 * every other source of its priority waiting until it has no more to do. */
#pragma once

#include <systemd/sd-event.h>

struct soon;

/* 0, or a negative errno. */
int soon_new(sd_event *loop, void (*run)(void *context), void *context, struct soon **soon);

/* Have it run once, when what waited before has run. Nothing where it is to run already. */
void soon_wake(struct soon *soon);

void soon_free(struct soon *soon);
