#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/http.h"

/* The other end of the connection: says `says` once it has read a whole head, and, unless it is to stay,
 * hangs up. */
struct server {
    int fd;
    const char *says;
    size_t piece; /* bytes a send; 0: all at once */
    bool stays;
    char head[4096];
    pthread_t thread;
};

static void *serve(void *context)
{
    struct server *server = context;
    size_t used = 0, length = strlen(server->says);
    while (!strstr(server->head, "\r\n\r\n")) {
        ssize_t got = recv(server->fd, server->head + used, sizeof(server->head) - 1 - used, 0);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    for (size_t at = 0, piece = server->piece ? server->piece : length; at < length; at += piece)
        send(server->fd, server->says + at, length - at < piece ? length - at : piece, MSG_NOSIGNAL);
    if (!server->stays)
        close(server->fd);
    return NULL;
}

static void start(struct server *server, struct http_connection *connection)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    server->fd = ends[0];
    http_open(connection, "/nowhere");
    connection->fd = ends[1];
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void end(struct server *server, struct http_connection *connection)
{
    pthread_join(server->thread, NULL);
    if (server->stays)
        close(server->fd);
    http_close(connection);
}

static char body[4096];

static bool keep(void *context, const char *bytes, size_t length)
{
    size_t used = strlen(body);
    if (used + length >= sizeof(body) || context)
        return false;
    memcpy(body + used, bytes, length);
    body[used + length] = '\0';
    return true;
}

static int ask(const char *says, size_t piece, bool stays, const struct http_request *request, char *head,
               bool *is_open, struct error *error)
{
    struct server server = {.says = says, .piece = piece, .stays = stays};
    struct http_connection connection;
    body[0] = '\0';
    start(&server, &connection);
    int result = http_perform(&connection, request, &(struct http_sink){.take = keep}, error);
    if (is_open)
        *is_open = connection.fd >= 0;
    end(&server, &connection);
    if (head)
        strcpy(head, server.head);
    return result;
}

static const struct http_request get = {.method = "GET", .path = "/a?b=c"};

static void a_request_names_what_is_asked_and_nothing_else(void **state)
{
    char head[4096];
    assert_int_equal(ask("HTTP/1.1 204 No Content\r\n\r\n", 0, true, &get, head, NULL, NULL), 204);
    assert_string_equal(head, "GET /a?b=c HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const struct http_request post = {.method = "POST", .path = "/", .token = "secret", .body = "{}"};
    assert_int_equal(ask("HTTP/1.1 204 No Content\r\n\r\n", 0, true, &post, head, NULL, NULL), 204);
    assert_non_null(strstr(head, "\r\nAuthorization: Bearer secret\r\n"));
    assert_non_null(strstr(head, "\r\nContent-Length: 2\r\n"));
}

static void bodies_of_a_length_and_in_chunks_arrive_whole_in_any_pieces(void **state)
{
    static const char of_length[] = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789";
    static const char chunked[] =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n0123\r\n6\r\n456789\r\n0\r\n\r\n";
    for (size_t piece = 1; piece < 64; piece++) {
        bool is_open;
        assert_int_equal(ask(of_length, piece, true, &get, NULL, &is_open, NULL), 200);
        assert_string_equal(body, "0123456789");
        assert_true(is_open);
        assert_int_equal(ask(chunked, piece, true, &get, NULL, &is_open, NULL), 200);
        assert_string_equal(body, "0123456789");
        assert_true(is_open);
    }
}

static void a_connection_that_the_server_gives_up_is_closed(void **state)
{
    bool is_open = true;
    assert_int_equal(ask("HTTP/1.1 409 Conflict\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", 0, true,
                         &get, NULL, &is_open, NULL),
                     409);
    assert_false(is_open);
    assert_int_equal(ask("HTTP/1.0 200 OK\r\n\r\nuntil the end", 3, false, &get, NULL, &is_open, NULL), 200);
    assert_string_equal(body, "until the end");
    assert_false(is_open);
}

static void what_is_broken_off_or_is_not_http_is_an_error(void **state)
{
    struct error error;
    bool is_open = true;
    assert_int_equal(ask("", 0, false, &get, NULL, &is_open, &error), -ECONNRESET);
    assert_false(is_open);
    assert_int_equal(
        ask("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", 0, false, &get, NULL, NULL, &error), -EIO);
    assert_int_equal(ask("HTTP/1.1 200 O", 0, false, &get, NULL, NULL, &error), -EIO);
    assert_int_equal(ask("SSH-2.0-OpenSSH\r\n", 0, false, &get, NULL, NULL, &error), -EPROTO);
    assert_non_null(strstr(error.message, "is not HTTP"));
}

static void a_sink_can_give_up(void **state)
{
    struct server server = {.says = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", .stays = true};
    struct http_connection connection;
    struct error error;
    start(&server, &connection);
    const struct http_sink sink = {.take = keep, .context = &server};
    assert_int_equal(http_perform(&connection, &get, &sink, &error), -EFBIG);
    assert_int_equal(connection.fd, -1);
    end(&server, &connection);
}

static void a_server_that_is_silent_for_too_long_is_given_up(void **state)
{
    struct server server = {.says = "", .stays = true};
    struct http_connection connection;
    struct error error;
    start(&server, &connection);
    connection.timeout_s = 1; /* counts for the next request, although the connection is open */
    assert_int_equal(http_perform(&connection, &get, &(struct http_sink){.take = keep}, &error), -ETIMEDOUT);
    assert_non_null(strstr(error.message, "within 1 s"));
    assert_int_equal(connection.fd, -1);
    end(&server, &connection);
}

static void where_no_server_is_connecting_says_so(void **state)
{
    struct http_connection connection;
    char folder[] = "/tmp/gs-http-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/socket", folder);
    http_open(&connection, path);
    assert_int_equal(http_connect(&connection), -ENOENT);
    assert_int_equal(connection.fd, -1);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_names_what_is_asked_and_nothing_else),
        cmocka_unit_test(bodies_of_a_length_and_in_chunks_arrive_whole_in_any_pieces),
        cmocka_unit_test(a_connection_that_the_server_gives_up_is_closed),
        cmocka_unit_test(what_is_broken_off_or_is_not_http_is_an_error),
        cmocka_unit_test(a_sink_can_give_up),
        cmocka_unit_test(a_server_that_is_silent_for_too_long_is_given_up),
        cmocka_unit_test(where_no_server_is_connecting_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
