/* soon.h - work that is done a part at a time, and takes its turn among everything else that waits in the loop.
 *
 * A deferred source of sd-event would not do: it counts as waiting since it was made, so one that enables itself again
 * keeps every other source of its priority waiting until it has no more to do. */
#pragma once

#include <systemd/sd-event.h>

struct soon;

/* 0, or a negative errno. */
int soon_new(sd_event *loop, void (*run)(void *context), void *context, struct soon **soon);

/* Have `run` called once, after everything that waits in the loop already. Nothing if that is to happen anyway. */
void soon_wake(struct soon *soon);

void soon_free(struct soon *soon);
