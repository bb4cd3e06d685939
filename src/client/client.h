/* client.h - one conversation with a daemon: requests of docs/api.md over its Unix socket. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/paths.h"
#include "client/http.h"

struct client {
    struct paths paths;
    struct http_connection connection;
};

/* Find where the daemon would be. Connects at the first request. */
int client_open(struct client *client, bool simulated, struct error *error);
void client_close(struct client *client);

/* Send `method` `path` with `body` (NULL for none; not consumed). Sets `*answer`, which may be NULL, to the decoded
 * answer, or to NULL where that is empty; the caller drops it with json_decref(). Fails with -ENOTCONN when no
 * daemon is running, and with -EREMOTEIO and the daemon's own code and message when it refuses. */
int client_request(struct client *client, const char *method, const char *path, const json_t *body,
                   json_t **answer, struct error *error);

/* The same on /v1/sessions/SESSION`behind`. `session` is made of the characters of an ID or name, or names a pod
 * (session_pod.h). */
int client_request_session(struct client *client, const char *method, const char *session, const char *behind,
                           const json_t *body, json_t **answer, struct error *error);

/* GET `path`, whose answer is a stream of server-sent events, and hand the `data` of each to `take`. Returns 0 when
 * the daemon ended the stream. */
int client_listen(struct client *client, const char *path, void (*take)(const json_t *event, void *context),
                  void *context, struct error *error);

/* 0 once the daemon serves requests, though NVML may not answer it; -EAGAIN with what it says instead, -ENOTCONN without a
 * daemon. */
int client_ready(struct client *client, struct error *error);

/* For callers that send requests themselves: the daemon's error, with its code, from an answer with an unwanted
 * status. Always fails. */
int client_refused(int status, const json_t *answer, struct error *error);
/* For the same callers: the token to send; NULL for none. A daemon may require its GPUSLICE_IPC_TOKEN. Inside a
 * session that variable holds the session's token instead, which is for attaching alone. */
const char *client_token(void);
