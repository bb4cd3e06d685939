/* grpc.h - gRPC over Unix sockets, as a server and as a client, in an sd-event loop; nghttp2 stays inside.
 *
 * server   a listening socket and the methods that it has
 * call     one request of a client, being answered: messages, then a status
 * request  one of ours, to somebody else's server
 *
 * Messages are whole, uncompressed, and have GRPC_MESSAGE_MAX bytes at most. A peer that breaks the protocol loses its
 * connection, and nothing else happens. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/error.h"

#define GRPC_MESSAGE_MAX (1u << 20) /* a node with 110 pods of many devices stays far below */

/* As gRPC numbers them. */
enum grpc_status {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
};

struct grpc_call;
struct grpc_request;
struct grpc_server;

/* `message` is the request, which is there as a whole. The call is answered now or later; until it has been ended it is
 * the method's to end, unless it is told by grpc_call_watch() that the client has gone. */
struct grpc_method {
    const char *path; /* "/package.Service/Method" */
    void (*take)(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes);
};

/* Serve `methods` (ends with a NULL path; stays the caller's) on a socket at `path`, in place of a stale one. A path that
 * no socket can have is an error that says so. */
int grpc_server_open(sd_event *loop, const char *path, const struct grpc_method *methods, void *context,
                     struct grpc_server **server, struct error *error);
/* Hang up on everybody, and remove the socket if it is still ours. NULL is none. */
void grpc_server_close(struct grpc_server *server);
/* Whether the socket's path still leads to it. */
bool grpc_server_is_found(const struct grpc_server *server);

/* One message of the answer. */
void grpc_call_send(struct grpc_call *call, const void *message, size_t bytes);
/* No more; the call is not to be used again. `text` may be NULL. */
void grpc_call_end(struct grpc_call *call, enum grpc_status status, const char *text);
/* Be told when the client has gone or its deadline is over; the call is not to be used then. */
void grpc_call_watch(struct grpc_call *call, void (*gone)(void *context, struct grpc_call *call),
                     void *context);

/* What is told of a request: each message, and once the end. GRPC_UNAVAILABLE: nobody answers there. */
struct grpc_answer {
    void (*message)(void *context, const uint8_t *message, size_t bytes);
    void (*end)(void *context, enum grpc_status status, const char *text);
};

/* Ask the server at the socket `path`. `message` is one message; nothing else is sent. Returns the request, by which it can
 * be given up until its end was told; NULL where that was told at once. */
struct grpc_request *grpc_ask(sd_event *loop, const char *path, const char *method, const void *message,
                              size_t bytes, uint64_t timeout_usec, const struct grpc_answer *answer,
                              void *context);
/* Nothing more is told. NULL is none. */
void grpc_give_up(struct grpc_request *request);
