#include "client/http.h"

#include <errno.h>
#include <http_parser.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"

/* --- The connection -------------------------------------------------------------------------------- */

void http_open(struct http_connection *connection, const char *socket_path)
{
    *connection = (struct http_connection){.socket_path = socket_path, .fd = -1};
}

void http_close(struct http_connection *connection)
{
    if (connection->fd >= 0)
        close(connection->fd);
    connection->fd = -1;
}

int http_connect(struct http_connection *connection)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(connection->socket_path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    strcpy(address.sun_path, connection->socket_path);
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    while (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0)
        if (errno != EINTR)
            return -errno;
    connection->fd = steal_fd(&fd);
    return 0;
}

/* --- The request ----------------------------------------------------------------------------------- */

/* The head of `request`, ready to be sent; the caller frees it. NULL when memory is short. */
static char *compose_head(const struct http_request *request)
{
    char *head = NULL, length[96] = "";
    if (request->body)
        snprintf(length, sizeof(length), "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                 strlen(request->body));
    if (asprintf(&head, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s%s%s%s\r\n", request->method, request->path,
                 request->token ? "Authorization: Bearer " : "", request->token ? request->token : "",
                 request->token ? "\r\n" : "", length) < 0)
        return NULL;
    return head;
}

/* Send all of `text`. A server may refuse a request before it has read all of it, and hang up. Its answer can still
 * be read, so that is not a failure here. */
static int send_all(int fd, const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        ssize_t sent = send(fd, text, left, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EPIPE || errno == ECONNRESET ? 0 : -errno;
        text += sent;
        left -= (size_t)sent;
    }
    return 0;
}

/* --- The answer ------------------------------------------------------------------------------------ */

struct answer {
    const struct http_sink *sink;
    unsigned timeout_s;
    bool is_refused; /* the sink gave up */
    bool is_complete, may_go_on;
};

static int take_body(http_parser *parser, const char *bytes, size_t length)
{
    struct answer *answer = parser->data;
    answer->is_refused = !answer->sink->take(answer->sink->context, bytes, length);
    return answer->is_refused ? 1 : 0;
}

static int take_end(http_parser *parser)
{
    struct answer *answer = parser->data;
    answer->is_complete = true;
    answer->may_go_on = http_should_keep_alive(parser);
    return 0;
}

static const http_parser_settings on_answer = {.on_body = take_body, .on_message_complete = take_end};

/* Feed what arrives to the parser until the answer is complete. */
static int read_answer(int fd, http_parser *parser, struct error *error)
{
    struct answer *answer = parser->data;
    char bytes[16384];
    bool has_begun = false;
    while (!answer->is_complete) {
        ssize_t length = recv(fd, bytes, sizeof(bytes), 0);
        if (length < 0 && errno == EINTR)
            continue;
        if (length < 0 && errno == EAGAIN)
            return error_set(error, ETIMEDOUT, NULL, "the daemon did not answer within %u s",
                             answer->timeout_s);
        if (length <= 0 && !has_begun)
            return error_set(error, ECONNRESET, NULL, "the daemon hung up without an answer");
        if (length < 0)
            return error_set_errno(error, EIO, "the daemon broke off its answer");
        has_begun = true;
        http_parser_execute(parser, &on_answer, bytes, (size_t)length); /* 0 bytes: the end of the stream */
        if (answer->is_refused)
            return error_set(error, EFBIG, NULL, "the daemon's answer is too long");
        if (HTTP_PARSER_ERRNO(parser) != HPE_OK && HTTP_PARSER_ERRNO(parser) != HPE_INVALID_EOF_STATE)
            return error_set(error, EPROTO, NULL, "the daemon's answer is not HTTP: %s",
                             http_errno_description(HTTP_PARSER_ERRNO(parser)));
        if (length == 0 && !answer->is_complete)
            return error_set(error, EIO, NULL, "the daemon broke off its answer");
    }
    return 0;
}

int http_perform(struct http_connection *connection, const struct http_request *request,
                 const struct http_sink *sink, struct error *error)
{
    const struct timeval patience = {.tv_sec = connection->timeout_s};
    struct answer answer = {.sink = sink, .timeout_s = connection->timeout_s};
    http_parser parser = {.data = &answer};
    cleanup_free char *head = compose_head(request);
    http_parser_init(&parser, HTTP_RESPONSE);
    int result = head ? 0 : -ENOMEM;
    if (result == 0 && setsockopt(connection->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0)
        result = -errno;
    if (result == 0)
        result = send_all(connection->fd, head);
    if (result == 0 && request->body)
        result = send_all(connection->fd, request->body);
    if (result < 0)
        error_set_errno(error, -result, "cannot send a request to the daemon");
    else
        result = read_answer(connection->fd, &parser, error);
    if (result < 0 || !answer.may_go_on)
        http_close(connection);
    return result < 0 ? result : (int)parser.status_code;
}
