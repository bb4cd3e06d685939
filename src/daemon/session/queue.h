/* queue.h - whether there is room for a session, and the line of those that wait for it.
 *
 * A session asked for with `wait` that does not fit now, but would on an empty card, is *queued*: it has an
 * ID, a name and a place in the line, no ledger, and no process gets in. Whenever something becomes free the
 * line is walked from its head; nobody is admitted past one that waits for the same GPU, so that a large one
 * is not starved by small ones. It is not in the state file before it is admitted: it ends with its daemon,
 * and with the process that asked. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "daemon/session/session.h"

struct daemon;
struct http_request;

/* Give `session` the GPUs, limits, share and priority that `request` asks for, in the order it names GPUs.
 * -EBUSY with ERR_ADMISSION and the numbers when they do not fit beside what was promised to others, or when
 * others wait for the same GPUs; then the session has no GPU. */
int queue_admit(struct daemon *daemon, const struct session_request *request, struct session *session,
                struct error *error);

/* Whether a minimum share of `compute` can be promised to `session` on the GPUs that it has. */
int queue_admit_share(const struct session *session, struct share compute, struct error *error);

/* Whether `request` would fit if nothing were promised to anybody. */
bool queue_has_hope(const struct daemon *daemon, const struct session_request *request);

/* Note in `session`, which is to be queued, what `request` asks for: the most of where it may come to stand.
 */
void queue_note_demand(const struct daemon *daemon, const struct session_request *request,
                       struct session *session);

/* To the end of the line. */
int queue_join(struct session *session, const struct session_request *request, struct error *error);

/* Out of it, wherever it stands; nothing if it is in none. */
void queue_leave(struct session *session);

/* Its place, from 1; 0 when it is not in the line. */
unsigned queue_position(const struct session *session);

/* What a queued session asked for; NULL when it is not in the line. */
const struct session_request *queue_request(const struct session *session);

/* Something may have become free: look, when the loop comes round. */
void queue_advance_soon(struct daemon *daemon);

/* Answer `request`, about request->session_id, with the session as it then is, once its place is not
 * `position` any more or after `seconds`. */
void queue_wait(struct http_request *request, unsigned position, unsigned seconds);

int queue_start(struct daemon *daemon, struct error *error);
void queue_stop(struct daemon *daemon); /* answers who waits */
