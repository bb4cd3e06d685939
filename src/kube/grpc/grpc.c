#include "kube/grpc/grpc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sockets.h"
#include "kube/grpc/grpc_connection.h"

#define CONNECTIONS_MAX 32

/* --- Serving --------------------------------------------------------------------------------------- */

static int on_connect(sd_event_source *source, int listening, uint32_t events, void *userdata)
{
    struct grpc_server *server = userdata;
    int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return 0;
    if (server->connection_count >= CONNECTIONS_MAX) {
        close(fd);
        return 0;
    }
    struct grpc_connection *connection = grpc_connection_new(server->loop, fd, server, grpc_receive_by);
    if (!connection)
        return 0;
    LIST_INSERT_HEAD(&server->connections, connection, next);
    server->connection_count++;
    grpc_connection_flush(connection);
    return 0;
}

static int fill_address(struct sockaddr_un *address, const char *path, struct error *error)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address->sun_path))
        return error_set(
            error, ENAMETOOLONG, NULL,
            "the socket's path %.300s has %zu bytes; expected at most 107; choose shorter folders", path,
            strlen(path));
    strcpy(address->sun_path, path);
    return 0;
}

static ino_t inode_of(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 ? status.st_ino : 0;
}

int grpc_server_open(sd_event *loop, const char *path, const struct grpc_method *methods, void *context,
                     struct grpc_server **server_out, struct error *error)
{
    struct sockaddr_un address;
    int result = fill_address(&address, path, error);
    if (result < 0)
        return result;
    cleanup_close int fd = -1;
    result = socket_listen(path, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0600, (gid_t)-1, &fd);
    if (result < 0)
        return error_set_errno(error, -result, "cannot make the socket %s", path);
    struct grpc_server *server = calloc(1, sizeof(*server));
    if (!server || sd_event_add_io(loop, &server->source, fd, EPOLLIN, on_connect, server) < 0) {
        free(server);
        return error_set_errno(error, ENOMEM, "cannot serve %s", path);
    }
    server->loop = loop;
    server->methods = methods;
    server->context = context;
    strcpy(server->path, path);
    server->inode = inode_of(path);
    server->fd = steal_fd(&fd);
    *server_out = server;
    return 0;
}

bool grpc_server_is_found(const struct grpc_server *server)
{
    return server->inode == inode_of(server->path);
}

void grpc_server_close(struct grpc_server *server)
{
    if (!server)
        return;
    while (!LIST_EMPTY(&server->connections))
        grpc_connection_close(LIST_FIRST(&server->connections));
    if (grpc_server_is_found(server))
        unlink(server->path);
    sd_event_source_disable_unref(server->source);
    close(server->fd);
    free(server);
}

/* --- Asking ---------------------------------------------------------------------------------------- */

static int on_request_deadline(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct grpc_connection *connection = userdata;
    grpc_request_ended(connection, GRPC_DEADLINE_EXCEEDED, "it did not answer in time");
    grpc_connection_close(connection);
    return 0;
}

static struct grpc_call *submit_request(struct grpc_connection *connection, const char *method,
                                        const void *message, size_t bytes)
{
    const nghttp2_nv headers[] = {grpc_header(":method", "POST"),
                                  grpc_header(":scheme", "http"),
                                  grpc_header(":authority", "localhost"),
                                  grpc_header(":path", method),
                                  grpc_header("te", "trailers"),
                                  grpc_header("content-type", "application/grpc"),
                                  grpc_header("user-agent", "gpuslice-kubelet")};
    struct grpc_call *call = grpc_call_new(connection, 0);
    if (!call || !grpc_call_append(call, message, bytes))
        return NULL;
    call->is_ended = true; /* the request is one message */
    const nghttp2_data_provider provider = {.source.ptr = call, .read_callback = grpc_call_read_out};
    call->stream = nghttp2_submit_request(connection->session, NULL, headers,
                                          sizeof(headers) / sizeof(headers[0]), &provider, call);
    return call->stream > 0 ? call : NULL;
}

static int connect_to(const char *path)
{
    struct sockaddr_un address;
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fill_address(&address, path, NULL) < 0 || fd < 0 ||
        connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        return -1;
    return steal_fd(&fd);
}

struct grpc_request *grpc_ask(sd_event *loop, const char *path, const char *method, const void *message,
                              size_t bytes, uint64_t timeout_usec, const struct grpc_answer *answer,
                              void *context)
{
    int fd = connect_to(path);
    struct grpc_connection *connection =
        fd >= 0 ? grpc_connection_new(loop, fd, NULL, grpc_receive_by) : NULL;
    struct grpc_request *request = connection ? calloc(1, sizeof(*request)) : NULL;
    struct grpc_call *call = request ? submit_request(connection, method, message, bytes) : NULL;
    if (!call ||
        (timeout_usec && sd_event_add_time_relative(loop, &call->deadline, CLOCK_MONOTONIC, timeout_usec, 0,
                                                    on_request_deadline, connection) < 0)) {
        free(request);
        if (connection)
            grpc_connection_close(connection);
        answer->end(context, GRPC_UNAVAILABLE, "nobody answers there");
        return NULL;
    }
    *request = (struct grpc_request){.connection = connection, .answer = answer, .context = context};
    connection->request = request;
    grpc_connection_flush_soon(connection);
    return request;
}

void grpc_give_up(struct grpc_request *request)
{
    if (!request)
        return;
    struct grpc_connection *connection = request->connection;
    connection->request = NULL;
    free(request);
    grpc_connection_close(connection);
}
