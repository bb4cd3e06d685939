/* Connections that are slow to close, and messages with descriptors. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "daemon/loop/connection_closer.h"
#include "daemon/loop/daemon.h"
#include "wire/wire.h"

#define LINGER_SECONDS 3
#define FOR_LONG_SECONDS 60
#define OTHER_USER 12345
#define DEADLINE_NS UINT64_C(20000000000)

static struct daemon daemon_state;

static int begin(void **state)
{
    struct error error;
    daemon_state = (struct daemon){.closer = NULL};
    return sd_event_new(&daemon_state.loop) < 0 || connection_closer_start(&daemon_state, &error) < 0 ? -1
                                                                                                      : 0;
}

static int end(void **state)
{
    connection_closer_stop(&daemon_state);
    sd_event_unref(daemon_state.loop);
    return 0;
}

/* A TCP socket whose last close waits for so long, as the other end reads nothing. Its other end. */
static int make_lingering(int *lingering, int seconds)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    char bytes[65536] = {0};
    int server = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
    assert_int_equal(setsockopt(server, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    assert_int_equal(bind(server, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(server, 1), 0);
    assert_int_equal(getsockname(server, (struct sockaddr *)&address, &length), 0);
    *lingering = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(*lingering, (struct sockaddr *)&address, sizeof(address)), 0);
    int other = accept(server, NULL, NULL);
    close(server);
    while (send(*lingering, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        ;
    struct linger linger = {.l_onoff = 1, .l_linger = seconds};
    assert_int_equal(setsockopt(*lingering, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    return other;
}

/* `length` bytes with the descriptor, which is then this end's no more. */
static void send_descriptor(int socket, int fd, const void *bytes, size_t length)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    struct msghdr packet = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control)};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&packet);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
    assert_int_equal(sendmsg(socket, &packet, MSG_NOSIGNAL), (ssize_t)length);
    close(fd);
}

static void a_descriptor_is_not_received_and_its_closing_waits_for_nobody(void **state)
{
    int ends[2], lingering;
    struct wire_message message, want = {.header = {.magic = WIRE_MAGIC, .version = 2, .type = WIRE_WANT}};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
    int other = make_lingering(&lingering, LINGER_SECONDS);
    send_descriptor(ends[1], lingering, &want, offsetof(struct wire_message, want) + sizeof(want.want));
    uint64_t began = monotonic_ns();
    assert_int_equal(wire_receive_plain(ends[0], &message), -EPROTO);
    assert_int_equal(wire_receive_plain(ends[0], &message), -EPROTO); /* it is still there */
    connection_closer_close(&daemon_state, ends[0]);
    assert_true(monotonic_ns() - began < LINGER_SECONDS * UINT64_C(1000000000));
    close(other); /* lets the helper go on */
    close(ends[1]);
}

static void an_empty_packet_may_carry_a_descriptor_too(void **state)
{
    int ends[2], lingering;
    struct wire_message message;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
    int other = make_lingering(&lingering, LINGER_SECONDS);
    send_descriptor(ends[1], lingering, "", 0);
    uint64_t began = monotonic_ns();
    assert_int_equal(wire_receive_plain(ends[0], &message), -EPROTO);
    connection_closer_close(&daemon_state, ends[0]);
    assert_true(monotonic_ns() - began < LINGER_SECONDS * UINT64_C(1000000000));
    close(other);
    close(ends[1]);
}

static void messages_without_descriptors_are_received_whole(void **state)
{
    int ends[2];
    struct wire_message message, want = {.header.type = WIRE_WANT, .want.gpus = 5};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
    assert_int_equal(wire_receive_plain(ends[0], &message), -EAGAIN);
    assert_int_equal(wire_send(ends[1], &want, NULL, 0), 0);
    assert_int_equal(wire_receive_plain(ends[0], &message), 0);
    assert_int_equal(message.want.gpus, 5);
    assert_int_equal(send(ends[1], &want, sizeof(want), 0), sizeof(want)); /* too long */
    assert_int_equal(wire_receive_plain(ends[0], &message), -EPROTO);
    close(ends[1]);
    assert_int_equal(wire_receive_plain(ends[0], &message), -ENOTCONN);
    connection_closer_close(&daemon_state, ends[0]);
}

/* Both ends of a connection that user `uid` made. By the system call: seteuid() interrupts all threads, and whatever they wait
 * for. */
static void connect_as(uid_t uid, int ends[2])
{
    assert_int_equal(syscall(SYS_setresuid, -1, uid, -1), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
    assert_int_equal(syscall(SYS_setresuid, -1, 0, -1), 0);
}

/* A connection of that user's with a descriptor in it that does not close, closed. What lets it close. */
static int close_stuck(uid_t uid)
{
    int ends[2], lingering, other = make_lingering(&lingering, FOR_LONG_SECONDS);
    connect_as(uid, ends);
    send_descriptor(ends[1], lingering, "x", 1);
    connection_closer_close(&daemon_state, ends[0]);
    close(ends[1]);
    return other;
}

/* The same with a pipe in it. Its other end, which tells when it is closed. */
static int close_pipe(uid_t uid)
{
    int ends[2], pipe_ends[2];
    assert_int_equal(pipe2(pipe_ends, O_NONBLOCK), 0);
    connect_as(uid, ends);
    send_descriptor(ends[1], pipe_ends[1], "x", 1);
    connection_closer_close(&daemon_state, ends[0]);
    close(ends[1]);
    return pipe_ends[0];
}

static bool is_closed(int pipe_end)
{
    char byte;
    return read(pipe_end, &byte, 1) == 0;
}

static bool becomes_closed(int pipe_end)
{
    uint64_t end_ns = monotonic_ns() + DEADLINE_NS;
    while (!is_closed(pipe_end) && monotonic_ns() < end_ns)
        sd_event_run(daemon_state.loop, 10000);
    return is_closed(pipe_end);
}

static void what_never_closes_holds_up_its_own_user_alone(void **state)
{
    int others[CLOSER_HELD_UP_MAX];
    if (geteuid() != 0)
        skip();
    for (unsigned i = 0; i < CLOSER_HELD_UP_MAX; i++) {
        others[i] = close_stuck(OTHER_USER);
        int neighbour = close_pipe(OTHER_USER + 1);
        assert_true(becomes_closed(neighbour)); /* another helper has taken over */
        close(neighbour);
    }
    int own = close_pipe(OTHER_USER), neighbour = close_pipe(OTHER_USER + 1);
    assert_true(becomes_closed(neighbour));
    assert_false(is_closed(own)); /* that user has as many helpers as one may */
    for (unsigned i = 0; i < CLOSER_HELD_UP_MAX; i++)
        close(others[i]);
    assert_true(becomes_closed(own));
    close(own);
    close(neighbour);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_descriptor_is_not_received_and_its_closing_waits_for_nobody, begin,
                                        end),
        cmocka_unit_test_setup_teardown(an_empty_packet_may_carry_a_descriptor_too, begin, end),
        cmocka_unit_test_setup_teardown(what_never_closes_holds_up_its_own_user_alone, begin, end),
        cmocka_unit_test_setup_teardown(messages_without_descriptors_are_received_whole, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
