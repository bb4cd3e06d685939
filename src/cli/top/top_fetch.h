/* top_fetch.h - what speaks to the daemon for `top`, in a thread of its own, so that the screen answers keys
 * while the daemon does not. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct top_fetch;

/* What came in; all of it is who takes it's to drop. */
struct top_news {
    json_t *sessions, *gpus; /* NULL: nothing new */
    json_t *history;         /* once, at the start; NULL otherwise */
    char *said;              /* of an action, or why nothing is new; NULL: nothing */
    bool is_lost;            /* the daemon did not answer the last time */
};

/* Begin to ask every `interval_usec`. */
int top_fetch_start(struct top_fetch **fetch, bool simulated, uint64_t interval_usec, struct error *error);
void top_fetch_stop(struct top_fetch *fetch);

/* Readable when there is news. */
int top_fetch_fd(const struct top_fetch *fetch);
struct top_news top_fetch_take(struct top_fetch *fetch);

/* Ask this of the session once, and say `done` when it is done. `body` is taken over; may be NULL. False: another is
 * under way. */
bool top_fetch_act(struct top_fetch *fetch, const char *method, const char *session, const char *behind,
                   json_t *body, const char *done);
void top_fetch_set_interval(struct top_fetch *fetch, uint64_t interval_usec);
