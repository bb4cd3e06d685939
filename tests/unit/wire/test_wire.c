#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/wire.h"

static void open_pair(int sockets[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
}

static int open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void every_message_arrives_as_it_was_sent(void **state)
{
    int sockets[2], fds[WIRE_FDS_MAX];
    unsigned fd_count;
    open_pair(sockets);
    for (uint16_t type = WIRE_HELLO; type <= WIRE_ROOM; type++) {
        struct wire_message sent = {.header.type = type}, received;
        sent.hello.version_newest = type; /* some byte of each body */
        assert_int_equal(wire_send(sockets[0], &sent, NULL, 0), 0);
        assert_int_equal(wire_receive(sockets[1], &received, fds, &fd_count), 0);
        assert_int_equal(fd_count, 0);
        assert_memory_equal(&sent, &received, sizeof(sent));
    }
    close(sockets[0]);
    struct wire_message received;
    assert_int_equal(wire_receive(sockets[1], &received, fds, &fd_count), -ENOTCONN);
    close(sockets[1]);
}

static void descriptors_come_along_close_on_exec(void **state)
{
    int sockets[2], fds[WIRE_FDS_MAX], pipes[2];
    unsigned fd_count;
    open_pair(sockets);
    assert_int_equal(pipe(pipes), 0);
    struct wire_message message = {.header.type = WIRE_WELCOME};
    assert_int_equal(wire_send(sockets[0], &message, pipes, 2), 0);
    assert_int_equal(wire_receive(sockets[1], &message, fds, &fd_count), 0);
    assert_int_equal(fd_count, 2);
    assert_int_equal(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
    assert_int_equal(write(fds[1], "x", 1), 1);
    char letter;
    assert_int_equal(read(pipes[0], &letter, 1), 1);
    for (int i = 0; i < 2; i++) {
        close(fds[i]);
        close(pipes[i]);
        close(sockets[i]);
    }
}

static void a_bad_packet_is_refused_and_its_descriptors_closed(void **state)
{
    struct wire_message good = {.header = {WIRE_MAGIC, WIRE_VERSION, WIRE_HELLO}};
    size_t length = offsetof(struct wire_message, hello) + sizeof(good.hello);
    assert_int_equal(wire_check(&good, length), 0);

    struct wire_message bad[5];
    for (int i = 0; i < 5; i++)
        bad[i] = good;
    bad[0].header.magic++;
    bad[1].header.version = WIRE_VERSION + 1;
    bad[2].header.type = 99;
    memset(bad[3].hello.session_id, 'a', sizeof(bad[3].hello.session_id));
    memset(bad[4].hello.token, 'a', sizeof(bad[4].hello.token));
    for (int i = 0; i < 5; i++)
        assert_int_equal(wire_check(&bad[i], length), -EPROTO);
    struct wire_message names = {.header = {WIRE_MAGIC, WIRE_VERSION, WIRE_UNKNOWN}};
    size_t names_length = offsetof(struct wire_message, unknown) + sizeof(names.unknown);
    assert_int_equal(wire_check(&names, names_length), 0);
    memset(names.unknown.names, 'a', sizeof(names.unknown.names));
    assert_int_equal(wire_check(&names, names_length), -EPROTO);
    assert_int_equal(wire_check(&good, length - 1), -EPROTO);
    assert_int_equal(wire_check(&good, length + 1), -EPROTO);
    assert_int_equal(wire_check(&good, 3), -EPROTO);

    int sockets[2], fds[WIRE_FDS_MAX];
    unsigned fd_count;
    open_pair(sockets);
    int before = open_descriptors();
    union {
        char bytes[CMSG_SPACE(5 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {.iov_base = &good, .iov_len = length};
    struct msghdr packet = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control)};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&packet);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(5 * sizeof(int));
    int five[5] = {0, 0, 0, 0, 0};
    memcpy(CMSG_DATA(rights), five, sizeof(five));
    assert_int_equal(sendmsg(sockets[0], &packet, 0), (ssize_t)length);
    struct wire_message received;
    assert_int_equal(wire_receive(sockets[1], &received, fds, &fd_count), -EPROTO);
    assert_int_equal(fd_count, 0);
    assert_int_equal(open_descriptors(), before);
    close(sockets[0]);
    close(sockets[1]);
}

static void a_notice_never_waits(void **state)
{
    int sockets[2], result = 0, sent = -1;
    struct wire_message message = {.header.type = WIRE_NOTICE, .notice.kind = WIRE_NOTICE_DENIED};
    open_pair(sockets);
    for (; result == 0 && sent < 1000000; sent++) /* nobody reads */
        result = wire_post(sockets[0], &message);
    assert_int_equal(result, -EAGAIN);
    for (; sent > 0; sent--) {
        int fds[WIRE_FDS_MAX];
        unsigned fd_count;
        assert_int_equal(wire_receive(sockets[1], &message, fds, &fd_count), 0);
        assert_int_equal(message.notice.kind, WIRE_NOTICE_DENIED);
    }
    close(sockets[0]);
    close(sockets[1]);
}

static void both_sides_settle_on_the_newest_version_that_they_know(void **state)
{
    assert_int_equal(wire_common_version(WIRE_VERSION_OLDEST, WIRE_VERSION), WIRE_VERSION);
    assert_int_equal(wire_common_version(WIRE_VERSION, WIRE_VERSION + 5), WIRE_VERSION);
    assert_int_equal(wire_common_version(WIRE_VERSION + 1, WIRE_VERSION + 5), 0);
    assert_int_equal(wire_common_version(0, 0), 0);
}

/* So that a program and a daemon of any two releases can tell each other that they have no version in common. */
static void a_greeting_is_the_same_in_every_version(void **state)
{
    static const uint16_t greetings[] = {WIRE_HELLO, WIRE_AGENT, WIRE_REFUSED};
    int sockets[2], fds[WIRE_FDS_MAX];
    unsigned fd_count;
    open_pair(sockets);
    for (size_t i = 0; i < sizeof(greetings) / sizeof(greetings[0]); i++) {
        struct wire_message message = {.header = {.type = greetings[i], .version = WIRE_VERSION + 1}};
        assert_int_equal(wire_send(sockets[0], &message, NULL, 0), 0);
        assert_int_equal(wire_receive(sockets[1], &message, fds, &fd_count), 0);
        assert_int_equal(message.header.version, 1);
    }
    assert_int_equal(sizeof(struct wire_hello), 112);
    assert_int_equal(sizeof(struct wire_agent), 104);
    assert_int_equal(sizeof(struct wire_refused), 256);
    close(sockets[0]);
    close(sockets[1]);
}

static void a_closed_peer_is_an_error_not_a_signal(void **state)
{
    int sockets[2];
    open_pair(sockets);
    close(sockets[1]);
    struct wire_message message = {.header.type = WIRE_HELLO};
    assert_int_equal(wire_send(sockets[0], &message, NULL, 0), -EPIPE);
    close(sockets[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_arrives_as_it_was_sent),
        cmocka_unit_test(descriptors_come_along_close_on_exec),
        cmocka_unit_test(a_bad_packet_is_refused_and_its_descriptors_closed),
        cmocka_unit_test(a_notice_never_waits),
        cmocka_unit_test(both_sides_settle_on_the_newest_version_that_they_know),
        cmocka_unit_test(a_greeting_is_the_same_in_every_version),
        cmocka_unit_test(a_closed_peer_is_an_error_not_a_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
