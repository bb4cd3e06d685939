#include "daemon/http/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/http/http_connection.h"
#include "daemon/http/http_crowd.h"
#include "daemon/http/http_relay.h"
#include "daemon/http/http_tcp.h"
#include "daemon/loop/connection_closer.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/deferred.h"
#include "daemon/loop/listener.h"
#include "daemon/loop/log.h"
#include "daemon/users/descriptor_bounds.h"
#include "daemon/users/lent_uids.h"

/* Connections beyond those that http_crowd.h and, for the control socket, descriptor_bounds.h allow: those of root, and
 * those that are about to be closed. */
#define MORE_CONNECTIONS_MAX 512u
/* An event takes one to be sent, and the end of the stream another. */
#define LAST_ROUNDS 8
#define IDLE_SECONDS 30
#define TURNED_AWAY_USEC UINT64_C(1000000)

/* What on_connection() knows a connection by. */
struct entered {
    struct http_guest *guest; /* over TCP; NULL: it came by the control socket, from `uid` */
    uid_t uid;
    struct http_relay *relay; /* NULL: libmicrohttpd has the client's own connection */
};

static const struct entered *entered_by(const struct http_request *request)
{
    const union MHD_ConnectionInfo *context =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return context ? context->socket_context : NULL;
}

static void set_asking(const struct http_request *request, bool asks)
{
    const struct entered *entered = entered_by(request);
    if (entered && entered->guest)
        http_crowd_set_asking(entered->guest, asks);
}

int http_socket(const struct http_request *request)
{
    const struct entered *entered = entered_by(request);
    if (entered && entered->relay)
        return http_relay_client(entered->relay);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

/* --- libmicrohttpd's callbacks --------------------------------------------------------------------- */

static struct http_request *begin_request(struct server *server, struct MHD_Connection *connection)
{
    struct http_request *request = calloc(1, sizeof(*request));
    if (!request)
        return NULL;
    request->daemon = server->daemon;
    request->connection = connection;
    request->door = server->door;
    request->peer.uid = server->door == HTTP_TOKEN ? geteuid() : UID_OVERFLOW;
    if (server->door == HTTP_CONTROL && peer_credentials(http_socket(request), &request->peer) < 0) {
        free(request);
        return NULL;
    }
    return request;
}

/* Go on reading a body that is too long for a while, so that the client gets to read our answer. */
static enum MHD_Result take_body(struct http_request *request, const char *data, size_t *bytes)
{
    size_t total = request->body_bytes + *bytes;
    if (total > HTTP_BODY_BYTES_MAX) {
        free(request->body);
        request->body = NULL;
        request->body_bytes = total;
        *bytes = 0;
        return total > HTTP_DISCARD_BYTES_MAX ? MHD_NO : MHD_YES;
    }
    char *body = realloc(request->body, total + 1);
    if (!body)
        return MHD_NO;
    memcpy(body + request->body_bytes, data, *bytes);
    request->body = body;
    request->body_bytes = total;
    body[total] = '\0';
    *bytes = 0;
    return MHD_YES;
}

static void handle_whole(struct http_request *request)
{
    struct error error;
    if (request->daemon->http->is_stopping) {
        error_set(&error, ESHUTDOWN, "ERR_INTERNAL", "the daemon is ending; ask the next daemon again");
        http_reply_error(request, &error);
        return;
    }
    if (request->body_bytes <= HTTP_BODY_BYTES_MAX) {
        request->daemon->http->handle(request);
        return;
    }
    error_set(&error, EFBIG, "ERR_TOO_LARGE", "the request's body is %zu bytes; expected at most %d",
              request->body_bytes, HTTP_BODY_BYTES_MAX);
    http_reply_error(request, &error);
}

static enum MHD_Result queue_answer(struct http_request *request)
{
    return MHD_queue_response(request->connection, request->status, request->response);
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data, size_t *bytes,
                                  void **state)
{
    struct http_request *request = *state;
    if (!request) {
        *state = request = begin_request(context, connection);
        if (!request)
            return MHD_NO;
        return MHD_YES;
    }
    if (*bytes)
        return take_body(request, data, bytes);
    if (request->response)
        return queue_answer(request);
    request->path = url; /* libmicrohttpd keeps it as long as the request */
    request->method = method;
    set_asking(request, true);
    if (http_is_stopping(request)) {
        handle_whole(request);
        return queue_answer(request);
    }
    http_wait_for_turn(request);
    return MHD_YES;
}

/* The turn of a request that has come whole, or of an answer that goes on. */
static void on_turn(void *owner)
{
    struct http_request *request = owner;
    if (request->response)
        http_resume(request);
    else
        handle_whole(request);
}

static void on_completed(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    struct http_request *request = *state;
    if (!request)
        return;
    set_asking(request, false);
    if (request->response)
        MHD_destroy_response(request->response);
    http_turns_leave(request->daemon->http->turns, &request->turn);
    if (request->stream_gone)
        request->stream_gone(request->stream_context);
    free(request->body);
    free(request);
    *state = NULL;
}

/* A zero in a path would end the path for everything that reads it. A path with one stays as it was sent, and no route
 * matches it. */
static size_t on_unescape(void *context, struct MHD_Connection *connection, char *text)
{
    return strstr(text, "%00") ? strlen(text) : MHD_http_unescape(text);
}

static void on_mhd_log(void *context, const char *format, va_list arguments)
{
    char text[256];
    vsnprintf(text, sizeof(text), format, arguments);
    log_debug("http: %s", text);
}

/* --- New connections ------------------------------------------------------------------------------- */

static struct entered enter_as(struct server *server)
{
    struct entered entered = {
        .guest = server->entering_guest, .uid = server->entering.uid, .relay = server->entering_relay};
    server->entering_guest = NULL;
    server->entering_relay = NULL;
    return entered;
}

/* From when libmicrohttpd has a connection until it closes it, the connection counts as its user's. A relayed one
 * counts by its relay, one over TCP as a guest. */
static void on_connection(void *context, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode what)
{
    struct server *server = context;
    struct entered *entered = *state;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *state = entered = calloc(1, sizeof(*entered));
        if (!entered)
            return;
        *entered = enter_as(server);
        if (!entered->relay && !entered->guest)
            user_add(server->daemon, entered->uid, USER_REQUEST);
        return;
    }
    if (!entered)
        return;
    if (entered->guest)
        http_crowd_leave(entered->guest);
    else if (entered->relay)
        http_relay_end(entered->relay);
    else
        user_remove(server->daemon, entered->uid, USER_REQUEST);
    free(entered);
}

static void close_turned_away(struct server *server)
{
    for (unsigned i = 0; i < TURNED_AWAY_MAX; i++)
        if (server->turned_away[i])
            connection_closer_close(server->daemon, server->turned_away[i] - 1);
    memset(server->turned_away, 0, sizeof(server->turned_away));
    server->turned_away_end = sd_event_source_disable_unref(server->turned_away_end);
}

static int on_turned_away_end(sd_event_source *source, uint64_t usec, void *userdata)
{
    close_turned_away(userdata);
    return 0;
}

/* A user with too many connections is told so before the client has said what it wants. If the connection were closed
 * by then, the client would only see a broken connection. So the last few stay open a little for what the client sends,
 * which nobody reads. */
static void turn_away(struct server *server, int fd, const struct error *error)
{
    cleanup_free char *body = http_error_text(error), *text = NULL;
    if (body && asprintf(&text,
                         "HTTP/1.1 %u Refused\r\nConnection: close\r\nContent-Type: application/json\r\n"
                         "Content-Length: %zu\r\n\r\n%s",
                         http_status_of(error->code), strlen(body), body) >= 0)
        send(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    int *place = &server->turned_away[server->turned_away_count++ % TURNED_AWAY_MAX];
    if (*place)
        connection_closer_close(server->daemon, *place - 1);
    *place = fd + 1;
    if (!server->turned_away_end)
        sd_event_add_time_relative(server->daemon->loop, &server->turned_away_end, CLOCK_MONOTONIC,
                                   TURNED_AWAY_USEC, 0, on_turned_away_end, server);
}

/* Whether this user may ask at all, and has not too many connections. */
static int check_user(struct daemon *daemon, uid_t uid, struct error *error)
{
    char user[LENT_UIDS_NAME];
    if (lent_uids_find(daemon, uid, user))
        return error_set(error, EACCES, "ERR_FORBIDDEN",
                         "uid %u is lent to %s by /etc/subuid, for containers; ask as that user",
                         (unsigned)uid, user);
    return user_check(daemon, uid, USER_REQUEST, error);
}

static void on_enter(void *context, int fd)
{
    struct server *server = context;
    struct error error;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int result = peer_credentials(fd, &server->entering);
    if (result == 0)
        result = check_user(server->daemon, server->entering.uid, &error);
    else
        error_set_errno(&error, -result, "cannot find out which process connects");
    if (result < 0) {
        turn_away(server, fd, &error);
        return;
    }
    server->entering_relay = NULL;
    if (http_relay_is_needed(fd)) {
        int client = fd;
        server->entering_relay = http_relay_begin(server->daemon, client, server->entering.uid, &fd);
        if (!server->entering_relay) {
            connection_closer_close(server->daemon, client);
            return;
        }
    }
    /* Closes it on failure. */
    MHD_add_connection(server->mhd, fd, (struct sockaddr *)&address, sizeof(address));
    if (server->entering_relay)
        http_relay_end(server->entering_relay);
    server->entering_relay = NULL;
}

static void on_enter_tcp(void *context, int fd)
{
    struct server *server = context;
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof(address);
    if (getpeername(fd, (struct sockaddr *)&address, &length) == 0)
        server->entering_guest = http_crowd_enter(server->crowd, fd, (struct sockaddr *)&address);
    if (!server->entering_guest) { /* the client has gone already, or there is no memory */
        close(fd);
        return;
    }
    MHD_add_connection(server->mhd, fd, (struct sockaddr *)&address, length); /* closes it on failure */
    if (server->entering_guest)
        http_crowd_leave(server->entering_guest);
    server->entering_guest = NULL;
}

/* --- In the loop ----------------------------------------------------------------------------------- */

static int run(struct server *server)
{
    server->daemon->http->run_began_usec = daemon_now_usec();
    MHD_run(server->mhd);
    return 0;
}

static int on_ready(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    return run(userdata);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    return run(userdata);
}

static void on_due(void *context)
{
    run(context);
}

/* For how long may the loop sleep? sd-event asks this before every event, and there may be many before ours is
 * dispatched. So what is due now needs a source that stays pending when it is set again, which a timer does not. */
static int on_prepare(sd_event_source *source, void *userdata)
{
    struct server *server = userdata;
    MHD_UNSIGNED_LONG_LONG milliseconds = 0;
    if (MHD_get_timeout(server->mhd, &milliseconds) != MHD_YES)
        return sd_event_source_set_enabled(server->timer, SD_EVENT_OFF);
    if (milliseconds == 0) {
        deferred_wake(server->due);
        return 0;
    }
    sd_event_source_set_time_relative(server->timer, milliseconds * 1000);
    return sd_event_source_set_enabled(server->timer, SD_EVENT_ONESHOT);
}

/* Send what is left for those who follow, who read at once. */
static void run_last(struct server *server)
{
    MHD_UNSIGNED_LONG_LONG milliseconds = 0;
    run(server);
    for (unsigned rounds = 1; rounds < LAST_ROUNDS; rounds++)
        if (MHD_get_timeout(server->mhd, &milliseconds) == MHD_YES && milliseconds == 0)
            run(server);
}

/* Call when every waiting request has been answered. */
static void stop_server(struct server *server)
{
    listener_close(server->listener);
    close_turned_away(server);
    sd_event_source_disable_unref(server->ready);
    sd_event_source_disable_unref(server->timer);
    if (server->mhd) {
        run_last(server);
        MHD_stop_daemon(server->mhd);
    }
    http_crowd_free(server->crowd);
    deferred_free(server->due);
    *server = (struct server){.mhd = NULL};
}

/* Takes over `fd`, also where it fails; then stop_server() undoes what was done. */
static int open_server(struct daemon *daemon, enum http_door door, int fd, struct error *error)
{
    struct server *server = &daemon->http->servers[door];
    server->daemon = daemon;
    server->door = door;
    bool is_control = door == HTTP_CONTROL;
    server->mhd = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | MHD_USE_NO_LISTEN_SOCKET, 0, NULL,
        NULL, on_request, server, MHD_OPTION_EXTERNAL_LOGGER, on_mhd_log, NULL, MHD_OPTION_UNESCAPE_CALLBACK,
        on_unescape, NULL, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, server, MHD_OPTION_CONNECTION_LIMIT,
        MORE_CONNECTIONS_MAX + (is_control ? USER_ALL_CONNECTIONS_MAX : HTTP_CROWD_MAX),
        MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS, MHD_OPTION_END);
    server->crowd = is_control ? NULL : http_crowd_new();
    if (!server->mhd || !(is_control || server->crowd)) {
        close(fd);
        return error_set(error, EIO, NULL, "libmicrohttpd does not start");
    }
    if (listener_open(daemon, fd, is_control ? "control.sock" : "TCP", is_control ? on_enter : on_enter_tcp,
                      server, &server->listener, error) < 0) {
        close(fd);
        return -ENOMEM;
    }
    int epoll_fd = MHD_get_daemon_info(server->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    int result = sd_event_add_io(daemon->loop, &server->ready, epoll_fd, EPOLLIN, on_ready, server);
    if (result >= 0)
        result = sd_event_add_time_relative(daemon->loop, &server->timer, CLOCK_MONOTONIC, 0, 1000, on_timer,
                                            server);
    if (result >= 0)
        result = sd_event_source_set_enabled(server->timer, SD_EVENT_OFF);
    if (result >= 0)
        result = deferred_new(daemon->loop, on_due, server, &server->due);
    if (result >= 0)
        result = sd_event_source_set_prepare(server->ready, on_prepare);
    return result < 0 ? error_set_errno(error, -result, "cannot serve HTTP") : 0;
}

static int start_server(struct daemon *daemon, enum http_door door, int fd, struct error *error)
{
    int result = open_server(daemon, door, fd, error);
    if (result < 0)
        stop_server(&daemon->http->servers[door]);
    return result;
}

static int open_tcp(struct daemon *daemon, const char *where, struct error *error)
{
    struct http *http = daemon->http;
    int result = http_tcp_make_token(&daemon->paths, http->token, error);
    if (result < 0)
        return result;
    int fd = http_tcp_listen("http-address (GPUSLICE_HTTP_ADDR)", where, true, error);
    if (fd < 0)
        return fd;
    char address[HTTP_ADDRESS_TEXT];
    http_tcp_address(fd, address);
    result = start_server(daemon, HTTP_TOKEN, fd, error);
    if (result == 0)
        strcpy(http->address, address);
    return result;
}

int http_open_tcp(struct daemon *daemon, const char **address, struct error *error)
{
    struct http *http = daemon->http;
    int result = http->address[0] ? 0 : open_tcp(daemon, "127.0.0.1:0", error);
    *address = http->address;
    return result;
}

int http_start(struct daemon *daemon, int control_fd, http_handler handle, struct error *error)
{
    struct http *http = calloc(1, sizeof(*http));
    const struct config_daemon *config = &daemon->config.daemon;
    if (!http)
        return error_set_errno(error, ENOMEM, "cannot serve HTTP");
    http->handle = handle;
    daemon->http = http;
    http->turns = http_turns_start(daemon, on_turn, error);
    if (!http->turns)
        return -ENOMEM;
    int fd, result = start_server(daemon, HTTP_CONTROL, control_fd, error);
    if (result == 0 && config->metrics_address[0]) {
        fd =
            http_tcp_listen("metrics-address (GPUSLICE_METRICS_ADDR)", config->metrics_address, false, error);
        result = fd < 0 ? fd : start_server(daemon, HTTP_METRICS, fd, error);
    }
    if (result == 0 && config->http_address[0])
        result = open_tcp(daemon, config->http_address, error);
    return result;
}

const char *http_token(const struct http_request *request)
{
    return request->daemon->http->token;
}

int http_replace_control(struct daemon *daemon, int fd)
{
    return listener_replace(daemon->http->servers[HTTP_CONTROL].listener, fd);
}

bool http_is_idle(struct daemon *daemon)
{
    static const enum http_door doors[] = {HTTP_CONTROL, HTTP_TOKEN};
    for (size_t i = 0; i < sizeof(doors) / sizeof(doors[0]); i++) {
        struct MHD_Daemon *mhd = daemon->http->servers[doors[i]].mhd;
        const union MHD_DaemonInfo *info =
            mhd ? MHD_get_daemon_info(mhd, MHD_DAEMON_INFO_CURRENT_CONNECTIONS) : NULL;
        if (info && info->num_connections > 0)
            return false;
    }
    return true;
}

void http_stop(struct daemon *daemon)
{
    if (!daemon->http)
        return;
    daemon->http->is_stopping = true;
    if (daemon->http->turns)
        http_turns_finish(daemon->http->turns);
    for (unsigned door = 0; door < HTTP_DOORS; door++)
        stop_server(&daemon->http->servers[door]);
    http_turns_stop(daemon->http->turns);
    free(daemon->http);
    daemon->http = NULL;
}
