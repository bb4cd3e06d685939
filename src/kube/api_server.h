/* api_server.h - requests to the cluster's API server, over TLS. */
#pragma once

#include <jansson.h>

#include "base/error.h"

/* Where it is, and what shows who we are. The files are read for each request: tokens are changed while we run. */
struct api_place {
    const char *url;        /* "https://HOST:PORT" */
    const char *token_file; /* NULL: none */
    const char *ca_file;
};

#define API_WATCH_MS 300000 /* a watch is begun anew so often, by the server's word or ours */

struct kubelet;

/* In a task: ask, with `body` (NULL: none; not consumed), and wait for the answer a few seconds at most. Returns the HTTP status;
 * or, for what is no answer (no connection, no certificate, no JSON), a negative errno. `*answer` is set with a status, maybe
 * to NULL; the caller drops it. */
int api_request(const struct kubelet *kubelet, const char *method, const char *path, const json_t *body,
                json_t **answer, struct error *error);

/* In a task: follow `path`, which asks for a watch, until the server ends it or `take` returns false; it is handed each event, and
 * may not ask anything. Returns as api_request() does. */
int api_watch(const struct kubelet *kubelet, const char *path, bool (*take)(void *context, json_t *event),
              void *context, struct error *error);

/* What the server says of a status that is not wanted. */
int api_refused(int status, const char *what, const json_t *answer, struct error *error);
