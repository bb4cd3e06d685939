#include "daemon/api/api.h"
#include "daemon/api/api_rate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/api/api_pieces.h"
#include "daemon/api/metrics.h"
#include "daemon/http/http.h"
#include "daemon/http/http_tcp.h"
#include "daemon/http/pages.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/peer.h"
#include "daemon/process/release.h"
#include "daemon/residency/moves.h"
#include "daemon/session/admit.h"
#include "daemon/session/declared.h"
#include "daemon/session/process.h"
#include "daemon/session/queue.h"
#include "daemon/session/request.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/session/session_life.h"
#include "daemon/store/store.h"

#define SEGMENT_BYTES 128
#define WAIT_SECONDS_MAX 20 /* below http.c's idle time */

/* --- Sessions -------------------------------------------------------------------------------------- */

static void internal_error(struct http_request *request, const char *what, const char *message)
{
    struct error error;
    error_set(&error, EIO, "ERR_INTERNAL", "%s: %s", what, message);
    http_reply_error(request, &error);
}

/* The session that a stored change was about; it may have ended meanwhile. Answers if so. */
static struct session *find_changed(struct http_request *request)
{
    struct session *session = session_find_id(request->daemon, request->session_id);
    struct error error;
    if (session)
        return session;
    error_set(&error, ENOENT, "ERR_SESSION_NOT_FOUND", "session %s has just ended", request->session_id);
    http_reply_error(request, &error);
    return NULL;
}

static void on_created(void *argument, int result, const char *message)
{
    struct http_request *request = argument;
    if (result < 0) {
        internal_error(request, "the session could not be stored and was not made", message);
        return;
    }
    const struct session *session = find_changed(request);
    if (!session)
        return;
    json_t *json = api_session_json(session);
    if (request->as_gslice)
        api_write_as_gslice(json);
    json_object_set_new(json, "environment", api_environment_json(session));
    http_reply_json(request, request->as_gslice ? 200 : 201, json);
}

static void create(struct http_request *request, struct session_request *wanted)
{
    struct error error;
    struct session *session;
    if (wanted->has_owner && wanted->owner != request->peer.uid && request->peer.uid != 0) {
        error_set(&error, EACCES, "ERR_FORBIDDEN",
                  "only root makes sessions of other users; leave owner_uid out");
        http_reply_error(request, &error);
        return;
    }
    if (!wanted->has_owner)
        wanted->owner = request->peer.uid;
    admit_apply_defaults(request->daemon, wanted);
    if (!wanted->has_ttl && !wanted->ttl_seconds)
        wanted->ttl_seconds = request->daemon->config.defaults.ttl_seconds;
    int result = admit_new(request->daemon, wanted, &session, &error);
    if (result < 0) {
        change_publish(request->daemon, &(struct change){CHANGE_SESSION_REFUSED, .uid = wanted->owner}, "%s",
                       error.message);
        http_reply_error(request, &error);
        return;
    }
    strcpy(request->session_id, session->id);
    if (session->state == SESSION_QUEUED)
        http_reply_json(request, 202, api_session_json(session));
    else
        store_await(request->daemon, session->id, on_created, request);
}

static void create_session(struct http_request *request, const char *id)
{
    struct session_request wanted = {.run_pidfd = -1};
    struct error error;
    json_t *document;
    int result = api_parse_session(request->daemon, request->body, request->body_bytes, true, &document,
                                   &wanted, &error);
    if (result < 0) {
        http_reply_error(request, &error);
        return;
    }
    if (!wanted.has_owner)
        wanted.owner = request->peer.uid;
    admit_choose_when_full(request->daemon, &wanted);
    if (wanted.run || wanted.wait) {
        struct peer peer;
        result = wanted.run_parent
                     ? peer_parent(http_socket(request), &peer, &wanted.run_pidfd, &wanted.run_start_ticks)
                     : peer_identity(http_socket(request), &peer, &wanted.run_pidfd, &wanted.run_start_ticks);
        wanted.run_pid = peer.pid;
        if (result < 0)
            error_set(&error, -result, "ERR_BAD_REQUEST",
                      "'run' or 'wait' is true, but the process that asks cannot be seen from here: %s",
                      strerror(-result));
    }
    if (result < 0)
        http_reply_error(request, &error);
    else
        create(request, &wanted);
    if (wanted.run_pidfd >= 0)
        close(wanted.run_pidfd);
    json_decref(document);
}

static void create_gslice_session(struct http_request *request, const char *id)
{
    struct session_request wanted = {.run_pidfd = -1};
    struct error error;
    request->as_gslice = true;
    if (api_parse_gslice(request->body, request->body_bytes, &wanted, &error) < 0)
        http_reply_error(request, &error);
    else
        create(request, &wanted);
}

static void list_gslice_sessions(struct http_request *request, const char *id)
{
    request->as_gslice = true;
    api_list_sessions(request, id);
}

/* The session in the path; NULL: answered. */
static struct session *find_session(struct http_request *request, const char *id)
{
    struct session *session;
    struct error error;
    if (session_find(request->daemon, request->peer.uid, id, &session, &error) == 0)
        return session;
    http_reply_error(request, &error);
    return NULL;
}

static void show_session(struct http_request *request, const char *id)
{
    const struct session *session = find_session(request, id);
    const char *position = http_argument(request, "queue_position"),
               *wait = http_argument(request, "wait_seconds");
    uint64_t place, seconds;
    struct error error, cause;
    if (!session)
        return;
    if (!position && !wait) {
        api_reply_session(request, 200, session);
        return;
    }
    if (!position || !wait || units_parse_number(position, UINT32_MAX, &place, &cause) < 0 ||
        units_parse_number(wait, WAIT_SECONDS_MAX, &seconds, &cause) < 0) {
        error_set(&error, EINVAL, "ERR_BAD_REQUEST",
                  "the query is wrong; expected both queue_position and wait_seconds, the latter up to %d",
                  WAIT_SECONDS_MAX);
        http_reply_error(request, &error);
        return;
    }
    strcpy(request->session_id, session->id);
    api_await_place(request, (unsigned)place, (unsigned)seconds);
}

static void show_gslice_session(struct http_request *request, const char *id)
{
    const struct session *session = find_session(request, id);
    request->as_gslice = true;
    if (session)
        api_reply_session(request, 200, session);
}

static void show_environment(struct http_request *request, const char *id)
{
    const struct session *session = find_session(request, id);
    struct error error;
    if (session && session->state == SESSION_QUEUED) {
        error_set(&error, EBUSY, "ERR_SESSION_QUEUED", "session %s waits to be admitted, at place %u",
                  session->id, queue_position(session));
        http_reply_error(request, &error);
    } else if (session && session->state == SESSION_EXPIRED) {
        error_set(&error, EBUSY, "ERR_SESSION_EXPIRED",
                  "session %s has expired and takes no new program; create another", session->id);
        http_reply_error(request, &error);
    } else if (session)
        http_reply_json(request, 200, api_environment_json(session));
}

static void on_changed(void *argument, int result, const char *message)
{
    struct http_request *request = argument;
    if (result < 0) {
        internal_error(request, "the change is in force, but could not be stored and ends with this daemon",
                       message);
        return;
    }
    const struct session *session = find_changed(request);
    if (session)
        api_reply_session(request, 200, session);
}

static void change_session(struct http_request *request, const char *id)
{
    struct session *session = find_session(request, id);
    struct session_request wanted = {.run_pidfd = -1};
    struct error error;
    json_t *document;
    if (!session)
        return;
    int result = declared_check_free(session, &error);
    if (result == 0)
        result = api_parse_session(request->daemon, request->body, request->body_bytes, false, &document,
                                   &wanted, &error);
    if (result == 0) {
        result = admit_change(session, &wanted, &error);
        json_decref(document);
    }
    if (result < 0) {
        http_reply_error(request, &error);
        return;
    }
    log_info("session %s '%s' changed by uid %u", session->id, session->name, (unsigned)request->peer.uid);
    strcpy(request->session_id, session->id);
    store_await(request->daemon, session->id, on_changed, request);
}

/* Also of declared sessions: it changes nothing of what they are. */
static void give_socket(struct http_request *request, const char *id)
{
    struct session *session = find_session(request, id);
    struct error error;
    if (!session)
        return;
    if (session_give_socket(session, &error) < 0) {
        http_reply_error(request, &error);
        return;
    }
    strcpy(request->session_id, session->id);
    store_await(request->daemon, session->id, on_changed, request);
}

/* It has left, or is on its way. */
static void on_suspended(void *argument, int result, const char *message)
{
    struct http_request *request = argument;
    const struct session *session = find_changed(request);
    if (result < 0)
        log_error("session %s: that it is suspended could not be stored: %s", request->session_id, message);
    if (!session)
        return;
    enum move_state state = moves_standing(session).state;
    api_reply_session(request, state == MOVE_LEAVING || state == MOVE_COMING ? 202 : 200, session);
}

static void order_move(struct http_request *request, const char *id,
                       int (*order)(struct session *session, struct error *error))
{
    struct session *session = find_session(request, id);
    struct error error;
    if (!session)
        return;
    if (order(session, &error) < 0) {
        http_reply_error(request, &error);
        return;
    }
    strcpy(request->session_id, session->id);
    store_await(request->daemon, session->id, on_suspended, request);
}

static void suspend_session(struct http_request *request, const char *id)
{
    order_move(request, id, moves_suspend);
}

static void resume_session(struct http_request *request, const char *id)
{
    order_move(request, id, moves_resume);
}

static void on_released(void *argument, int result, const char *message)
{
    if (result < 0)
        internal_error(
            argument,
            "the session is released, but is still in the state file and returns with the next daemon",
            message);
    else
        http_reply_json(argument, 204, NULL);
}

static void on_processes_ended(void *argument, const struct error *why)
{
    struct http_request *request = argument;
    if (why)
        http_reply_error(request, why);
    else
        store_await(request->daemon, request->session_id, on_released, request);
}

static void release_session(struct http_request *request, const char *id)
{
    struct session *session = find_session(request, id);
    struct error error;
    if (!session)
        return;
    if (declared_check_free(session, &error) < 0) {
        http_reply_error(request, &error);
        return;
    }
    const char *kill = http_argument(request, "kill");
    if (session->processes && kill && strcmp(kill, "true") == 0) {
        log_info("session %s '%s': uid %u ends its processes, %u", session->id, session->name,
                 (unsigned)request->peer.uid, session->process_count);
        strcpy(request->session_id, session->id);
        if (release_begin(session, request->peer.uid, on_processes_ended, request, &error) < 0)
            http_reply_error(request, &error);
        return;
    }
    if (session->processes) {
        error_set(&error, EBUSY, "ERR_SESSION_BUSY",
                  "%u process%s attached to session %s, the newest is %d (%s); end them first, or "
                  "release it with --kill",
                  session->process_count, session->process_count == 1 ? " is" : "es are", session->id,
                  (int)session->processes->pid, session->processes->command);
        http_reply_error(request, &error);
        return;
    }
    log_info("session %s '%s' released by uid %u", session->id, session->name, (unsigned)request->peer.uid);
    strcpy(request->session_id, session->id);
    change_publish(request->daemon, &(struct change){CHANGE_SESSION_RELEASED, .session = session},
                   "released by uid %u", (unsigned)request->peer.uid);
    session_end(session, "released");
    store_await(request->daemon, request->session_id, on_released, request);
}

/* --- GPUs, health, metrics ------------------------------------------------------------------------- */

/* Have the dashboard served. The daemon's user alone may open a port of its. */
static void open_dashboard(struct http_request *request, const char *id)
{
    const char *address = NULL;
    struct error error;
    int result = 0;
    if (request->peer.uid != geteuid() && request->peer.uid != 0)
        result = error_set(&error, EACCES, "ERR_FORBIDDEN",
                           "the dashboard shows everybody's sessions; only the daemon's user may open it");
    if (result == 0)
        result = http_open_tcp(request->daemon, &address, &error);
    if (result < 0) {
        http_reply_error(request, &error);
        return;
    }
    log_info("HTTP is served on %s, to programs that have the token", address);
    http_reply_json(request, 200,
                    json_pack("{s:s,s:b}", "address", address, "has_pages", pages[0].path != NULL));
}

static void show_version(struct http_request *request, const char *id)
{
    http_reply_json(request, 200, json_pack("{s:s,s:i}", "version", GPUSLICE_VERSION, "pid", (int)getpid()));
}

static void show_config(struct http_request *request, const char *id)
{
    http_reply_json(request, 200, api_config_json(request->daemon));
}

static void show_health(struct http_request *request, const char *id)
{
    http_reply_text(request, 200, "text/plain", "ok\n");
}

static void show_readiness(struct http_request *request, const char *id)
{
    for (unsigned i = 0; i < request->daemon->gpu_count; i++) {
        if (request->daemon->gpus[i].healthy)
            continue;
        char text[96];
        snprintf(text, sizeof(text), "GPU %s: NVML does not answer\n", request->daemon->gpus[i].label);
        http_reply_text(request, 503, "text/plain", text);
        return;
    }
    http_reply_text(request, 200, "text/plain", "ok\n");
}

static enum pieces_next write_metrics(void *context, FILE *out)
{
    return metrics_write(context, out) ? PIECES_MORE : PIECES_END;
}

static void show_metrics(struct http_request *request, const char *id)
{
    static const char *const types[] = {[METRICS_PROMETHEUS] = "text/plain; version=0.0.4",
                                        [METRICS_INFLUX] = "text/plain; charset=utf-8",
                                        [METRICS_JSON] = "application/x-ndjson"};
    const char *named = http_argument(request, "format");
    enum metrics_format format = METRICS_PROMETHEUS;
    struct error error;
    if (named && !metrics_format_parse(named, &format)) {
        error_set(&error, EINVAL, "ERR_BAD_REQUEST", "format is '%.40s'; expected prometheus, influx or json",
                  named);
        http_reply_error(request, &error);
        return;
    }
    /* metrics-address is for whoever watches the machine. */
    uid_t viewer = request->door == HTTP_METRICS ? 0 : request->peer.uid;
    struct metrics_text *text = malloc(sizeof(*text));
    if (text)
        *text = metrics_begin(request->daemon, viewer, format);
    api_reply_pieces(request, 200, types[format], write_metrics, text);
}

/* --- Routes ---------------------------------------------------------------------------------------- */

struct route {
    const char *method, *path; /* one '*' stands for one segment, the handler's `id` */
    void (*handle)(struct http_request *request, const char *id);
    bool is_public; /* needs no token, and is served on metrics-address */
};

static const struct route routes[] = {
    {"POST", "/v1/sessions", create_session, false},
    {"GET", "/v1/sessions", api_list_sessions, false},
    {"GET", "/v1/sessions/*", show_session, false},
    {"PATCH", "/v1/sessions/*", change_session, false},
    {"DELETE", "/v1/sessions/*", release_session, false},
    {"GET", "/v1/sessions/*/environment", show_environment, false},
    {"POST", "/v1/sessions/*/socket", give_socket, false},
    {"POST", "/v1/sessions/*/suspend", suspend_session, false},
    {"POST", "/v1/sessions/*/resume", resume_session, false},
    {"GET", "/v1/gpus", api_list_gpus, false},
    {"GET", "/v1/scheduler", api_show_scheduler, false},
    {"GET", "/v1/scheduler/turns", api_show_turns, false},
    {"PATCH", "/v1/scheduler", api_change_scheduler, false},
    {"GET", "/v1/events", api_follow_events, false},
    {"GET", "/v1/history", api_show_history, false},
    {"GET", "/v1/usage", api_show_usage, false},
    {"POST", "/v1/dashboard", open_dashboard, false},
    {"GET", "/v1/version", show_version, false},
    {"GET", "/v1/config", show_config, false},
    {"GET", "/healthz", show_health, true},
    {"GET", "/readyz", show_readiness, true},
    {"GET", "/metrics", show_metrics, true},
    {"POST", "/sessions", create_gslice_session, false},
    {"GET", "/sessions", list_gslice_sessions, false},
    {"GET", "/sessions/*", show_gslice_session, false},
    {"DELETE", "/sessions/*", release_session, false},
};

/* The dashboard, for who asks like a browser: it has nothing in it that is anybody's, so it needs no token. */
static bool show_page(struct http_request *request)
{
    for (const struct page *page = pages; page->path; page++) {
        if (strcmp(page->path, request->path) != 0 || strcmp(request->method, "GET") != 0)
            continue;
        http_reply_page(request, page);
        return true;
    }
    return false;
}

static bool path_matches(const char *pattern, const char *path, char id[static SEGMENT_BYTES])
{
    const char *star = strchr(pattern, '*');
    if (!star)
        return strcmp(pattern, path) == 0;
    size_t head = (size_t)(star - pattern);
    if (strncmp(pattern, path, head) != 0)
        return false;
    size_t length = strcspn(path + head, "/");
    if (length == 0 || length >= SEGMENT_BYTES || strcmp(path + head + length, star + 1) != 0)
        return false;
    memcpy(id, path + head, length);
    id[length] = '\0';
    return true;
}

static int check_token(const struct http_request *request, struct error *error)
{
    const struct config_daemon *config = &request->daemon->config.daemon;
    const char *given = http_bearer_token(request);
    if (request->door == HTTP_TOKEN)
        return given && identity_token_matches(http_token(request), given)
                   ? 0
                   : error_set(error, EACCES, "ERR_UNAUTHORIZED",
                               "the token is %s; expected 'Authorization: Bearer' with what is in "
                               "%.300s/http-token",
                               given ? "wrong" : "missing", request->daemon->paths.runtime_dir);
    if (!config->ipc_token[0] || (!given && !config->ipc_token_required))
        return 0;
    if (given && identity_token_matches(config->ipc_token, given))
        return 0;
    return error_set(error, EACCES, "ERR_UNAUTHORIZED",
                     "the token is %s; expected 'Authorization: Bearer' with the daemon's GPUSLICE_IPC_TOKEN",
                     given ? "wrong" : "missing");
}

/* A page of another site, whose name its owner made lead to this machine, is no program of this machine. */
static int check_host(const struct http_request *request, struct error *error)
{
    const char *host = http_header(request, "Host");
    if (request->door == HTTP_TOKEN && !http_tcp_is_local_host(host))
        return error_set(error, EACCES, "ERR_FORBIDDEN",
                         "the Host is '%.80s'; expected localhost or 127.0.0.1", host ? host : "");
    if (request->door == HTTP_METRICS && host &&
        !http_tcp_is_own_host(host, request->daemon->config.daemon.metrics_address))
        return error_set(
            error, EACCES, "ERR_FORBIDDEN",
            "the Host is '%.80s'; expected a number, the machine's name, or the name in metrics-address",
            host);
    return 0;
}

void api_handle(struct http_request *request)
{
    struct error error;
    char id[SEGMENT_BYTES] = "";
    bool is_path = false;
    if (check_host(request, &error) < 0) {
        http_reply_error(request, &error);
        return;
    }
    if (request->door == HTTP_TOKEN && show_page(request))
        return;
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        const struct route *route = &routes[i];
        if ((request->door == HTTP_METRICS && !route->is_public) ||
            !path_matches(route->path, request->path, id))
            continue;
        is_path = true;
        /* HEAD is GET without the body, which the HTTP library leaves out. */
        if (strcmp(route->method, strcmp(request->method, "HEAD") == 0 ? "GET" : request->method) != 0)
            continue;
        if (!route->is_public && (check_token(request, &error) < 0 ||
                                  api_rate_take(request->daemon, request->peer.uid, &error) < 0))
            http_reply_error(request, &error);
        else
            route->handle(request, id);
        return;
    }
    if (strcmp(request->path, "/") == 0 && request->door == HTTP_TOKEN)
        error_set(&error, ENOENT, "ERR_NOT_FOUND",
                  "this gpusliced was built without the dashboard, as npm was missing; the API is below /v1");
    else if (is_path)
        error_set(&error, EINVAL, "ERR_METHOD_NOT_ALLOWED",
                  "%.20s is not a method of %.120s; see share/doc/gpuslice/api.md", request->method,
                  request->path);
    else
        error_set(&error, ENOENT, "ERR_NOT_FOUND", "%.120s does not exist; see share/doc/gpuslice/api.md",
                  request->path);
    http_reply_error(request, &error);
}
