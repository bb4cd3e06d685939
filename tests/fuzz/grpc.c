/* What a peer sends on a gRPC socket: to our server (the first byte is even), or as the answer to a request of ours. Whatever it
 * is, each call ends, each request is told its end once, and the server serves the next. */
#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fuzz.h"
#include "kube/grpc/grpc.h"

static sd_event *loop;
static struct grpc_server *server;
static struct sockaddr_un server_address = {.sun_family = AF_UNIX}, peer_address = {.sun_family = AF_UNIX};
static int peer_listening;
static unsigned calls_open, ends;

static void echo(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    fuzz_require(bytes <= GRPC_MESSAGE_MAX);
    grpc_call_send(call, message, bytes);
    grpc_call_end(call, GRPC_OK, "100% right");
}

static void on_gone(void *context, struct grpc_call *call)
{
    fuzz_require(calls_open > 0);
    calls_open--;
}

static void watch(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    calls_open++;
    grpc_call_watch(call, on_gone, NULL);
    grpc_call_send(call, message, bytes);
}

static const struct grpc_method methods[] = {{"/a/echo", echo}, {"/a/watch", watch}, {NULL, NULL}};

static void on_message(void *context, const uint8_t *message, size_t bytes)
{
    fuzz_require(bytes <= GRPC_MESSAGE_MAX);
}

static void on_end(void *context, enum grpc_status status, const char *text)
{
    ends++;
}

static const struct grpc_answer on_answer = {on_message, on_end};

static void begin(void)
{
    char name[64];
    snprintf(server_address.sun_path, sizeof(server_address.sun_path), "/tmp/fuzz-grpc-%d.sock",
             (int)getpid());
    snprintf(name, sizeof(name), "fuzz-grpc-%d", (int)getpid());
    snprintf(peer_address.sun_path, sizeof(peer_address.sun_path), "/tmp/%s-peer.sock", name);
    unlink(peer_address.sun_path);
    peer_listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fuzz_require(bind(peer_listening, (struct sockaddr *)&peer_address, sizeof(peer_address)) == 0 &&
                 listen(peer_listening, 4) == 0);
    fuzz_require(sd_event_new(&loop) >= 0);
    fuzz_require(grpc_server_open(loop, server_address.sun_path, methods, NULL, &server, NULL) == 0);
}

static void end(void)
{
    grpc_server_close(server);
    sd_event_unref(loop);
    close(peer_listening);
    unlink(peer_address.sun_path);
}

static void run(void)
{
    while (sd_event_run(loop, 0) > 0)
        ;
}

/* As much as the other end takes; it may have hung up. */
static void feed(int fd, const uint8_t *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN)
            break;
        data += sent > 0 ? sent : 0;
        bytes -= sent > 0 ? (size_t)sent : 0;
        run();
    }
    shutdown(fd, SHUT_WR);
    run();
}

static void feed_server(const uint8_t *data, size_t bytes)
{
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fuzz_require(connect(fd, (struct sockaddr *)&server_address, sizeof(server_address)) == 0);
    feed(fd, data, bytes);
}

static void feed_request(const uint8_t *data, size_t bytes)
{
    unsigned before = ends;
    struct grpc_request *request =
        grpc_ask(loop, peer_address.sun_path, "/a/echo", "hello", 5, UINT64_C(60000000), &on_answer, NULL);
    cleanup_close int fd = accept4(peer_listening, NULL, NULL, SOCK_CLOEXEC);
    fuzz_require(request && fd >= 0 && ends == before);
    run();
    feed(fd, data, bytes);
    fuzz_require(ends == before + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (!loop) {
        begin();
        atexit(end);
    }
    if (bytes == 0)
        return 0;
    if (data[0] % 2)
        feed_request(data + 1, bytes - 1);
    else
        feed_server(data + 1, bytes - 1);
    fuzz_require(calls_open == 0);
    return 0;
}
