/* ended.h - what is kept of a session that has ended: what it asked for, what it got, and why it ended.
 *
 * totals   what a session has used so far, under this daemon and earlier ones. Those of sessions that run are written every
 *          ten seconds, so that a daemon that is killed takes no more than that with it */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct daemon;
struct sample;
struct session;

/* Follow the daemon's changes, from before sessions are restored; nothing where no history is kept. */
int ended_start(struct daemon *daemon, struct error *error);
void ended_stop(struct daemon *daemon);

/* Add what the session did since the last call, on one of its GPUs. */
void ended_add_sample(struct session *session, const struct sample *sample);
/* It holds so much now, on all its GPUs. */
void ended_see_bytes(struct session *session, uint64_t bytes);
/* It has waited so long for room on its card. */
void ended_add_room_wait(struct session *session, uint64_t ns);

/* Have its totals written if they have changed and were not written in the last ENDED_TOTALS_SECONDS; or in any case, if they
 * have changed. */
#define ENDED_TOTALS_SECONDS 10
void ended_keep_totals(struct session *session, bool in_any_case);
