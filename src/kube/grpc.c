#include "kube/grpc.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"

#define PREFIX_BYTES 5u /* of a message: one that says whether it is compressed, four with its length */
#define CONNECTIONS_MAX 32
#define STREAMS_MAX 64
#define TEXT_MAX 512

struct connection;

/* One stream of a connection: a call that we answer, or a request of ours. */
struct grpc_call {
    LIST_ENTRY(grpc_call) next;
    struct connection *connection;
    int32_t stream;
    char path[128];
    uint64_t timeout_usec; /* the client's deadline; 0: none */
    sd_event_source *deadline;
    uint8_t *in; /* what has come and was not handed on */
    size_t in_bytes;
    uint8_t *out; /* what is to be sent, from out_at on */
    size_t out_bytes, out_at;
    bool is_whole;    /* the peer has said all */
    bool is_answered; /* a server's: headers are out */
    bool is_ended;    /* we have said all: then the status goes out */
    enum grpc_status status;
    char text[TEXT_MAX];
    void (*gone)(void *context, struct grpc_call *call);
    void *gone_context;
};

/* A server's one, or the client's end with its one request. */
struct connection {
    LIST_ENTRY(connection) next;
    struct grpc_server *server;   /* NULL: we ask */
    struct grpc_request *request; /* NULL: we answer */
    sd_event *loop;
    sd_event_source *source;
    int fd;
    nghttp2_session *session;
    LIST_HEAD(, grpc_call) calls;
    bool is_busy;   /* nghttp2 calls us: it must not be freed */
    bool is_broken; /* to be closed as soon as it is not busy */
};

struct grpc_server {
    sd_event *loop;
    sd_event_source *source;
    int fd;
    const struct grpc_method *methods;
    void *context;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    ino_t inode;
    LIST_HEAD(, connection) connections;
    unsigned connection_count;
};

struct grpc_request {
    struct connection *connection;
    const struct grpc_answer *answer;
    void *context;
};

/* --- Streams --------------------------------------------------------------------------------------- */

static void call_free(struct grpc_call *call)
{
    LIST_REMOVE(call, next);
    sd_event_source_disable_unref(call->deadline);
    free(call->in);
    free(call->out);
    free(call);
}

static struct grpc_call *call_new(struct connection *connection, int32_t stream)
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

/* Make room for `more` bytes behind the `used` ones; false when that is too much. */
static bool grow(uint8_t **bytes, size_t used, size_t more)
{
    if (more > GRPC_MESSAGE_MAX + PREFIX_BYTES || used + more > 2 * (size_t)(GRPC_MESSAGE_MAX + PREFIX_BYTES))
        return false;
    uint8_t *grown = realloc(*bytes, used + more ? used + more : 1);
    if (grown)
        *bytes = grown;
    return grown != NULL;
}

/* The first whole message of what has come: 1, or 0 when there is none yet, or -1 when there can be none. */
static int first_message(const struct grpc_call *call, const uint8_t **message, size_t *bytes)
{
    const uint8_t *in = call->in;
    if (call->in_bytes < PREFIX_BYTES)
        return 0;
    *bytes = (size_t)in[1] << 24 | (size_t)in[2] << 16 | (size_t)in[3] << 8 | in[4];
    if (in[0] != 0 || *bytes > GRPC_MESSAGE_MAX)
        return -1;
    *message = in + PREFIX_BYTES;
    return call->in_bytes - PREFIX_BYTES >= *bytes;
}

static void drop_first_message(struct grpc_call *call, size_t bytes)
{
    call->in_bytes -= PREFIX_BYTES + bytes;
    memmove(call->in, call->in + PREFIX_BYTES + bytes, call->in_bytes);
}

/* --- Connections ----------------------------------------------------------------------------------- */

/* Tell the one who asked, once. */
static void request_ended(struct connection *connection, enum grpc_status status, const char *text)
{
    struct grpc_request *request = connection->request;
    if (!request)
        return;
    connection->request = NULL;
    request->answer->end(request->context, status, text);
    free(request);
}

/* The client has gone, or its time is over: who answers later is told. */
static void call_gone(struct grpc_call *call)
{
    if (call->gone && !call->is_ended)
        call->gone(call->gone_context, call);
    call->gone = NULL;
}

static void connection_close(struct connection *connection)
{
    if (connection->is_busy) {
        connection->is_broken = true;
        return;
    }
    connection->is_busy = true; /* who is told below may not come back here */
    while (!LIST_EMPTY(&connection->calls)) {
        call_gone(LIST_FIRST(&connection->calls));
        call_free(LIST_FIRST(&connection->calls));
    }
    request_ended(connection, GRPC_UNAVAILABLE, "the connection broke off");
    if (connection->server) {
        LIST_REMOVE(connection, next);
        connection->server->connection_count--;
    }
    sd_event_source_disable_unref(connection->source);
    nghttp2_session_del(connection->session);
    close(connection->fd);
    free(connection);
}

/* Send what nghttp2 has to send; the connection may be closed by it. */
static void flush(struct connection *connection)
{
    if (connection->is_busy)
        return; /* done when nghttp2 returns */
    connection->is_busy = true;
    int result = nghttp2_session_send(connection->session);
    connection->is_busy = false;
    if (result != 0 || connection->is_broken ||
        (!nghttp2_session_want_read(connection->session) &&
         !nghttp2_session_want_write(connection->session))) {
        connection_close(connection);
        return;
    }
    sd_event_source_set_io_events(
        connection->source, nghttp2_session_want_write(connection->session) ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* From the loop, once we have returned: what goes wrong then frees no call under the hands of who answers it. */
static void flush_soon(struct connection *connection)
{
    sd_event_source_set_io_events(connection->source, EPOLLIN | EPOLLOUT);
}

static ssize_t on_send(nghttp2_session *session, const uint8_t *bytes, size_t length, int flags,
                       void *userdata)
{
    struct connection *connection = userdata;
    ssize_t sent = send(connection->fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
        return sent;
    return errno == EAGAIN || errno == EINTR ? NGHTTP2_ERR_WOULDBLOCK : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_ready(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct connection *connection = userdata;
    uint8_t bytes[16384];
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        ssize_t length = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR)) {
            connection_close(connection);
            return 0;
        }
        if (length > 0) {
            connection->is_busy = true;
            ssize_t read = nghttp2_session_mem_recv(connection->session, bytes, (size_t)length);
            connection->is_busy = false;
            if (read < 0 || connection->is_broken) {
                connection_close(connection);
                return 0;
            }
        }
    }
    flush(connection);
    return 0;
}

/* --- Sending --------------------------------------------------------------------------------------- */

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){.name = (uint8_t *)name,
                        .value = (uint8_t *)value,
                        .namelen = strlen(name),
                        .valuelen = strlen(value)};
}

/* grpc-message is percent-encoded. */
static void encode_text(const char *text, char encoded[static 3 * TEXT_MAX])
{
    char *at = encoded;
    for (; *text; text++) {
        bool is_plain = *text >= ' ' && *text <= '~' && *text != '%';
        at += is_plain ? sprintf(at, "%c", *text) : sprintf(at, "%%%02X", (unsigned)(unsigned char)*text);
    }
    *at = '\0';
}

static void decode_text(const char *encoded, char text[static TEXT_MAX])
{
    size_t used = 0;
    for (; *encoded && used < TEXT_MAX - 1; encoded++) {
        unsigned byte;
        int end = 0;
        text[used++] = *encoded;
        if (*encoded != '%' || sscanf(encoded + 1, "%2x%n", &byte, &end) != 1 || end != 2)
            continue;
        text[used - 1] = (char)byte;
        encoded += end;
    }
    text[used] = '\0';
}

static void submit_status(nghttp2_session *session, const struct grpc_call *call)
{
    char number[16], text[3 * TEXT_MAX];
    snprintf(number, sizeof(number), "%d", (int)call->status);
    encode_text(call->text, text);
    const nghttp2_nv trailers[] = {header("grpc-status", number), header("grpc-message", text)};
    nghttp2_submit_trailer(session, call->stream, trailers, *text ? 2 : 1);
}

static ssize_t on_read_out(nghttp2_session *session, int32_t stream, uint8_t *bytes, size_t length,
                           uint32_t *flags, nghttp2_data_source *source, void *userdata)
{
    struct grpc_call *call = source->ptr;
    size_t left = call->out_bytes - call->out_at, now = left < length ? left : length;
    if (now)
        memcpy(bytes, call->out + call->out_at, now);
    call->out_at += now;
    if (call->out_at < call->out_bytes)
        return (ssize_t)now;
    call->out_at = call->out_bytes = 0;
    if (call->is_ended) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (call->connection->server) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            submit_status(session, call);
        }
    } else if (now == 0) {
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)now;
}

static bool append_message(struct grpc_call *call, const void *message, size_t bytes)
{
    if (bytes > GRPC_MESSAGE_MAX || !grow(&call->out, call->out_bytes, PREFIX_BYTES + bytes))
        return false;
    uint8_t *at = call->out + call->out_bytes;
    at[0] = 0;
    for (unsigned i = 0; i < 4; i++)
        at[1 + i] = (uint8_t)(bytes >> (24 - 8 * i));
    if (bytes)
        memcpy(at + PREFIX_BYTES, message, bytes);
    call->out_bytes += PREFIX_BYTES + bytes;
    return true;
}

/* Headers first, and then whatever there is to send. */
static void begin_answer(struct grpc_call *call)
{
    nghttp2_session *session = call->connection->session;
    if (call->is_answered) {
        nghttp2_session_resume_data(session, call->stream);
        return;
    }
    const nghttp2_nv headers[] = {header(":status", "200"), header("content-type", "application/grpc")};
    const nghttp2_data_provider provider = {.source.ptr = call, .read_callback = on_read_out};
    call->is_answered = true;
    nghttp2_submit_response(session, call->stream, headers, 2, &provider);
}

void grpc_call_send(struct grpc_call *call, const void *message, size_t bytes)
{
    if (!append_message(call, message, bytes)) {
        grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED,
                      "the answer is too long, or the client does not read it");
        return;
    }
    begin_answer(call);
    flush_soon(call->connection);
}

void grpc_call_end(struct grpc_call *call, enum grpc_status status, const char *text)
{
    if (call->is_ended)
        return;
    call->is_ended = true;
    call->status = status;
    call->deadline = sd_event_source_disable_unref(call->deadline);
    snprintf(call->text, sizeof(call->text), "%s", text ? text : "");
    begin_answer(call);
    flush_soon(call->connection);
}

void grpc_call_watch(struct grpc_call *call, void (*gone)(void *context, struct grpc_call *call),
                     void *context)
{
    call->gone = gone;
    call->gone_context = context;
}

/* --- Receiving ------------------------------------------------------------------------------------- */

/* "5S", "100m": up to eight digits and a unit. 0: none, or not understood. */
static uint64_t parse_timeout(const uint8_t *value, size_t length)
{
    static const struct {
        char unit;
        uint64_t nanoseconds;
    } units[] = {{'H', UINT64_C(3600000000000)},
                 {'M', UINT64_C(60000000000)},
                 {'S', 1000000000},
                 {'m', 1000000},
                 {'u', 1000},
                 {'n', 1}};
    uint64_t number = 0;
    if (length < 2 || length > 9)
        return 0;
    for (size_t i = 0; i + 1 < length; i++) {
        if (value[i] < '0' || value[i] > '9')
            return 0;
        number = number * 10 + (uint64_t)(value[i] - '0');
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if ((char)value[length - 1] == units[i].unit) {
            uint64_t usec = number * units[i].nanoseconds / 1000; /* at most 1e8 hours: fits */
            return usec ? usec : 1;
        }
    return 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *userdata)
{
    struct connection *connection = userdata;
    if (!connection->server || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct grpc_call *call = call_new(connection, frame->hd.stream_id);
    if (!call)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
    return 0;
}

static bool is_header(const uint8_t *name, size_t length, const char *wanted)
{
    return length == strlen(wanted) && memcmp(name, wanted, length) == 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_length, const uint8_t *value, size_t length, uint8_t flags, void *userdata)
{
    struct grpc_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (!call)
        return 0;
    if (is_header(name, name_length, ":path"))
        snprintf(call->path, sizeof(call->path), "%.*s", (int)(length < 200 ? length : 200),
                 (const char *)value);
    else if (is_header(name, name_length, "grpc-timeout"))
        call->timeout_usec = parse_timeout(value, length);
    else if (is_header(name, name_length, "grpc-status") && !call->connection->server)
        call->status = (enum grpc_status)atoi((const char *)value); /* nghttp2 ends it with a zero */
    else if (is_header(name, name_length, "grpc-message") && !call->connection->server)
        decode_text((const char *)value, call->text);
    return 0;
}

/* Hand messages of an answer on as they come. False: it breaks the protocol. */
static bool take_answers(struct grpc_call *call)
{
    const uint8_t *message;
    size_t bytes;
    int found;
    while ((found = first_message(call, &message, &bytes)) > 0) {
        struct grpc_request *request = call->connection->request;
        if (request)
            request->answer->message(request->context, message, bytes);
        drop_first_message(call, bytes);
    }
    return found == 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *bytes,
                   size_t length, void *userdata)
{
    struct connection *connection = userdata;
    struct grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);
    if (!call || (connection->server && call->is_ended))
        return 0;
    if (!grow(&call->in, call->in_bytes, length) ||
        (connection->server && call->in_bytes + length > GRPC_MESSAGE_MAX + PREFIX_BYTES)) {
        if (!connection->server)
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "the request is too long");
        return 0;
    }
    memcpy(call->in + call->in_bytes, bytes, length);
    call->in_bytes += length;
    return connection->server || take_answers(call) ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_deadline(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct grpc_call *call = userdata;
    call_gone(call);
    grpc_call_end(call, GRPC_DEADLINE_EXCEEDED, "the deadline is over");
    return 0;
}

static void take_request(struct grpc_call *call)
{
    const struct grpc_server *server = call->connection->server;
    const struct grpc_method *method = server->methods;
    const uint8_t *message;
    size_t bytes;
    while (method->path && strcmp(method->path, call->path) != 0)
        method++;
    if (call->is_ended)
        return;
    if (!method->path)
        grpc_call_end(call, GRPC_UNIMPLEMENTED, "there is no such method here");
    else if (first_message(call, &message, &bytes) <= 0 || call->in_bytes != PREFIX_BYTES + bytes)
        grpc_call_end(call, GRPC_INTERNAL, "expected one message without compression");
    else {
        if (call->timeout_usec)
            sd_event_add_time_relative(server->loop, &call->deadline, CLOCK_MONOTONIC, call->timeout_usec, 0,
                                       on_deadline, call);
        method->take(server->context, call, message, bytes);
    }
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *userdata)
{
    struct connection *connection = userdata;
    struct grpc_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    bool is_last = (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
                   (frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
    if (!call || !is_last || call->is_whole)
        return 0;
    call->is_whole = true;
    if (connection->server)
        take_request(call);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream, uint32_t code, void *userdata)
{
    struct connection *connection = userdata;
    struct grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);
    if (!call)
        return 0;
    call_gone(call);
    if (connection->request) {
        request_ended(connection, call->status, call->text);
        connection->is_broken = true; /* it was for this one */
    }
    nghttp2_session_set_stream_user_data(session, stream, NULL);
    call_free(call);
    return 0;
}

/* --- Making ---------------------------------------------------------------------------------------- */

/* The descriptor is taken over, also on failure. */
static struct connection *connection_new(sd_event *loop, int fd, struct grpc_server *server)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    struct connection *connection = calloc(1, sizeof(*connection));
    if (!connection || nghttp2_session_callbacks_new(&callbacks) != 0 || nghttp2_option_new(&option) != 0)
        goto no_memory;
    connection->loop = loop;
    connection->server = server;
    connection->fd = fd;
    nghttp2_session_callbacks_set_send_callback(callbacks, on_send);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
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

static int on_connect(sd_event_source *source, int listening, uint32_t events, void *userdata)
{
    struct grpc_server *server = userdata;
    int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return 0;
    if (server->connection_count >= CONNECTIONS_MAX) {
        close(fd);
        return 0;
    }
    struct connection *connection = connection_new(server->loop, fd, server);
    if (!connection)
        return 0;
    LIST_INSERT_HEAD(&server->connections, connection, next);
    server->connection_count++;
    flush(connection);
    return 0;
}

static int fill_address(struct sockaddr_un *address, const char *path, struct error *error)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address->sun_path))
        return error_set(
            error, ENAMETOOLONG, NULL,
            "the path of a socket, %.300s, has %zu bytes; a socket's has 107 at most; choose shorter folders",
            path, strlen(path));
    strcpy(address->sun_path, path);
    return 0;
}

static ino_t inode_of(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 ? status.st_ino : 0;
}

int grpc_server_open(sd_event *loop, const char *path, const struct grpc_method *methods, void *context,
                     struct grpc_server **server_out, struct error *error)
{
    struct sockaddr_un address;
    int result = fill_address(&address, path, error);
    if (result < 0)
        return result;
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unlink(path);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 || chmod(path, 0600) < 0 ||
        listen(fd, SOMAXCONN) < 0)
        return error_set_errno(error, errno, "cannot make the socket %s", path);
    struct grpc_server *server = calloc(1, sizeof(*server));
    if (!server || sd_event_add_io(loop, &server->source, fd, EPOLLIN, on_connect, server) < 0) {
        free(server);
        return error_set_errno(error, ENOMEM, "cannot serve %s", path);
    }
    server->loop = loop;
    server->methods = methods;
    server->context = context;
    strcpy(server->path, path);
    server->inode = inode_of(path);
    server->fd = steal_fd(&fd);
    *server_out = server;
    return 0;
}

bool grpc_server_is_found(const struct grpc_server *server)
{
    return server->inode == inode_of(server->path);
}

void grpc_server_close(struct grpc_server *server)
{
    if (!server)
        return;
    while (!LIST_EMPTY(&server->connections))
        connection_close(LIST_FIRST(&server->connections));
    if (grpc_server_is_found(server))
        unlink(server->path);
    sd_event_source_disable_unref(server->source);
    close(server->fd);
    free(server);
}

/* --- Asking ---------------------------------------------------------------------------------------- */

static int on_request_deadline(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct connection *connection = userdata;
    request_ended(connection, GRPC_DEADLINE_EXCEEDED, "it did not answer in time");
    connection_close(connection);
    return 0;
}

static struct grpc_call *submit_request(struct connection *connection, const char *method,
                                        const void *message, size_t bytes)
{
    const nghttp2_nv headers[] = {header(":method", "POST"),
                                  header(":scheme", "http"),
                                  header(":authority", "localhost"),
                                  header(":path", method),
                                  header("te", "trailers"),
                                  header("content-type", "application/grpc"),
                                  header("user-agent", "gpuslice-kubelet")};
    struct grpc_call *call = call_new(connection, 0);
    if (!call || !append_message(call, message, bytes))
        return NULL;
    call->is_ended = true; /* one message is all */
    const nghttp2_data_provider provider = {.source.ptr = call, .read_callback = on_read_out};
    call->stream = nghttp2_submit_request(connection->session, NULL, headers,
                                          sizeof(headers) / sizeof(headers[0]), &provider, call);
    return call->stream > 0 ? call : NULL;
}

static int connect_to(const char *path)
{
    struct sockaddr_un address;
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fill_address(&address, path, NULL) < 0 || fd < 0 ||
        connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        return -1;
    return steal_fd(&fd);
}

struct grpc_request *grpc_ask(sd_event *loop, const char *path, const char *method, const void *message,
                              size_t bytes, uint64_t timeout_usec, const struct grpc_answer *answer,
                              void *context)
{
    int fd = connect_to(path);
    struct connection *connection = fd >= 0 ? connection_new(loop, fd, NULL) : NULL;
    struct grpc_request *request = connection ? calloc(1, sizeof(*request)) : NULL;
    struct grpc_call *call = request ? submit_request(connection, method, message, bytes) : NULL;
    if (!call ||
        (timeout_usec && sd_event_add_time_relative(loop, &call->deadline, CLOCK_MONOTONIC, timeout_usec, 0,
                                                    on_request_deadline, connection) < 0)) {
        free(request);
        if (connection)
            connection_close(connection);
        answer->end(context, GRPC_UNAVAILABLE, "nobody answers there");
        return NULL;
    }
    *request = (struct grpc_request){.connection = connection, .answer = answer, .context = context};
    connection->request = request;
    flush_soon(connection);
    return request;
}

void grpc_give_up(struct grpc_request *request)
{
    if (!request)
        return;
    struct connection *connection = request->connection;
    connection->request = NULL;
    free(request);
    connection_close(connection);
}
