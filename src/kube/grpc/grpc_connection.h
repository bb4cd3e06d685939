/* grpc_connection.h - the parts inside gRPC: connections, and the calls on them.
 *
 * connection   one socket with an nghttp2 session: any number of calls from a client, or one request of ours to a server
 * call         one stream: received bytes that were not handed on yet, and bytes to be sent
 *
 * A connection is busy while nghttp2 calls us or a callback runs. It must not be freed then, and is closed
 * afterwards. */
#pragma once

#include <nghttp2/nghttp2.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/un.h>

#include "kube/grpc/grpc.h"

/* before each message: one byte says whether it is compressed, four hold its length */
#define PREFIX_BYTES 5u
#define TEXT_MAX 512

struct grpc_connection;

/* One stream of a connection: a client's call, or our request. */
struct grpc_call {
    LIST_ENTRY(grpc_call) next;
    struct grpc_connection *connection;
    int32_t stream;
    char path[128];
    uint64_t timeout_usec; /* the client's deadline; 0: none */
    sd_event_source *deadline;
    uint8_t *in; /* received, not handed on yet */
    size_t in_bytes;
    uint8_t *out; /* to be sent, from out_at on */
    size_t out_bytes, out_at;
    bool is_whole;    /* the peer has sent everything */
    bool is_answered; /* on a server: the headers are out */
    bool is_ended;    /* we have said everything: the status goes out */
    enum grpc_status status;
    char text[TEXT_MAX];
    void (*gone)(void *context, struct grpc_call *call);
    void *gone_context;
};

/* A connection of a server, or the client's end with its one request. */
struct grpc_connection {
    LIST_ENTRY(grpc_connection) next;
    struct grpc_server *server;   /* NULL: we are the client */
    struct grpc_request *request; /* NULL: we are the server */
    sd_event *loop;
    sd_event_source *source;
    int fd;
    nghttp2_session *session;
    LIST_HEAD(, grpc_call) calls;
    bool is_busy;   /* in a call of nghttp2: it must not be freed */
    bool is_broken; /* close it as soon as it is not busy */
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

/* Takes over the descriptor, also on failure. `receive_by` sets the callbacks for what is received. NULL if memory is short. */
struct grpc_connection *grpc_connection_new(sd_event *loop, int fd, struct grpc_server *server,
                                            void (*receive_by)(nghttp2_session_callbacks *callbacks));
void grpc_connection_close(struct grpc_connection *connection);

/* Send what nghttp2 has to send; this may close the connection. */
void grpc_connection_flush(struct grpc_connection *connection);
/* The same, but from the loop after the caller has returned, so that a failure cannot free a call that the caller
 * uses. */
void grpc_connection_flush_soon(struct grpc_connection *connection);

/* Report the end of the request, once. */
void grpc_request_ended(struct grpc_connection *connection, enum grpc_status status, const char *text);

/* --- Calls ----------------------------------------------------------------------------------------- */

struct grpc_call *grpc_call_new(struct grpc_connection *connection, int32_t stream);
void grpc_call_free(struct grpc_call *call);

/* Report that the call has ended without its answer, to whoever watches it. */
void grpc_call_gone(struct grpc_call *call);

/* Make room for `more` bytes after the `used` ones; false if that is too much. */
bool grpc_grow(uint8_t **bytes, size_t used, size_t more);

/* Add a message to what is to be sent; false if that is too much. */
bool grpc_call_append(struct grpc_call *call, const void *message, size_t bytes);

/* nghttp2's source of the bytes to send. */
ssize_t grpc_call_read_out(nghttp2_session *session, int32_t stream, uint8_t *bytes, size_t length,
                           uint32_t *flags, nghttp2_data_source *source, void *userdata);

/* Set the callbacks for everything that is received. */
void grpc_receive_by(nghttp2_session_callbacks *callbacks);

/* Whether what is known of a call, and of a connection with its calls, goes together. */
bool grpc_call_is_valid(const struct grpc_call *call);
bool grpc_connection_is_valid(const struct grpc_connection *connection);

static inline nghttp2_nv grpc_header(const char *name, const char *value)
{
    return (nghttp2_nv){.name = (uint8_t *)name,
                        .value = (uint8_t *)value,
                        .namelen = strlen(name),
                        .valuelen = strlen(value)};
}
