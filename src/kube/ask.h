/* ask.h - HTTP requests of tasks, by libcurl, while the loop goes on. Used only in tasks (tasks.h) but for opening and closing.
 * A peer that sends more than was expected, or nothing in time, has not answered. */
#pragma once

#include <jansson.h>
#include <systemd/sd-event.h>

#include "base/error.h"

struct asker;

int asker_open(sd_event *loop, struct asker **asker, struct error *error);
/* Whoever waits has no answer (-ECANCELED), and nobody gets one any more. NULL is none. */
void asker_close(struct asker *asker);

struct ask_question {
    const char *method, *url;
    const char *who;     /* "the daemon", for messages */
    const char *socket;  /* NULL: by network, over TLS */
    const char *ca_file; /* what the server's certificate is checked by; NULL: what the machine trusts */
    const char *token;   /* for "Authorization: Bearer"; NULL: none */
    const json_t *body;  /* NULL: none; not consumed */
    size_t most_bytes;   /* of the answer, or of a line of it */
    unsigned timeout_ms; /* for all of it */
    /* Of an answer that is a stream of JSON documents, a line each: is handed each of them, outside of the task; false ends it.
     * NULL: the answer is one document. */
    bool (*take)(void *context, json_t *line);
    void *context;
};

/* Returns the HTTP status, or a negative errno for what is no answer. Sets `*answer` with a status: NULL where it is no JSON, or
 * for a stream; the caller drops it. */
int ask(struct asker *asker, const struct ask_question *question, json_t **answer, struct error *error);

/* Let `milliseconds` pass. Returns false when the asker is closed. */
bool ask_pause(struct asker *asker, unsigned milliseconds);
