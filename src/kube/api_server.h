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

/* Ask, with `body` (NULL: none; not consumed), and wait for the answer a few seconds at most. Returns the HTTP status; or,
 * for what is no answer (no connection, no certificate, no JSON), a negative errno. `*answer` is set with a status, maybe to
 * NULL; the caller drops it. */
int api_request(const struct api_place *place, const char *method, const char *path, const json_t *body,
                json_t **answer, struct error *error);

/* What the server says of a status that is not wanted. */
int api_refused(int status, const char *what, const json_t *answer, struct error *error);
