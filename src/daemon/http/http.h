/* http.h - HTTP inside the loop. A request is received whole, then handed to api_handle(), and answered there and then;
 * or later, when the answer has to wait for another thread. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"
#include "daemon/http/http_turns.h"
#include "daemon/loop/peer.h"

#define HTTP_BODY_BYTES_MAX (64 << 10)
#define HTTP_DISCARD_BYTES_MAX (16 << 20)
#define HTTP_SUBJECT_TEXT 16

struct daemon;
struct MHD_Connection;
struct MHD_Response;

/* What a stream's reader returns when nothing more comes. */
#define HTTP_STREAM_END (-1)
#define HTTP_STREAM_FAILED (-2) /* the connection is cut: the client sees that it has not got everything */

/* Where a request came in. */
enum http_door {
    HTTP_CONTROL, /* control.sock: the peer's credentials say which user asks */
    HTTP_METRICS, /* metrics-address: metrics and health, for anybody */
    HTTP_TOKEN,   /* http-address: everything, for clients that have the token */
    HTTP_DOORS
};

struct http_request {
    struct daemon *daemon;
    struct MHD_Connection *connection;
    const char *method, *path;
    enum http_door door;
    /* Of the Unix socket. Over TCP pid is 0; uid is the daemon's user at HTTP_TOKEN, because nobody else can read the
     * token, and UID_OVERFLOW at HTTP_METRICS. */
    struct peer peer;
    char *body;
    size_t body_bytes;

    char subject[HTTP_SUBJECT_TEXT]; /* what an answer that waits is about; the API's */

    /* Of an answer that is a stream: http_reply_stream(). */
    ssize_t (*stream_read)(void *context, char *bytes, size_t room);
    void (*stream_gone)(void *context);
    void *stream_context;

    struct MHD_Response *response; /* NULL: not answered yet */
    unsigned status;
    bool is_suspended;

    struct http_turn turn;
};

/* Answers `request`, now or later. */
typedef void (*http_handler)(struct http_request *request);

/* Serve the Unix socket `control_fd` (taken over), and the addresses of config.daemon if there are any. `handle` gets
 * each request when it has come whole. */
int http_start(struct daemon *daemon, int control_fd, http_handler handle, struct error *error);
/* The control socket was lost: go on with another, taken over on success. */
int http_replace_control(struct daemon *daemon, int fd);
void http_stop(struct daemon *daemon);
/* Whether http_stop() has begun. Then the daemon's other parts have ended, and no connection may be suspended any more:
 * libmicrohttpd aborts if it is stopped while one is. */
bool http_is_stopping(const struct http_request *request);

/* Serve http-address from now on if it is not served yet; if none is set, serve a port of the loopback address that the
 * kernel chooses. `address` (HOST:PORT) is valid while the daemon runs. */
int http_open_tcp(struct daemon *daemon, const char **address, struct error *error);

/* Whether no client is connected to the control socket or to http-address. */
bool http_is_idle(struct daemon *daemon);

/* Answer; once per request. `json` is taken over; NULL: no body (204). */
void http_reply_json(struct http_request *request, unsigned status, json_t *json);
void http_reply_text(struct http_request *request, unsigned status, const char *type, const char *text);
/* Start an answer of unknown length. `read` returns its next bytes, at most `room`; 0 when there are none yet (call
 * http_stream_wake() when there may be); or one of HTTP_STREAM_*. `gone` is called once, when the client has got
 * everything or has gone. */
void http_reply_stream(struct http_request *request, unsigned status, const char *type,
                       ssize_t (*read)(void *context, char *bytes, size_t room), void (*gone)(void *context),
                       void *context);
struct page;
/* Answer with a file of the dashboard, or 304 if the client has it. Only the dashboard's own scripts and styles may run
 * in it, and no other page may embed it. */
void http_reply_page(struct http_request *request, const struct page *page);
void http_stream_wake(struct http_request *request);
/* {"error": ...} with the status of the error's code; an error without a code is ERR_INTERNAL. */
void http_reply_error(struct http_request *request, const struct error *error);

/* The client's connection, for peer_identity(). */
int http_socket(const struct http_request *request);
/* An argument of the query (`?name=value`), decoded; NULL: it is not there. */
const char *http_argument(const struct http_request *request, const char *name);
/* A header; NULL: it is not there. */
const char *http_header(const struct http_request *request, const char *name);
/* The bearer token that came with the request, or NULL. */
const char *http_bearer_token(const struct http_request *request);
/* The token that a request at HTTP_TOKEN must bring. */
const char *http_token(const struct http_request *request);

unsigned http_status_of(const char *code); /* not static for the tests' sake */
