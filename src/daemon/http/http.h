/* http.h - HTTP inside the loop: requests come in whole, are handed to api_handle(), and are answered there
 * and then or, when an answer has to wait for another thread, later. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"
#include "daemon/http/http_turns.h"
#include "daemon/loop/peer.h"
#include "daemon/session/identity.h"

#define HTTP_BODY_BYTES_MAX (64 << 10)
#define HTTP_DISCARD_BYTES_MAX (16 << 20)

struct daemon;
struct MHD_Connection;
struct MHD_Response;

/* What a stream's reader answers when nothing more comes. */
#define HTTP_STREAM_END (-1)
#define HTTP_STREAM_FAILED (-2) /* the connection is cut: the client sees that it has not all */

/* Where a request came in. */
enum http_door {
    HTTP_CONTROL, /* control.sock: the peer's credentials say who asks */
    HTTP_METRICS, /* metrics-address: metrics and health, for anybody */
    HTTP_TOKEN,   /* http-address: everything, for who has the token */
    HTTP_DOORS
};

struct http_request {
    struct daemon *daemon;
    struct MHD_Connection *connection;
    const char *method, *path;
    enum http_door door;
    struct peer
        peer; /* of the Unix socket; over TCP pid 0, and whoever may read the token: the daemon's user */
    char *body;
    size_t body_bytes;

    char session_id[SESSION_ID_TEXT]; /* whom a waiting answer is about */
    bool as_gslice;

    /* Of an answer that goes on; http_reply_stream(). */
    ssize_t (*stream_read)(void *context, char *bytes, size_t room);
    void (*stream_gone)(void *context);
    void *stream_context;

    struct MHD_Response *response; /* NULL: not answered yet */
    unsigned status;
    bool is_suspended;

    struct http_turn turn;
};

/* Answers `request`, or sees to it that it is answered later. */
typedef void (*http_handler)(struct http_request *request);

/* Serve the Unix socket `control_fd` (taken over), and the addresses of config.daemon if there are any:
 * `handle` is given each request once it has come whole. */
int http_start(struct daemon *daemon, int control_fd, http_handler handle, struct error *error);
/* The control socket was lost: go on with another, taken over on success. */
int http_replace_control(struct daemon *daemon, int fd);
void http_stop(struct daemon *daemon);

/* Serve http-address from now on if it is not served yet; where none is set, on a port of the loopback address
 * that the kernel chooses. `address` (HOST:PORT) is valid while the daemon runs. */
int http_open_tcp(struct daemon *daemon, const char **address, struct error *error);

/* Whether no client is connected to the control socket or uses the token. */
bool http_is_idle(struct daemon *daemon);

/* Answer, once a request. `json` is taken over; NULL for none (204). */
void http_reply_json(struct http_request *request, unsigned status, json_t *json);
void http_reply_text(struct http_request *request, unsigned status, const char *type, const char *text);
/* Begin an answer of unknown length. `read` gives its next bytes, at most `room`; 0 when there are none yet,
 * and http_stream_wake() says when there may be; or one of HTTP_STREAM_*. `gone` is called once, when the
 * client has it all or has gone. */
void http_reply_stream(struct http_request *request, unsigned status, const char *type,
                       ssize_t (*read)(void *context, char *bytes, size_t room), void (*gone)(void *context),
                       void *context);
struct page;
/* A file of the dashboard, or 304 where the client has it. No script or style but its own may run in it, and no
 * other page may show it. */
void http_reply_page(struct http_request *request, const struct page *page);
void http_stream_wake(struct http_request *request);
/* {"error": ...} with the status that goes with its code; ERR_INTERNAL for an error without one. */
void http_reply_error(struct http_request *request, const struct error *error);

/* The peer's connection, for peer_identity(). */
int http_socket(const struct http_request *request);
/* An argument of the query (`?name=value`), decoded; NULL without it. */
const char *http_argument(const struct http_request *request, const char *name);
/* A header, or NULL. */
const char *http_header(const struct http_request *request, const char *name);
/* The bearer token that came along, or NULL. */
const char *http_bearer_token(const struct http_request *request);
/* The one that must come along at HTTP_TOKEN. */
const char *http_token(const struct http_request *request);

unsigned http_status_of(const char *code); /* for tests too */
