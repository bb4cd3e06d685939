/* http.h - HTTP/1.1 over one Unix socket, as a client.
 *
 * connection   the socket to the server, kept open between requests where the server allows it
 * request      the method, path, header lines and body to send
 * answer       the status, and the body in pieces as they arrive
 *
 * libhttp_parser reads the messages. There is no TLS, no proxy and no redirection: the daemon's socket has none of
 * them, and a command line that loads a library with all of them starts 10 ms later. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct http_connection {
    const char *socket_path;
    int fd;             /* -1: not connected */
    unsigned timeout_s; /* how long to wait for more of an answer; 0: for ever */
};

struct http_request {
    const char *method, *path;
    const char *token; /* for `Authorization: Bearer`; NULL: none */
    const char *body;  /* JSON; NULL: none */
};

/* Receives the body of an answer, piece by piece. Returns false to give up. */
struct http_sink {
    bool (*take)(void *context, const char *bytes, size_t length);
    void *context;
};

/* Prepare a connection to the server at `socket_path`, which must stay valid. Connects at the first request. */
void http_open(struct http_connection *connection, const char *socket_path);
void http_close(struct http_connection *connection);

/* Connect. Returns 0, or a negative errno: -ENOENT or -ECONNREFUSED when no server is there. */
int http_connect(struct http_connection *connection);

/* Send `request` on an open connection and hand the body of its answer to `sink`. Returns the HTTP status. On
 * failure the connection is closed, and the result is
 *
 * -ECONNRESET  when the server hung up before the first byte of an answer, as it may on a connection that was idle
 * -ETIMEDOUT   when timeout_s passed without more of an answer
 * -EIO         when the server broke off in the middle
 * -EPROTO      when the answer is not HTTP
 * -EFBIG       when the sink gave up */
int http_perform(struct http_connection *connection, const struct http_request *request,
                 const struct http_sink *sink, struct error *error);
