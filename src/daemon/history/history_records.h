/* history_records.h - what has happened, in the history's file: events, and sessions that have ended.
 *
 * event    a line of JSON, as /v1/events has it; its key is the daemon's epoch, and the event's number under that daemon
 * ended    a session that has ended: a line of JSON, as /v1/history/sessions has it
 * totals   what a session that has not ended has used under all daemons: JSON that only the daemon reads
 *
 * Only the history's helper thread uses these. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "daemon/session/identity.h"

struct history_bounds;
struct history_file;

enum history_record_kind { RECORD_EVENT, RECORD_ENDED, RECORD_TOTALS };

struct history_record {
    struct history_record *next;
    enum history_record_kind kind;
    uint64_t epoch, number; /* of an event */
    int64_t at_ms;          /* since 1970: when it happened; of an ended session: when that ended */
    uid_t owner;
    bool is_for_all;                  /* every user may see it */
    char session_id[SESSION_ID_TEXT]; /* "": about no session */
    char name[SESSION_NAME_TEXT];     /* of an ended session */
    char text[];                      /* JSON, one line */
};

/* Write all of these or none, in their order. The end of a session removes its totals. */
int history_records_put(struct history_file *file, const struct history_record *records, struct error *error);

/* Which events are asked for: those behind the one with this key, of `from_ms` or later, that `uid` may see. */
struct history_events_ask {
    uid_t uid; /* root sees all */
    int64_t from_ms;
    uint64_t epoch, number;
    unsigned most;
};

/* Call `take` for each, oldest first. */
int history_records_events(struct history_file *file, const struct history_events_ask *ask,
                           void (*take)(const struct history_record *record, void *context), void *context,
                           struct error *error);

/* Which sessions that have ended are asked for: the newest that ended from `from_ms` to `to_ms` and that `uid` may see. */
struct history_ended_ask {
    uid_t uid;
    int64_t from_ms, to_ms;
    bool has_owner;
    uid_t owner;                     /* of these alone */
    char session[SESSION_NAME_TEXT]; /* a name, or where none has it the beginning of an ID; "": any */
    unsigned most;
};

/* Call `take` with the text of each, oldest first. */
int history_records_ended(struct history_file *file, const struct history_ended_ask *ask,
                          void (*take)(const char *text, void *context), void *context, struct error *error);

/* Call `take` with the totals of each session that has not ended. Called by the loop before the thread runs. */
int history_records_totals(struct history_file *file,
                           void (*take)(const char *session_id, const char *text, void *context),
                           void *context, struct error *error);

/* Remove what is too old at `now`; then, until there are at most `bounds.records` of each kind, the oldest of the user who
 * has the most. */
int history_records_prune(struct history_file *file, int64_t now, const struct history_bounds *bounds,
                          struct error *error);

/* Remove the eighth of this user's records that is oldest. -ENOENT: there are none. */
int history_records_drop(struct history_file *file, uid_t owner, struct error *error);
/* Call `take` with the bytes that the records of each user take, about. */
int history_records_owners(struct history_file *file,
                           void (*take)(uid_t owner, uint64_t bytes, void *context), void *context,
                           struct error *error);
