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

/* Find out where the daemon would be. Connects at the first request. */
int client_open(struct client *client, bool simulated, struct error *error);
void client_close(struct client *client);

/* Ask `method` `path` with `body` (NULL for none; not consumed). Sets `*answer` to the decoded answer, which
 * the caller drops with json_decref(); NULL for an empty one; `answer` may be NULL. Fails with -ENOTCONN when
 * no daemon is running, and with -EREMOTEIO and the daemon's own code and message when it refuses. */
int client_request(struct client *client, const char *method, const char *path, const json_t *body,
                   json_t **answer, struct error *error);

/* The same on /v1/sessions/SESSION`behind`. `session` is made of the characters of an ID or name. */
int client_request_session(struct client *client, const char *method, const char *session, const char *behind,
                           const json_t *body, json_t **answer, struct error *error);

/* GET `path`, of which the answer is a stream of server-sent events, and hand the `data` of each to `take`.
 * Returns 0 when the daemon ended it. */
int client_listen(struct client *client, const char *path, void (*take)(const json_t *event, void *context),
                  void *context, struct error *error);

/* 0 once the daemon says that it is ready, -EAGAIN with what is missing while it is not, -ENOTCONN without
 * one. */
int client_ready(struct client *client, struct error *error);

/* For who sends requests in a way of his own: what the daemon says of a status that is not wanted, with its code; */
int client_refused(int status, const json_t *answer, struct error *error);
/* and the token to send, NULL for none. A daemon may require its GPUSLICE_IPC_TOKEN; inside a session that variable holds the
 * session's token instead, which is for attaching alone. */
const char *client_token(void);
