#include "kube/grpc/grpc_connection.h"
#include "base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define STREAMS_MAX 64

/* --- What must hold -------------------------------------------------------------------------------- */

bool grpc_call_is_valid(const struct grpc_call *call)
{
    const struct grpc_connection *connection = call->connection;
    return call->out_at <= call->out_bytes && (call->out || !call->out_bytes) &&
           (call->in || !call->in_bytes) && !(connection->server && call->is_ended && call->deadline) &&
           !(!connection->server && call->is_answered) && memchr(call->text, '\0', sizeof(call->text));
}

bool grpc_connection_is_valid(const struct grpc_connection *connection)
{
    const struct grpc_call *call;
    LIST_FOREACH (call, &connection->calls, next)
        if (call->connection != connection || !grpc_call_is_valid(call))
            return false;
    return connection->fd >= 0 && connection->session && connection->source &&
           !(connection->server && connection->request) &&
           (!connection->request || connection->request->connection == connection) &&
           (!connection->server || connection->server->connection_count > 0);
}

/* --- Streams --------------------------------------------------------------------------------------- */

void grpc_call_free(struct grpc_call *call)
{
    GS_CHECK(grpc_call_is_valid(call));
    LIST_REMOVE(call, next);
    sd_event_source_disable_unref(call->deadline);
    free(call->in);
    free(call->out);
    free(call);
}

struct grpc_call *grpc_call_new(struct grpc_connection *connection, int32_t stream)
{
    struct grpc_call *call = calloc(1, sizeof(*call));
    if (!call)
        return NULL;
    call->connection = connection;
    call->stream = stream;
    call->status = GRPC_UNKNOWN;
    LIST_INSERT_HEAD(&connection->calls, call, next);
    return call;
}

bool grpc_grow(uint8_t **bytes, size_t used, size_t more)
{
    if (more > GRPC_MESSAGE_MAX + PREFIX_BYTES || used + more > 2 * (size_t)(GRPC_MESSAGE_MAX + PREFIX_BYTES))
        return false;
    uint8_t *grown = realloc(*bytes, used + more ? used + more : 1);
    if (grown)
        *bytes = grown;
    return grown != NULL;
}

/* --- Connections ----------------------------------------------------------------------------------- */

void grpc_request_ended(struct grpc_connection *connection, enum grpc_status status, const char *text)
{
    struct grpc_request *request = connection->request;
    if (!request)
        return;
    connection->request = NULL;
    request->answer->end(request->context, status, text);
    free(request);
}

void grpc_call_gone(struct grpc_call *call)
{
    if (call->gone && !call->is_ended)
        call->gone(call->gone_context, call);
    call->gone = NULL;
}

void grpc_connection_close(struct grpc_connection *connection)
{
    if (connection->is_busy) {
        connection->is_broken = true;
        return;
    }
    GS_CHECK(grpc_connection_is_valid(connection));
    connection->is_busy = true; /* the callbacks below must not close it again */
    while (!LIST_EMPTY(&connection->calls)) {
        grpc_call_gone(LIST_FIRST(&connection->calls));
        grpc_call_free(LIST_FIRST(&connection->calls));
    }
    grpc_request_ended(connection, GRPC_UNAVAILABLE, "the connection broke off");
    if (connection->server) {
        LIST_REMOVE(connection, next);
        connection->server->connection_count--;
    }
    sd_event_source_disable_unref(connection->source);
    nghttp2_session_del(connection->session);
    close(connection->fd);
    free(connection);
}

void grpc_connection_flush(struct grpc_connection *connection)
{
    if (connection->is_busy)
        return; /* sent when nghttp2 returns */
    GS_CHECK(grpc_connection_is_valid(connection));
    connection->is_busy = true;
    int result = nghttp2_session_send(connection->session);
    connection->is_busy = false;
    GS_CHECK(grpc_connection_is_valid(connection));
    if (result != 0 || connection->is_broken ||
        (!nghttp2_session_want_read(connection->session) &&
         !nghttp2_session_want_write(connection->session))) {
        grpc_connection_close(connection);
        return;
    }
    sd_event_source_set_io_events(
        connection->source, nghttp2_session_want_write(connection->session) ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void grpc_connection_flush_soon(struct grpc_connection *connection)
{
    sd_event_source_set_io_events(connection->source, EPOLLIN | EPOLLOUT);
}

static ssize_t on_send(nghttp2_session *session, const uint8_t *bytes, size_t length, int flags,
                       void *userdata)
{
    struct grpc_connection *connection = userdata;
    ssize_t sent = send(connection->fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
        return sent;
    return errno == EAGAIN || errno == EINTR ? NGHTTP2_ERR_WOULDBLOCK : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_ready(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct grpc_connection *connection = userdata;
    uint8_t bytes[16384];
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        ssize_t length = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR)) {
            grpc_connection_close(connection);
            return 0;
        }
        if (length > 0) {
            connection->is_busy = true;
            ssize_t read = nghttp2_session_mem_recv(connection->session, bytes, (size_t)length);
            connection->is_busy = false;
            if (read < 0 || connection->is_broken) {
                grpc_connection_close(connection);
                return 0;
            }
        }
    }
    grpc_connection_flush(connection);
    return 0;
}

/* --- Making ---------------------------------------------------------------------------------------- */

struct grpc_connection *grpc_connection_new(sd_event *loop, int fd, struct grpc_server *server,
                                            void (*receive_by)(nghttp2_session_callbacks *callbacks))
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    struct grpc_connection *connection = calloc(1, sizeof(*connection));
    if (!connection || nghttp2_session_callbacks_new(&callbacks) != 0 || nghttp2_option_new(&option) != 0)
        goto no_memory;
    connection->loop = loop;
    connection->server = server;
    connection->fd = fd;
    nghttp2_session_callbacks_set_send_callback(callbacks, on_send);
    receive_by(callbacks);
    nghttp2_option_set_no_http_messaging(option, 1); /* old kubelets send a path as :authority */
    int result = server ? nghttp2_session_server_new2(&connection->session, callbacks, connection, option)
                        : nghttp2_session_client_new2(&connection->session, callbacks, connection, option);
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX},
                                               {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, 16384}};
    if (result != 0 || nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, settings, 2) != 0 ||
        sd_event_add_io(loop, &connection->source, fd, EPOLLIN, on_ready, connection) < 0)
        goto no_session;
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
    return connection;

no_session:
    nghttp2_session_del(connection->session);
no_memory:
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
    free(connection);
    close(fd);
    return NULL;
}
