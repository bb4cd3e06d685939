/* queue.h - the sessions that wait for room.
 *
 * A session asked for with `wait` that does not fit now, but would on an empty card, is *queued*: it has an
 * ID, a name and a place, no ledger, and no process gets in. Whenever something becomes free, or another session
 * comes, the queue is walked from its head. A session that waits for others keeps those behind it waiting for the same GPUs,
 * so that a large one is not starved by small ones. Two go past it all the same:
 *
 * - what has room, asks for a quarter of it at most, and with all that went past it before for no more than it asks for itself;
 * - sessions of other users, where it is its own user's sessions that keep it out: that could be for ever.
 *
 * It is not in the state file before it is admitted: it ends with its daemon, and with the process that asked.
 *
 * CHANGE_QUEUE_MOVED is published when places may have changed. */
#pragma once

#include <sys/types.h>

#include "base/error.h"

struct admission_state;
struct daemon;
struct session;
struct session_request;

/* To the end of the queue. */
int queue_join(struct session *session, const struct session_request *request, struct error *error);

/* Its place, from 1; 0 when it is not in the queue. */
unsigned queue_position(const struct session *session);

/* In how many seconds the first in the queue should have room, as sessions end when their time is over;
 * below 0: nobody can tell. */
double queue_seconds_left(const struct session *session);

/* What a queued session asked for; NULL when it is not in the queue. */
const struct session_request *queue_request(const struct session *session);

/* Count in `state` those that wait and come before a new session of `asker`. */
void queue_count_waiting(const struct daemon *daemon, uid_t asker, struct admission_state *state);

int queue_start(struct daemon *daemon, struct error *error);
void queue_stop(struct daemon *daemon); /* ends the sessions that wait */
