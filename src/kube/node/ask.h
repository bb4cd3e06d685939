/* ask.h - HTTP requests of tasks, by libcurl, while the loop goes on. Everything except opening and closing is for
 * tasks (tasks.h). A peer that sends more than the request allows, or nothing in time, counts as one that did not
 * answer. */
#pragma once

#include <jansson.h>
#include <systemd/sd-event.h>

#include "base/error.h"

struct asker;

int asker_open(sd_event *loop, struct asker **asker, struct error *error);
/* End the wait of every task with -ECANCELED; later requests fail with it too. `asker` may be NULL. */
void asker_close(struct asker *asker);

struct ask_question {
    const char *method, *url;
    const char *who;    /* "the daemon", for messages */
    const char *socket; /* NULL: over the network, with TLS */
    /* to check the server's certificate; NULL: the machine's trusted certificates */
    const char *ca_file;
    const char *token;   /* for "Authorization: Bearer"; NULL: none */
    const json_t *body;  /* NULL: none; not consumed */
    size_t most_bytes;   /* limit for the answer, or for a line of it */
    unsigned timeout_ms; /* for the whole request */
    /* For an answer that is a stream of JSON documents, one on each line: gets each of them, outside of the task;
     * false ends the stream. NULL: the answer is one document. */
    bool (*take)(void *context, json_t *line);
    void *context;
};

/* Returns the HTTP status, or a negative errno if there was no answer. With a status, sets `*answer`, which the
 * caller drops; it is NULL for a stream or an answer that is not JSON. */
int ask(struct asker *asker, const struct ask_question *question, json_t **answer, struct error *error);

/* Wait for `milliseconds`. Returns false if the asker is closed. */
bool ask_pause(struct asker *asker, unsigned milliseconds);
