#include <stdio.h>

#include "base/check.h"
#include "kube/grpc/grpc_connection.h"

/* gRPC wants grpc-message percent-encoded. */
static void encode_text(const char *text, char encoded[static 3 * TEXT_MAX])
{
    char *at = encoded;
    for (; *text; text++) {
        bool is_plain = *text >= ' ' && *text <= '~' && *text != '%';
        at += is_plain ? sprintf(at, "%c", *text) : sprintf(at, "%%%02X", (unsigned)(unsigned char)*text);
    }
    *at = '\0';
}

static void submit_status(nghttp2_session *session, const struct grpc_call *call)
{
    char number[16], text[3 * TEXT_MAX];
    snprintf(number, sizeof(number), "%d", (int)call->status);
    encode_text(call->text, text);
    const nghttp2_nv trailers[] = {grpc_header("grpc-status", number), grpc_header("grpc-message", text)};
    nghttp2_submit_trailer(session, call->stream, trailers, *text ? 2 : 1);
}

ssize_t grpc_call_read_out(nghttp2_session *session, int32_t stream, uint8_t *bytes, size_t length,
                           uint32_t *flags, nghttp2_data_source *source, void *userdata)
{
    struct grpc_call *call = source->ptr;
    GS_CHECK(grpc_call_is_valid(call));
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

bool grpc_call_append(struct grpc_call *call, const void *message, size_t bytes)
{
    if (bytes > GRPC_MESSAGE_MAX || !grpc_grow(&call->out, call->out_bytes, PREFIX_BYTES + bytes))
        return false;
    uint8_t *at = call->out + call->out_bytes;
    at[0] = 0;
    for (unsigned i = 0; i < 4; i++)
        at[1 + i] = (uint8_t)(bytes >> (24 - 8 * i));
    if (bytes)
        memcpy(at + PREFIX_BYTES, message, bytes);
    call->out_bytes += PREFIX_BYTES + bytes;
    GS_CHECK(grpc_call_is_valid(call));
    return true;
}

/* Send the headers first; later calls go on with the data. */
static void begin_answer(struct grpc_call *call)
{
    nghttp2_session *session = call->connection->session;
    if (call->is_answered) {
        nghttp2_session_resume_data(session, call->stream);
        return;
    }
    const nghttp2_nv headers[] = {grpc_header(":status", "200"),
                                  grpc_header("content-type", "application/grpc")};
    const nghttp2_data_provider provider = {.source.ptr = call, .read_callback = grpc_call_read_out};
    call->is_answered = true;
    nghttp2_submit_response(session, call->stream, headers, 2, &provider);
}

void grpc_call_send(struct grpc_call *call, const void *message, size_t bytes)
{
    if (!grpc_call_append(call, message, bytes)) {
        grpc_call_gone(call);
        grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED,
                      "the answer is too long, or the client does not read it");
        return;
    }
    begin_answer(call);
    grpc_connection_flush_soon(call->connection);
}

void grpc_call_end(struct grpc_call *call, enum grpc_status status, const char *text)
{
    if (call->is_ended)
        return;
    call->is_ended = true;
    call->status = status;
    call->deadline = sd_event_source_disable_unref(call->deadline);
    snprintf(call->text, sizeof(call->text), "%s", text ? text : "");
    GS_CHECK(grpc_call_is_valid(call));
    begin_answer(call);
    grpc_connection_flush_soon(call->connection);
}

void grpc_call_watch(struct grpc_call *call, void (*gone)(void *context, struct grpc_call *call),
                     void *context)
{
    call->gone = gone;
    call->gone_context = context;
}
