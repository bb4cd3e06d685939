/* session_create.h - create a session, and wait in the queue if there is no room for it yet. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "client/client.h"
#include "client/session_wish.h"

/* Receives sentences for a person while a request is under way: the place in the queue, a limit that is small. */
struct session_progress {
    void (*tell)(void *context, const char *sentence);
    void *context;
};

/* Ask for the session of `wish`, and start a daemon if none is running. With `run` the session belongs to this
 * process and ends with it. If there is no room and the wish says to wait, it returns when the session is active;
 * when the wait is over before that, it releases the session and fails with -ETIMEDOUT. Sets `*session` to the
 * session's document, with its "environment"; the caller drops it. */
int session_create(struct client *client, const struct session_wish *wish, bool run,
                   const struct session_progress *progress, json_t **session, struct error *error);
