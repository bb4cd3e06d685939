/* past_questions.h - what has happened, from the history's file, for answers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "daemon/history/history_records.h"

struct daemon;

/* Events in the form of /v1/events. */
struct past_events {
    const char *text;       /* "": there are none */
    uint64_t epoch, number; /* of the last one; as in the question if there is none */
    bool may_be_more;       /* as many as were asked for */
};

/* Called in the loop's thread; `events` is valid until it returns. An error's status 0: there was none. */
typedef void (*past_events_done)(void *argument, const struct past_events *events, const struct error *error);

/* -ENOENT where no history is kept. */
int past_ask_events(struct daemon *daemon, const struct history_events_ask *ask, past_events_done done,
                    void *argument, struct error *error);

/* The answer is JSON: {"sessions": [...]}, oldest first. */
typedef void (*past_ended_done)(void *argument, const char *answer, const struct error *error);
int past_ask_ended(struct daemon *daemon, const struct history_ended_ask *ask, past_ended_done done,
                   void *argument, struct error *error);
