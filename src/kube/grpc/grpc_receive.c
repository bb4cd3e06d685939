#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "kube/grpc/grpc_connection.h"

/* The first complete message in the received bytes. 1; 0 if it is not complete yet; -1 if it is not valid. */
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
    GS_CHECK(call->in_bytes >= PREFIX_BYTES + bytes);
    call->in_bytes -= PREFIX_BYTES + bytes;
    memmove(call->in, call->in + PREFIX_BYTES + bytes, call->in_bytes);
}

/* "5S", "100m": up to eight digits and a unit. 0 if it cannot be read. */
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
            uint64_t usec = number * units[i].nanoseconds / 1000; /* at most 1e8 hours, which fits */
            return usec ? usec : 1;
        }
    return 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *userdata)
{
    struct grpc_connection *connection = userdata;
    if (!connection->server || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct grpc_call *call = grpc_call_new(connection, frame->hd.stream_id);
    if (!call)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
    return 0;
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
        call->status = (enum grpc_status)atoi((const char *)value); /* nghttp2 puts a zero after it */
    else if (is_header(name, name_length, "grpc-message") && !call->connection->server)
        decode_text((const char *)value, call->text);
    return 0;
}

/* Hand on the messages of an answer as they come. False if they break the protocol. */
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
    struct grpc_connection *connection = userdata;
    struct grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);
    if (!call || (connection->server && call->is_ended))
        return 0;
    if (!grpc_grow(&call->in, call->in_bytes, length) ||
        (connection->server && call->in_bytes + length > GRPC_MESSAGE_MAX + PREFIX_BYTES)) {
        if (!connection->server)
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "the request is too long");
        return 0;
    }
    memcpy(call->in + call->in_bytes, bytes, length);
    call->in_bytes += length;
    GS_CHECK(grpc_call_is_valid(call));
    return connection->server || take_answers(call) ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_deadline(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct grpc_call *call = userdata;
    grpc_call_gone(call);
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
        grpc_call_end(call, GRPC_UNIMPLEMENTED, "this method does not exist");
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
    struct grpc_connection *connection = userdata;
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
    struct grpc_connection *connection = userdata;
    struct grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);
    if (!call)
        return 0;
    grpc_call_gone(call);
    if (connection->request) {
        grpc_request_ended(connection, call->status, call->text);
        connection->is_broken = true; /* the connection was only for this request */
    }
    nghttp2_session_set_stream_user_data(session, stream, NULL);
    grpc_call_free(call);
    return 0;
}

void grpc_receive_by(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
}
