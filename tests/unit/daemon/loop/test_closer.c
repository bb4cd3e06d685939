/* Connections that are slow to close, and messages with descriptors. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "daemon/loop/closer.h"
#include "daemon/loop/daemon.h"
#include "wire/wire.h"

#define LINGER_SECONDS 3

static struct daemon daemon_state;

static int begin(void **state)
{
    struct error error;
    daemon_state = (struct daemon){.closer = NULL};
    return sd_event_new(&daemon_state.loop) < 0 || closer_start(&daemon_state, &error) < 0 ? -1 : 0;
}

static int end(void **state)
{
    closer_stop(&daemon_state);
    sd_event_unref(daemon_state.loop);
    return 0;
}

/* A TCP socket whose last close waits for LINGER_SECONDS, as the other end reads nothing. Its other end. */
static int make_lingering(int *lingering)
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
    struct linger linger = {.l_onoff = 1, .l_linger = LINGER_SECONDS};
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
    int other = make_lingering(&lingering);
    send_descriptor(ends[1], lingering, &want, offsetof(struct wire_message, want) + sizeof(want.want));
    uint64_t began = monotonic_ns();
    assert_int_equal(wire_receive_plain(ends[0], &message), -EPROTO);
    assert_int_equal(wire_receive_plain(ends[0], &message), -EPROTO); /* it is still there */
    closer_close(&daemon_state, ends[0]);
    assert_true(monotonic_ns() - began < LINGER_SECONDS * UINT64_C(1000000000));
    close(other); /* lets the helper go on */
    close(ends[1]);
}

static void an_empty_packet_can_have_one_too(void **state)
{
    int ends[2], lingering;
    struct wire_message message;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
    int other = make_lingering(&lingering);
    send_descriptor(ends[1], lingering, "", 0);
    uint64_t began = monotonic_ns();
    assert_int_equal(wire_receive_plain(ends[0], &message), -EPROTO);
    closer_close(&daemon_state, ends[0]);
    assert_true(monotonic_ns() - began < LINGER_SECONDS * UINT64_C(1000000000));
    close(other);
    close(ends[1]);
}

static void messages_without_are_received_whole(void **state)
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
    closer_close(&daemon_state, ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_descriptor_is_not_received_and_its_closing_waits_for_nobody, begin,
                                        end),
        cmocka_unit_test_setup_teardown(an_empty_packet_can_have_one_too, begin, end),
        cmocka_unit_test_setup_teardown(messages_without_are_received_whole, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
