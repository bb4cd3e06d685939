/* api.h - what the HTTP requests mean (docs/api.md). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "daemon/residency/moves.h"

struct daemon;
struct gpu;
struct http_request;
struct nvml_process;
struct process;
struct session;
struct session_request;

/* Answer `request`, now or later. */
void api_handle(struct http_request *request);

/* --- Bodies of requests (api_body.c, api_request.c), and answers (api_json.c) ----------------------- */

/* So many values a body may have, objects and arrays among them: each takes some hundred bytes to read. */
#define API_BODY_VALUES_MAX 1000

/* Read `bytes` of `body`, an object of JSON, which the caller releases. No bytes are an empty object. -EINVAL with
 * ERR_BAD_REQUEST, and *document NULL, where it is none, names a field twice or has too many values. */
int api_parse_body(const char *body, size_t bytes, json_t **document, struct error *error);

/* Read the body of a POST (`creating`) or PATCH. Strings in `request` live as long as `*document`, which the caller
 * releases. An empty body counts as an empty object. */
int api_parse_session(const struct daemon *daemon, const char *body, size_t bytes, bool creating,
                      json_t **document, struct session_request *request, struct error *error);

/* The body of gslice's POST /sessions. */
int api_parse_gslice(const char *body, size_t bytes, struct session_request *request, struct error *error);

/* A session without its processes; one process; and a session with its processes. */
json_t *api_session_head_json(const struct session *session);
json_t *api_process_json(const struct process *process);
json_t *api_session_json(const struct session *session);
/* Whether the request came by a path of gslice's API. */
bool api_is_gslice(const struct http_request *request);
/* Write the session's state as gslice does: ACTIVE, EXPIRED. */
void api_write_as_gslice(json_t *json);
json_t *api_environment_json(const struct session *session);
/* What the session does, in one word, with its tone and its text (statuses.def). */
json_t *api_status_json(const struct session *session);
/* How the session stands with its lease on the GPUs' time. */
json_t *api_lease_json(const struct session *session);
/* A GPU without its processes; and one process on it. NULL for a process that user `viewer` may not see: it is in
 * another user's session. */
json_t *api_gpu_head_json(const struct daemon *daemon, const struct gpu *gpu);
json_t *api_gpu_process_json(struct daemon *daemon, const struct nvml_process *shown, uid_t viewer);

/* The answer to GET /v1/config. */
json_t *api_config_json(const struct daemon *daemon);

/* What a PATCH of /v1/scheduler asks for. -EINVAL with ERR_BAD_REQUEST. */
struct scheduler_wish {
    bool has_quantum, has_anti_thrash;
    uint64_t quantum_ns; /* 0: automatic */
    enum anti_thrash anti_thrash;
};
int api_parse_scheduler(const char *body, size_t bytes, struct scheduler_wish *wish, struct error *error);

/* Handler of GET /v1/sessions: oldest first; the sessions that existed when the request came and still exist, each as
 * it is when it is written. */
void api_list_sessions(struct http_request *request, const char *id);

/* Handlers of the other requests about sessions. */
void api_create_session(struct http_request *request, const char *id);
void api_show_session(struct http_request *request, const char *id);
void api_change_session(struct http_request *request, const char *id);
void api_release_session(struct http_request *request, const char *id);
void api_show_environment(struct http_request *request, const char *id);
void api_give_socket(struct http_request *request, const char *id);
void api_suspend_session(struct http_request *request, const char *id);
void api_resume_session(struct http_request *request, const char *id);
void api_create_gslice_session(struct http_request *request, const char *id);

/* Answer with the session. */
void api_reply_session(struct http_request *request, unsigned status, const struct session *session);

/* Handler of GET /v1/gpus. */
void api_list_gpus(struct http_request *request, const char *id);

/* Handlers of what is about the daemon itself. Only the daemon's user and root may open the dashboard's port. */
void api_show_version(struct http_request *request, const char *id);
void api_show_config(struct http_request *request, const char *id);
void api_show_health(struct http_request *request, const char *id);
void api_show_readiness(struct http_request *request, const char *id);
void api_show_metrics(struct http_request *request, const char *id);
void api_open_dashboard(struct http_request *request, const char *id);

/* Handler of POST /v1/room. */
void api_count_room(struct http_request *request, const char *id);

/* Handlers of /v1/scheduler. */
void api_show_scheduler(struct http_request *request, const char *id);
void api_show_turns(struct http_request *request, const char *id);
void api_change_scheduler(struct http_request *request, const char *id);

/* Handler of GET /v1/events. */
void api_follow_events(struct http_request *request, const char *id);

/* Have `reply` answer `request`, about the session whose ID is its subject, with the session as it is then: when its place in the queue is no
 * longer `position`, or after `seconds`. */
typedef void api_reply_place(struct http_request *request, const struct session *session);
void api_await_place(struct http_request *request, unsigned position, unsigned seconds,
                     api_reply_place *reply);

/* --- Start and end --------------------------------------------------------------------------------- */

int api_wait_start(struct daemon *daemon, struct error *error);
void api_wait_stop(struct daemon *daemon); /* answers the requests that wait */
int api_follow_start(struct daemon *daemon, struct error *error);
void api_follow_stop(struct daemon *daemon); /* followers get the events that are left, and end */
void api_follow_free(struct daemon *daemon); /* when no follower is left */

/* Handlers of GET /v1/history and GET /v1/usage. */
void api_show_history(struct http_request *request, const char *id);
void api_show_usage(struct http_request *request, const char *id);
void api_list_ended(struct http_request *request, const char *id);
