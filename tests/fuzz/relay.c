/* Bytes through the relay of control.sock: what comes out is what went in, in order, whatever either end does.
 *
 * An input is a row of steps: one byte of what to do, one byte of length, and the bytes. */
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/http/http_relay.h"
#include "fuzz.h"
#include "small_daemon.h"

#define STEPS_MAX 200u
#define MOST (1u << 20)

enum step {
    CLIENT_SENDS,
    SERVER_SENDS,
    CLIENT_READS,
    SERVER_READS,
    CLIENT_ENDS,
    SERVER_ENDS,
    BOTH_RUN,
    STEPS
};

/* One direction: what was sent, and how much of it has come. */
struct way {
    uint8_t sent[MOST];
    size_t length, come;
    bool has_ended;
};

static void put(struct way *way, int fd, const uint8_t *data, size_t length)
{
    size_t room = MOST - way->length;
    ssize_t count = fd >= 0 && !way->has_ended
                        ? send(fd, data, length < room ? length : room, MSG_DONTWAIT | MSG_NOSIGNAL)
                        : -1;
    if (count <= 0)
        return;
    memcpy(way->sent + way->length, data, (size_t)count);
    way->length += (size_t)count;
}

static void take(struct way *way, int fd, size_t most)
{
    uint8_t bytes[256];
    ssize_t count = fd >= 0 ? recv(fd, bytes, most < sizeof(bytes) ? most : sizeof(bytes), MSG_DONTWAIT) : -1;
    if (count <= 0)
        return;
    fuzz_require(way->come + (size_t)count <= way->length);
    fuzz_require(memcmp(way->sent + way->come, bytes, (size_t)count) == 0);
    way->come += (size_t)count;
}

static void end(struct way *way, int fd)
{
    if (fd >= 0)
        shutdown(fd, SHUT_WR);
    way->has_ended = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct way in, out;
    struct daemon *daemon = small_daemon();
    int ends[2], served;
    in = out = (struct way){.length = 0};
    fuzz_require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    struct http_relay *relay = http_relay_begin(daemon, ends[0], geteuid(), &served);
    fuzz_require(relay);
    for (unsigned step = 0; step < STEPS_MAX && bytes > 2; step++) {
        size_t length = data[1] < bytes - 2 ? data[1] : bytes - 2;
        switch (data[0] % STEPS) {
        case CLIENT_SENDS:
            put(&in, ends[1], data + 2, length);
            break;
        case SERVER_SENDS:
            put(&out, served, data + 2, length);
            break;
        case CLIENT_READS:
            take(&out, ends[1], length);
            break;
        case SERVER_READS:
            take(&in, served, length);
            break;
        case CLIENT_ENDS:
            end(&in, ends[1]);
            break;
        case SERVER_ENDS:
            end(&out, served);
            break;
        default:
            small_daemon_run(daemon);
        }
        data += 2 + length;
        bytes -= 2 + length;
    }
    small_daemon_run(daemon);
    close(served);
    http_relay_end(relay);
    small_daemon_run(daemon);
    close(ends[1]);
    small_daemon_run(daemon);
    return 0;
}
