/* api_server.h - requests to the cluster's API server, over TLS. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "kube/kubelet.h"

#define API_WATCH_MS 300000 /* how long one watch lasts, whichever side ends it; then the next begins */

/* In a task: send a request with `body` (NULL: none; not consumed) and wait for the answer, a few seconds at most.
 * Returns the HTTP status, or a negative errno if there was no answer (no connection, a bad certificate, no JSON).
 * With a status `*answer` is set, maybe to NULL; the caller drops it. */
int api_request(const struct kubelet *kubelet, const char *method, const char *path, const json_t *body,
                json_t **answer, struct error *error);

/* In a task: follow `path`, which asks for a watch, until the server ends it or `take` returns false. `take` gets
 * each event, and may not send requests. Returns as api_request() does. */
int api_watch(const struct kubelet *kubelet, const char *path, bool (*take)(void *context, json_t *event),
              void *context, struct error *error);

/* The error for an unwanted status, with what the server says about it. */
int api_refused(int status, const char *what, const json_t *answer, struct error *error);
