/* events.h - what has happened: the last of it, kept as people are told of it.
 *
 * event   one change (changes.h) that people are told of, as a line of JSON that does not change any more
 *
 * An event belongs to somebody, who sees it; root sees all. EVENTS_KEPT are kept. When there are more, one of
 * the user of whom most are kept goes, so that nobody can push another's out. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

#define EVENTS_KEPT 1000

struct daemon;

/* Follow the daemon's changes. */
int events_start(struct daemon *daemon, struct error *error);
void events_stop(struct daemon *daemon); /* those that are kept stay */
void events_free(struct daemon *daemon);

/* The oldest event after number `*last` that `uid` may see, as the stream of /v1/events has it; `*last`
 * becomes its number. It is valid until the loop goes on. NULL: there is none yet. */
const char *events_next(const struct daemon *daemon, uid_t uid, uint64_t *last);
