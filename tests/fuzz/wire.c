/* Packets on attach.sock: what wire_receive() takes from a socket is what wire_check() accepts in memory. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "wire/wire.h"

static int receive(const uint8_t *data, size_t bytes, struct wire_message *message)
{
    int ends[2], fds[WIRE_FDS_MAX];
    unsigned fd_count;
    fuzz_require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    int result = send(ends[0], data, bytes, 0) == (ssize_t)bytes ? 0 : -errno;
    if (result == 0)
        result = wire_receive(ends[1], message, fds, &fd_count);
    close(ends[0]);
    close(ends[1]);
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct wire_message message = {0}, received;
    size_t kept = bytes < sizeof(message) ? bytes : sizeof(message);
    if (kept)
        memcpy(&message, data, kept);
    int checked = bytes <= sizeof(message) ? wire_check(&message, bytes) : -EPROTO;
    int result = receive(data, bytes, &received);
    if (bytes == 0) {
        fuzz_require(result == -ENOTCONN);
        return 0;
    }
    fuzz_require(result == checked);
    if (result < 0)
        return 0;
    fuzz_require(memcmp(&message, &received, bytes) == 0);
    if (received.header.type == WIRE_HELLO) {
        fuzz_require(strlen(received.hello.session_id) < sizeof(received.hello.session_id));
        fuzz_require(strlen(received.hello.token) < sizeof(received.hello.token));
        uint16_t version = wire_common_version(received.hello.version_oldest, received.hello.version_newest);
        fuzz_require(version == 0 || (version >= WIRE_VERSION_OLDEST && version <= WIRE_VERSION));
    }
    return 0;
}
