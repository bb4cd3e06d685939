/* top_fetch.h - the requests of `top` to the daemon, in a thread of their own, so that the screen answers keys
 * while the daemon does not answer. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct top_fetch;

/* What came in. The caller that takes it frees all of it. */
struct top_news {
    json_t *sessions, *gpus; /* NULL: nothing new */
    json_t *history;         /* set once, at the start; NULL otherwise */
    char *said;              /* about an action, or why nothing is new; NULL: nothing */
    bool is_bad;             /* `said` is a refusal or a failure */
    bool is_lost;            /* the daemon did not answer the last request */
};

/* Start the thread, which asks every `interval_usec`. */
int top_fetch_start(struct top_fetch **fetch, bool simulated, uint64_t interval_usec, struct error *error);
void top_fetch_stop(struct top_fetch *fetch);

/* Readable when there is news. */
int top_fetch_fd(const struct top_fetch *fetch);
struct top_news top_fetch_take(struct top_fetch *fetch);

/* Send one request about the session, and say `done` when it has succeeded. Consumes `body`, which may be NULL.
 * False if another request is under way. */
bool top_fetch_act(struct top_fetch *fetch, const char *method, const char *session, const char *behind,
                   json_t *body, const char *done);
void top_fetch_set_interval(struct top_fetch *fetch, uint64_t interval_usec);
