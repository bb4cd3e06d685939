/* session_create.h - a session that does not exist yet: ask for it, and wait in the queue for room. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "client/client.h"
#include "client/session_wish.h"

/* Receives sentences for a person while a request goes on: the place in the queue, a limit that is small. */
struct session_progress {
    void (*tell)(void *context, const char *sentence);
    void *context;
};

/* Ask for the session of `wish`, and start a daemon where none is running. With `run` the session belongs to
 * this process and ends with it. Where there is no room and the wish says to wait, it returns when the
 * session is active; a wait that is over releases the session. Sets `*session` to the session's document,
 * with its "environment"; the caller drops it. */
int session_create(struct client *client, const struct session_wish *wish, bool run,
                   const struct session_progress *progress, json_t **session, struct error *error);
