/* Clients of control.sock: any bytes on up to three connections, answered by the whole API. A client of them all is served
 * afterwards.
 *
 * An input is a row of steps: one byte of what to do (the low two bits say on which connection, bit 2 hangs up instead, bit 3
 * connects first, bit 4 has the client read nothing from then on), two bytes of length, and what is sent. */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/api/api.h"
#include "daemon/http/http.h"
#include "daemon/session/queue.h"
#include "daemon/session/session.h"
#include "daemon/session/session_life.h"
#include "daemon/store/store.h"
#include "fuzz.h"
#include "small_daemon.h"

#define CLIENTS 3u
#define STEPS_MAX 64u
#define ROUNDS_MAX 20000u
#define SESSIONS_MAX 20u

enum step { STEP_CLIENT = 3, STEP_HANG_UP = 4, STEP_CONNECT = 8, STEP_READS_NOT = 16 };

struct client {
    int fd;
    bool reads_not;
};

static struct sockaddr_un address = {.sun_family = AF_UNIX};

/* But for the GPUs: there is no NVML to ask. */
static void handle(struct http_request *request)
{
    struct error error;
    if (!strstr(request->path, "gpus")) {
        api_handle(request);
        return;
    }
    error_set(&error, ENOENT, "ERR_NOT_FOUND", "there is no NVML");
    http_reply_error(request, &error);
}

static void serve(struct daemon *daemon)
{
    struct error error;
    fuzz_require(snprintf(address.sun_path, sizeof(address.sun_path), "%s/control.sock",
                          daemon->paths.runtime_dir) < (int)sizeof(address.sun_path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    fuzz_require(fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    fuzz_require(listen(fd, 16) == 0);
    fuzz_require(store_open(daemon, &error) == 0);
    fuzz_require(api_follow_start(daemon, &error) == 0 && api_wait_start(daemon, &error) == 0);
    fuzz_require(http_start(daemon, fd, handle, &error) == 0);
}

static void drain(const struct client *client)
{
    char bytes[4096];
    while (client->fd >= 0 && !client->reads_not && recv(client->fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        ;
}

static void hang_up(struct client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    *client = (struct client){.fd = -1};
}

static void begin(struct client *client)
{
    client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    fuzz_require(client->fd >= 0);
    fuzz_require(connect(client->fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
}

static size_t take_step(struct daemon *daemon, struct client clients[static CLIENTS], const uint8_t *data,
                        size_t bytes)
{
    struct client *client = &clients[(data[0] & STEP_CLIENT) % CLIENTS];
    size_t length = (size_t)data[1] | (size_t)data[2] << 8;
    length = length < bytes - 3 ? length : bytes - 3;
    if (data[0] & (STEP_HANG_UP | STEP_CONNECT))
        hang_up(client);
    if (!(data[0] & STEP_HANG_UP)) {
        if (client->fd < 0)
            begin(client);
        client->reads_not |= (data[0] & STEP_READS_NOT) != 0;
        if (send(client->fd, data + 3, length, MSG_NOSIGNAL) < 0) /* it was hung up on, or is not read */
            hang_up(client);
    }
    small_daemon_run(daemon);
    for (unsigned i = 0; i < CLIENTS; i++)
        drain(&clients[i]);
    return 3 + length;
}

/* Whoever asks after all that is answered. */
static void check_served(struct daemon *daemon)
{
    static const char request[] = "GET /v1/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    struct client client = {.fd = -1};
    char answer[16] = "";
    begin(&client);
    fuzz_require(send(client.fd, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request));
    for (unsigned i = 0; i < ROUNDS_MAX && recv(client.fd, answer, sizeof(answer) - 1, MSG_DONTWAIT) < 0; i++)
        small_daemon_run(daemon);
    fuzz_require(strncmp(answer, "HTTP/1.1 200", 12) == 0);
    hang_up(&client);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct daemon *daemon = small_daemon();
    struct client clients[CLIENTS] = {{.fd = -1}, {.fd = -1}, {.fd = -1}};
    if (!daemon->http)
        serve(daemon);
    for (unsigned step = 0; step < STEPS_MAX && bytes > 3 && daemon->session_count < SESSIONS_MAX; step++) {
        size_t taken = take_step(daemon, clients, data, bytes);
        data += taken;
        bytes -= taken;
    }
    check_served(daemon);
    for (unsigned i = 0; i < CLIENTS; i++)
        hang_up(&clients[i]);
    small_daemon_run(daemon);
    while (daemon->sessions)
        session_end(daemon->sessions, "the input has ended");
    small_daemon_run(daemon);
    return 0;
}
