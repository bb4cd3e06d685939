/* events.h - what has happened: what this daemon has seen of it lately, kept in the form in which users are told. The
 * history's file has it too, and what earlier daemons saw (past_questions.h).
 *
 * event   a change (changes.h) that users are told of, as a line of JSON that does not change any more
 *
 * An event belongs to a user, who can see it; root can see all. EVENTS_KEPT are kept. When there are more, the oldest event
 * of the user who has the most is dropped, so that no user can push out another's. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

#define EVENTS_KEPT 1000

struct daemon;

/* {"uid", "pid", "command"}; NULL without memory. */
struct requester;
json_t *requester_json(const struct requester *asker);

/* Follow the daemon's changes. */
int events_start(struct daemon *daemon, struct error *error);
void events_stop(struct daemon *daemon); /* the events that are kept stay */
void events_free(struct daemon *daemon);

struct events;
/* Whether the numbers rise, and each user has as many events as are counted. */
bool events_are_valid(const struct events *events);

/* The oldest event after number `*last`, of `from_ms` (since 1970) or later, that `uid` may see, in the form of /v1/events;
 * `*last` becomes its number. Valid until the loop goes on. NULL: there is none yet. */
const char *events_next(const struct daemon *daemon, uid_t uid, int64_t from_ms, uint64_t *last);
