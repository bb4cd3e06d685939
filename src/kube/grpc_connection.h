/* grpc_connection.h - gRPC's own parts: connections, and the calls on them.
 *
 * connection   one socket with an nghttp2 session. Any number of calls with a client's, one request with a server that we ask
 * call         one stream: bytes that came and were not handed on, bytes to be sent
 *
 * While nghttp2 calls us, or somebody is told, a connection is busy and must not be freed: it is closed after. */
#pragma once

#include <nghttp2/nghttp2.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/un.h>

#include "kube/grpc.h"

#define PREFIX_BYTES 5u /* of a message: one that says whether it is compressed, four with its length */
#define TEXT_MAX 512

struct grpc_connection;

/* One stream of a connection: a call that we answer, or a request of ours. */
struct grpc_call {
    LIST_ENTRY(grpc_call) next;
    struct grpc_connection *connection;
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
struct grpc_connection {
    LIST_ENTRY(grpc_connection) next;
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
    LIST_HEAD(, grpc_connection) connections;
    unsigned connection_count;
};

struct grpc_request {
    struct grpc_connection *connection;
    const struct grpc_answer *answer;
    void *context;
};

/* --- Connections ----------------------------------------------------------------------------------- */

/* The descriptor is taken over, also on failure. */
struct grpc_connection *grpc_connection_new(sd_event *loop, int fd, struct grpc_server *server);
void grpc_connection_close(struct grpc_connection *connection);

/* Send what nghttp2 has to send; the connection may be closed by it. */
void grpc_connection_flush(struct grpc_connection *connection);
/* From the loop, once we have returned: what goes wrong then frees no call under the hands of who answers it. */
void grpc_connection_flush_soon(struct grpc_connection *connection);

/* Tell the one who asked, once. */
void grpc_request_ended(struct grpc_connection *connection, enum grpc_status status, const char *text);

/* --- Calls ----------------------------------------------------------------------------------------- */

struct grpc_call *grpc_call_new(struct grpc_connection *connection, int32_t stream);
void grpc_call_free(struct grpc_call *call);

/* The client has gone, or its time is over: who answers later is told. */
void grpc_call_gone(struct grpc_call *call);

/* Make room for `more` bytes behind the `used` ones; false when that is too much. */
bool grpc_grow(uint8_t **bytes, size_t used, size_t more);

/* One more message to be sent; false when it is too much. */
bool grpc_call_append(struct grpc_call *call, const void *message, size_t bytes);

/* nghttp2's source of what is to be sent. */
ssize_t grpc_call_read_out(nghttp2_session *session, int32_t stream, uint8_t *bytes, size_t length,
                           uint32_t *flags, nghttp2_data_source *source, void *userdata);

/* What is done with all that comes. */
void grpc_receive_by(nghttp2_session_callbacks *callbacks);

static inline nghttp2_nv grpc_header(const char *name, const char *value)
{
    return (nghttp2_nv){.name = (uint8_t *)name,
                        .value = (uint8_t *)value,
                        .namelen = strlen(name),
                        .valuelen = strlen(value)};
}
