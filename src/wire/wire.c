#include "wire/wire.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* Bytes of a whole packet by type; 0 for a type that does not exist. */
static size_t packet_bytes(unsigned type)
{
    static const uint16_t body_bytes[] = {
        [WIRE_HELLO] = sizeof(struct wire_hello),
        [WIRE_WELCOME] = sizeof(struct wire_welcome),
        [WIRE_REFUSED] = sizeof(struct wire_refused),
        [WIRE_CONTEXT_CREATED] = sizeof(struct wire_context_created),
        [WIRE_CONTEXT_COST] = sizeof(struct wire_context_cost),
        [WIRE_NOTICE] = sizeof(struct wire_notice),
        [WIRE_UNKNOWN] = sizeof(struct wire_unknown),
        [WIRE_AGENT] = sizeof(struct wire_agent),
        [WIRE_WANT] = sizeof(struct wire_want),
        [WIRE_GRANT] = sizeof(struct wire_grant),
        [WIRE_REVOKE] = sizeof(struct wire_revoke),
        [WIRE_RETURNED] = sizeof(struct wire_returned),
        [WIRE_REPORT] = sizeof(struct wire_report),
        [WIRE_CLOSED] = sizeof(struct wire_closed),
        [WIRE_BURST] = sizeof(struct wire_burst),
        [WIRE_WAITS] = sizeof(struct wire_waits),
        [WIRE_ARENA] = sizeof(struct wire_arena),
        [WIRE_EVICT] = sizeof(struct wire_evict),
        [WIRE_RESTORE] = sizeof(struct wire_restore),
        [WIRE_RESTORE_PART] = sizeof(struct wire_restore_part),
        [WIRE_KEEP] = sizeof(struct wire_keep),
        [WIRE_MOVED] = sizeof(struct wire_moved),
        [WIRE_NEED] = sizeof(struct wire_need),
        [WIRE_ROOM] = sizeof(struct wire_room),
        [WIRE_TELL] = sizeof(struct wire_tell),
    };
    if (type >= sizeof(body_bytes) / sizeof(body_bytes[0]) || body_bytes[type] == 0)
        return 0;
    return offsetof(struct wire_message, hello) + body_bytes[type];
}

/* Whether all releases have the message in the same form. */
static bool is_greeting(unsigned type)
{
    return type == WIRE_HELLO || type == WIRE_AGENT || type == WIRE_REFUSED;
}

static bool is_known_version(const struct wire_header *header)
{
    if (is_greeting(header->type))
        return header->version == WIRE_VERSION_HELLO;
    return header->version >= WIRE_VERSION_OLDEST && header->version <= WIRE_VERSION;
}

static int send_packet(int socket, struct wire_message *message, const int *fds, unsigned fd_count, int flags)
{
    union {
        char bytes[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    size_t length = packet_bytes(message->header.type);
    if (length == 0 || fd_count > WIRE_FDS_MAX)
        return -EINVAL;
    message->header.magic = WIRE_MAGIC;
    if (is_greeting(message->header.type))
        message->header.version = WIRE_VERSION_HELLO;
    else if (message->header.version == 0)
        message->header.version = WIRE_VERSION;

    struct iovec part = {.iov_base = message, .iov_len = length};
    struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count) {
        memset(&control, 0, sizeof(control));
        packet.msg_control = control.bytes;
        packet.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&packet);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, fd_count * sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &packet, MSG_NOSIGNAL | flags);
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return -errno;
    return (size_t)sent == length ? 0 : -EPROTO;
}

static const struct {
    const char *word, *text;
} stays_names[] = {
#define STAYS(name, word, text) [WIRE_STAYS_##name] = {word, text},
#include "wire/stays.def"
};

const char *wire_stays_word(enum wire_stays why)
{
    return (unsigned)why < WIRE_STAYS_COUNT ? stays_names[why].word : "unknown";
}

const char *wire_stays_text(enum wire_stays why)
{
    return (unsigned)why < WIRE_STAYS_COUNT ? stays_names[why].text : "unknown";
}

uint64_t wire_stays_sum(const uint64_t bytes[static WIRE_STAYS_COUNT])
{
    uint64_t sum = 0;
    for (unsigned why = 0; why < WIRE_STAYS_COUNT; why++)
        if (__builtin_add_overflow(sum, bytes[why], &sum))
            return UINT64_MAX;
    return sum;
}

uint16_t wire_common_version(uint16_t oldest, uint16_t newest)
{
    if (oldest > WIRE_VERSION || newest < WIRE_VERSION_OLDEST)
        return 0;
    return newest < WIRE_VERSION ? newest : WIRE_VERSION;
}

int wire_send(int socket, struct wire_message *message, const int *fds, unsigned fd_count)
{
    return send_packet(socket, message, fds, fd_count, 0);
}

int wire_post(int socket, struct wire_message *message)
{
    return send_packet(socket, message, NULL, 0, MSG_DONTWAIT);
}

int wire_post_descriptor(int socket, struct wire_message *message, int fd)
{
    return send_packet(socket, message, &fd, 1, MSG_DONTWAIT);
}

static void close_all(int *fds, unsigned *count)
{
    for (unsigned i = 0; i < *count; i++)
        close(fds[i]);
    *count = 0;
}

/* Collect the descriptors of a packet; those beyond WIRE_FDS_MAX are closed. Returns whether there were no more. */
static int take_descriptors(struct msghdr *packet, int *fds, unsigned *count)
{
    int all_taken = 1;
    *count = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(packet); part; part = CMSG_NXTHDR(packet, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        size_t carried = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < carried; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
            if (*count < WIRE_FDS_MAX) {
                fds[(*count)++] = fd;
            } else {
                close(fd);
                all_taken = 0;
            }
        }
    }
    return all_taken;
}

int wire_receive(int socket, struct wire_message *message, int fds[static WIRE_FDS_MAX], unsigned *fd_count)
{
    union {
        char bytes[CMSG_SPACE(16 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = message, .iov_len = sizeof(*message)};
    struct msghdr packet = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control)};
    *fd_count = 0;
    memset(message, 0, sizeof(*message));

    ssize_t length;
    do
        length = recvmsg(socket, &packet, MSG_CMSG_CLOEXEC);
    while (length < 0 && errno == EINTR);
    if (length < 0)
        return -errno;
    int all_taken = take_descriptors(&packet, fds, fd_count);
    if (length == 0) {
        close_all(fds, fd_count);
        return -ENOTCONN;
    }
    if (!all_taken || (packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ||
        wire_check(message, (size_t)length) < 0) {
        close_all(fds, fd_count);
        return -EPROTO;
    }
    return 0;
}

int wire_receive_plain(int socket, struct wire_message *message)
{
    struct iovec part = {.iov_base = message, .iov_len = sizeof(*message)};
    struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t length;
    memset(message, 0, sizeof(*message));
    /* Look first: the packet in the queue keeps its descriptors, and MSG_CTRUNC says that it has some. */
    do
        length = recvmsg(socket, &packet, MSG_PEEK);
    while (length < 0 && errno == EINTR);
    if (length < 0)
        return -errno;
    if (packet.msg_flags & MSG_CTRUNC)
        return -EPROTO;
    if (length == 0)
        return -ENOTCONN;
    do
        length = recv(socket, message, sizeof(*message), MSG_TRUNC);
    while (length < 0 && errno == EINTR);
    if (length < 0)
        return -errno;
    return (size_t)length > sizeof(*message) ? -EPROTO : wire_check(message, (size_t)length);
}

static int is_terminated(const char *text, size_t bytes)
{
    return memchr(text, '\0', bytes) != NULL;
}

int wire_check(const struct wire_message *message, size_t length)
{
    if (length < sizeof(struct wire_header) || message->header.magic != WIRE_MAGIC ||
        !is_known_version(&message->header))
        return -EPROTO;
    if (length != packet_bytes(message->header.type))
        return -EPROTO;
    if (message->header.type == WIRE_AGENT &&
        (!is_terminated(message->agent.session_id, sizeof(message->agent.session_id)) ||
         !is_terminated(message->agent.token, sizeof(message->agent.token))))
        return -EPROTO;
    if (message->header.type == WIRE_HELLO &&
        (!is_terminated(message->hello.session_id, sizeof(message->hello.session_id)) ||
         !is_terminated(message->hello.token, sizeof(message->hello.token))))
        return -EPROTO;
    if (message->header.type == WIRE_UNKNOWN &&
        !is_terminated(message->unknown.names, sizeof(message->unknown.names)))
        return -EPROTO;
    if (message->header.type == WIRE_REFUSED &&
        !is_terminated(message->refused.message, sizeof(message->refused.message)))
        return -EPROTO;
    return 0;
}
