/* deferred.h - work that is done a part at a time, and takes its turn among everything else that waits in the loop.
 *
 * A deferred source of sd-event would not do: it counts as waiting since it was made, so one that enables itself again
 * keeps every other source of its priority waiting until it has no more to do. */
#pragma once

#include <systemd/sd-event.h>

struct deferred;

/* 0, or a negative errno. */
int deferred_new(sd_event *loop, void (*run)(void *context), void *context, struct deferred **deferred);

/* Have `run` called once, after everything that waits in the loop already. Nothing if that is to happen anyway. */
void deferred_wake(struct deferred *deferred);

void deferred_free(struct deferred *deferred);
