#include "daemon/api/api.h"

#include <errno.h>
#include <string.h>

#include "base/process.h"
#include "daemon/api/api_rate.h"
#include "daemon/http/http.h"
#include "daemon/http/http_tcp.h"
#include "daemon/http/pages.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/identity.h"

#define SEGMENT_BYTES 128

struct route {
    const char *method, *path; /* one '*' stands for one segment, which becomes the handler's `id` */
    void (*handle)(struct http_request *request, const char *id);
    bool is_public; /* needs no token, and is served on metrics-address too */
};

static const struct route routes[] = {
    {"POST", "/v1/sessions", api_create_session, false},
    {"GET", "/v1/sessions", api_list_sessions, false},
    {"GET", "/v1/sessions/*", api_show_session, false},
    {"PATCH", "/v1/sessions/*", api_change_session, false},
    {"DELETE", "/v1/sessions/*", api_release_session, false},
    {"GET", "/v1/sessions/*/environment", api_show_environment, false},
    {"POST", "/v1/sessions/*/socket", api_give_socket, false},
    {"POST", "/v1/sessions/*/suspend", api_suspend_session, false},
    {"POST", "/v1/sessions/*/resume", api_resume_session, false},
    {"POST", "/v1/room", api_count_room, false},
    {"GET", "/v1/gpus", api_list_gpus, false},
    {"GET", "/v1/scheduler", api_show_scheduler, false},
    {"GET", "/v1/scheduler/turns", api_show_turns, false},
    {"PATCH", "/v1/scheduler", api_change_scheduler, false},
    {"GET", "/v1/events", api_follow_events, false},
    {"GET", "/v1/history", api_show_history, false},
    {"GET", "/v1/history/sessions", api_list_ended, false},
    {"GET", "/v1/usage", api_show_usage, false},
    {"POST", "/v1/dashboard", api_open_dashboard, false},
    {"GET", "/v1/version", api_show_version, false},
    {"GET", "/v1/config", api_show_config, false},
    {"GET", "/healthz", api_show_health, true},
    {"GET", "/readyz", api_show_readiness, true},
    {"GET", "/metrics", api_show_metrics, true},
    {"POST", "/sessions", api_create_gslice_session, false},
    {"GET", "/sessions", api_list_sessions, false},
    {"GET", "/sessions/*", api_show_session, false},
    {"DELETE", "/sessions/*", api_release_session, false},
};

bool api_is_gslice(const struct http_request *request)
{
    return strncmp(request->path, "/v1/", 4) != 0;
}

/* The dashboard's files, for browsers. They contain nothing that is anybody's, so they need no token. */
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
                               "the token is %s; expected 'Authorization: Bearer' with the content of "
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

/* Refuse a page of another site, whose owner has made its name lead to this machine. */
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

/* Handle it, with events saying who asked. */
static void handle(const struct route *route, struct http_request *request, const char *id)
{
    struct requester asker = {.uid = request->peer.uid, .pid = request->peer.pid};
    if (strcmp(route->method, "GET") != 0) {
        if (asker.pid)
            process_command(asker.pid, asker.command, sizeof(asker.command));
        request->daemon->asker = &asker;
    }
    route->handle(request, id);
    request->daemon->asker = NULL;
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
        /* HEAD is GET without the body; the HTTP library leaves the body out. */
        if (strcmp(route->method, strcmp(request->method, "HEAD") == 0 ? "GET" : request->method) != 0)
            continue;
        if (!route->is_public && (check_token(request, &error) < 0 ||
                                  api_rate_take(request->daemon, request->peer.uid, &error) < 0))
            http_reply_error(request, &error);
        else
            handle(route, request, id);
        return;
    }
    if (strcmp(request->path, "/") == 0 && request->door == HTTP_TOKEN)
        error_set(&error, ENOENT, "ERR_NOT_FOUND",
                  "this gpusliced was built without npm and has no dashboard; the API is below /v1");
    else if (is_path)
        error_set(&error, EINVAL, "ERR_METHOD_NOT_ALLOWED",
                  "%.20s is not a method of %.120s; see share/doc/gpuslice/api.md", request->method,
                  request->path);
    else
        error_set(&error, ENOENT, "ERR_NOT_FOUND", "%.120s does not exist; see share/doc/gpuslice/api.md",
                  request->path);
    http_reply_error(request, &error);
}
