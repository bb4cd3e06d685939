/* grpc.h - gRPC over Unix sockets, as a server and as a client, in an sd-event loop. nghttp2 stays inside.
 *
 * server   a listening socket and its methods
 * call     one request of a client while we answer it: messages, then a status
 * request  one request of ours to another server
 *
 * Messages come as a whole, uncompressed, with at most GRPC_MESSAGE_MAX bytes. A peer that breaks the protocol
 * loses its connection; nothing else happens. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/error.h"

#define GRPC_MESSAGE_MAX (1u << 20) /* a node with 110 pods of many devices stays far below */

/* gRPC's numbers. */
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

/* `message` is the complete request. The method answers the call now or later, and must end it, unless
 * grpc_call_watch() reports that the client has gone. */
struct grpc_method {
    const char *path; /* "/package.Service/Method" */
    void (*take)(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes);
};

/* Serve `methods` (ends with a NULL path; stays the caller's) on a socket at `path`, which replaces a stale one.
 * -ENAMETOOLONG with the bound if the path is too long for a socket. */
int grpc_server_open(sd_event *loop, const char *path, const struct grpc_method *methods, void *context,
                     struct grpc_server **server, struct error *error);
/* Close all connections, and remove the socket file if it is still this server's. NULL is allowed. */
void grpc_server_close(struct grpc_server *server);
/* Whether the socket's path still leads to this server. */
bool grpc_server_is_found(const struct grpc_server *server);

/* Send one message of the answer. If it is too long, or if the client does not read and too much waits for it, the
 * answer ends with GRPC_RESOURCE_EXHAUSTED. */
void grpc_call_send(struct grpc_call *call, const void *message, size_t bytes);
/* End the answer; the call must not be used again. `text` may be NULL. */
void grpc_call_end(struct grpc_call *call, enum grpc_status status, const char *text);
/* Have `gone` called when the client has gone, its deadline has passed, or grpc_call_send() has ended the answer; the
 * call must not be used once the code that `gone` interrupts has returned. */
void grpc_call_watch(struct grpc_call *call, void (*gone)(void *context, struct grpc_call *call),
                     void *context);

/* What happens to a request: each message, and once its end. GRPC_UNAVAILABLE: nobody answers there. */
struct grpc_answer {
    void (*message)(void *context, const uint8_t *message, size_t bytes);
    void (*end)(void *context, enum grpc_status status, const char *text);
};

/* Send `message`, the only one of the request, to the server at the socket `path`. Returns the request, with which
 * grpc_give_up() works until `end` was called; NULL if `end` was called at once. */
struct grpc_request *grpc_ask(sd_event *loop, const char *path, const char *method, const void *message,
                              size_t bytes, uint64_t timeout_usec, const struct grpc_answer *answer,
                              void *context);
/* Drop the request; its callbacks are not called any more. NULL is allowed. */
void grpc_give_up(struct grpc_request *request);
