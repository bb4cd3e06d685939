/* events.h - what has happened: the last of it kept, and told to those who listen to /v1/events.
 *
 * event     one thing that happened, with a kind (events.def), as a line of JSON that does not change any
 * more listener  a client that is told of each, in order; what it is slow to take is not kept for it
 *
 * An event belongs to somebody, who sees it; root sees all. EVENTS_KEPT are kept. When there are more, one of
 * the user of whom most are kept goes, so that nobody can push another's out. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"

#define EVENTS_KEPT 1000
/* Listeners that one user may have at a time, of the 512 connections that all share. */
#define EVENTS_LISTENERS_MAX 32

struct daemon;
struct http_request;
struct session;

enum event_kind {
#define EVENT(name, kind, audience, rate) EVENT_##name,
#include "daemon/history/events.def"
#undef EVENT
    EVENT_KINDS
};

/* Tell of `kind`, about `session` (NULL: about none). `details` (taken over; may be NULL) are further fields
 * of the event; the rest is its message. Returns false when it was held back, because one of the kind about
 * the session was told a moment ago. */
__attribute__((format(printf, 5, 6))) bool events_tell(struct daemon *daemon, enum event_kind kind,
                                                       struct session *session, json_t *details,
                                                       const char *format, ...);

/* Tell of requests for memory that the session was refused since this was asked last. */
void events_look_for_refusals(struct session *session);

/* GET /v1/events. */
void events_answer(struct http_request *request, const char *id);

const char *events_kind_name(enum event_kind kind);

int events_start(struct daemon *daemon, struct error *error);
/* No more is told; listeners have been told all. */
void events_stop(struct daemon *daemon);
void events_free(struct daemon *daemon); /* the listeners have gone */
