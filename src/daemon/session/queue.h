/* queue.h - the sessions that wait for room.
 *
 * A session that was asked for with `wait` and does not fit now, but would on an empty card, is *queued*: it has an ID, a
 * name and a place, but no ledger, and no process gets in. Whenever something becomes free, or another session joins, the
 * daemon walks the queue from its head. A session that waits for other users' sessions keeps those behind it waiting for
 * the same GPUs, so that small ones do not starve a large one. It can be passed all the same:
 *
 * - by sessions that have room and ask for a quarter of what it asks for at most, as long as all that pass it together
 *   take no more than it asks for itself;
 * - by sessions of other users, when its own user's sessions keep it out: they might do so for ever.
 *
 * A queued session is not in the state file: it ends with its daemon, and with the process that asked for it.
 *
 * CHANGE_QUEUE_MOVED is published when places may have changed. */
#pragma once

#include <sys/types.h>

#include "base/error.h"

struct admission_state;
struct daemon;
struct queue;
struct session;
struct session_request;

/* Put the session at the end of the queue. */
int queue_join(struct session *session, const struct session_request *request, struct error *error);

/* The session's place, from 1; 0 when it is not in the queue. */
unsigned queue_position(const struct session *session);

/* In how many seconds the first session in the queue should have room, as other sessions reach the end of their time;
 * below 0: not known, or `session` is not the first. */
double queue_seconds_left(const struct session *session);

/* What a queued session asked for; NULL when it is not in the queue. */
const struct session_request *queue_request(const struct session *session);

/* Count in `state` the queued sessions that come before a new session of `asker`. */
void queue_count_waiting(const struct daemon *daemon, uid_t asker, struct admission_state *state);

/* Whether what is known of those that wait goes together: their places, their users, and what passed them. */
bool queue_is_valid(const struct queue *queue);

int queue_start(struct daemon *daemon, struct error *error);
void queue_stop(struct daemon *daemon); /* ends the sessions that wait */
