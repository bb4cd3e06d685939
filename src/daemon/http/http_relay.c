#include "daemon/http/http_relay.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "base/sockets.h"
#include "daemon/loop/connection_closer.h"
#include "daemon/loop/daemon.h"
#include "daemon/users/descriptor_bounds.h"

#define LANE_BYTES 16384u
#define LAST_BYTES_USEC UINT64_C(30000000)

/* Bytes on their way from one end to the other. */
struct lane {
    int from, to;
    size_t begin, end; /* the bytes that are read and not sent yet */
    bool has_ended;    /* nothing more comes */
    char bytes[LANE_BYTES];
};

struct http_relay {
    struct daemon *daemon;
    int client, inner;
    uid_t uid;                                     /* the user whose connection it counts as */
    sd_event_source *client_source, *inner_source; /* NULL when it has been cut */
    bool is_served_no_more;                        /* libmicrohttpd has closed its end */
    sd_event_source *timeout;
    struct lane in, out;
};

bool http_relay_is_needed(int client)
{
    int may_pass = 0;
    socklen_t length = sizeof(may_pass);
    return getsockopt(client, SOL_SOCKET, SO_PASSRIGHTS, &may_pass, &length) < 0 || may_pass;
}

/* Both ends see the end of the connection; libmicrohttpd then closes its own. */
static void cut(struct http_relay *relay)
{
    relay->client_source = sd_event_source_disable_unref(relay->client_source);
    relay->inner_source = sd_event_source_disable_unref(relay->inner_source);
    shutdown(relay->client, SHUT_RDWR);
    shutdown(relay->inner, SHUT_RDWR);
}

/* Read bytes that came without descriptors. Returns how many, 0 at the end, or a negative errno: -EPROTO when
 * descriptors came along. */
static ssize_t read_plain(int fd, char *bytes, size_t room)
{
    struct iovec part = {.iov_base = bytes, .iov_len = room};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t count = recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT);
    if (count < 0)
        return -errno;
    if (message.msg_flags & MSG_CTRUNC)
        return -EPROTO;
    if (count == 0)
        return 0;
    /* The same bytes that were looked at, and no others. */
    count = recv(fd, bytes, (size_t)count, MSG_DONTWAIT);
    return count < 0 ? -errno : count;
}

/* Which end has failed. */
enum moved { MOVED, FROM_FAILED, TO_FAILED };

static enum moved move(struct lane *lane)
{
    if (lane->begin == lane->end && !lane->has_ended) {
        ssize_t count = read_plain(lane->from, lane->bytes, sizeof(lane->bytes));
        if (count == -EAGAIN || count == -EINTR)
            return MOVED;
        if (count < 0)
            return FROM_FAILED;
        lane->begin = 0;
        lane->end = (size_t)count;
        lane->has_ended = count == 0;
        if (lane->has_ended)
            shutdown(lane->to, SHUT_WR);
    }
    if (lane->begin == lane->end)
        return MOVED;
    ssize_t sent =
        send(lane->to, lane->bytes + lane->begin, lane->end - lane->begin, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0)
        lane->begin += (size_t)sent;
    return sent >= 0 || errno == EAGAIN || errno == EINTR ? MOVED : TO_FAILED;
}

static bool is_empty(const struct lane *lane)
{
    return lane->begin == lane->end;
}

/* Read an end when its own lane is empty, and write it when the other lane has bytes for it. An end with neither is not
 * watched, because epoll would report its hang-up for ever. */
static void watch(sd_event_source *source, const struct lane *from_it, const struct lane *to_it)
{
    uint32_t reads = is_empty(from_it) && !from_it->has_ended ? EPOLLIN : 0;
    uint32_t events = reads | (is_empty(to_it) ? 0 : EPOLLOUT);
    sd_event_source_set_io_events(source, events);
    sd_event_source_set_enabled(source, events ? SD_EVENT_ON : SD_EVENT_OFF);
}

/* Drop what is in the lane; nothing more goes through it. */
static void end_lane(struct lane *lane)
{
    lane->begin = lane->end = 0;
    lane->has_ended = true;
}

static void free_relay(struct http_relay *relay)
{
    sd_event_source_disable_unref(relay->client_source);
    sd_event_source_disable_unref(relay->inner_source);
    sd_event_source_disable_unref(relay->timeout);
    user_remove(relay->daemon, relay->uid, USER_REQUEST);
    close(relay->inner);
    connection_closer_close(relay->daemon, relay->client);
    free(relay);
}

/* Whether both lanes could be moved and one of them still goes on. */
static bool move_both(struct http_relay *relay)
{
    enum moved in = move(&relay->in), out = move(&relay->out);
    /* What the client sends after libmicrohttpd has closed goes nowhere; what libmicrohttpd wrote before still goes to
     * the client. */
    if (in == TO_FAILED)
        end_lane(&relay->in);
    if (out == FROM_FAILED)
        relay->out.has_ended = true;
    return in != FROM_FAILED && out != TO_FAILED && !(relay->out.has_ended && is_empty(&relay->out));
}

static int on_ready(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct http_relay *relay = userdata;
    bool hangs_up = fd == relay->client && (events & (EPOLLHUP | EPOLLERR)),
         has_gone = hangs_up && !(events & EPOLLIN);
    /* libmicrohttpd may miss that nothing more comes, if it reads the last bytes when that is known already. */
    if (!has_gone && move_both(relay) && !(hangs_up && relay->in.has_ended)) {
        watch(relay->client_source, &relay->in, &relay->out);
        watch(relay->inner_source, &relay->out, &relay->in);
    } else if (relay->is_served_no_more) {
        free_relay(relay);
    } else {
        cut(relay);
    }
    return 0;
}

struct http_relay *http_relay_begin(struct daemon *daemon, int client, uid_t uid, int *served)
{
    int ends[2];
    struct http_relay *relay = calloc(1, sizeof(*relay));
    if (!relay || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
        free(relay);
        return NULL;
    }
    relay->daemon = daemon;
    relay->uid = uid;
    relay->client = client;
    relay->inner = ends[0];
    relay->in.from = relay->out.to = client;
    relay->in.to = relay->out.from = ends[0];
    if (sd_event_add_io(daemon->loop, &relay->client_source, client, EPOLLIN, on_ready, relay) < 0 ||
        sd_event_add_io(daemon->loop, &relay->inner_source, ends[0], EPOLLIN, on_ready, relay) < 0) {
        sd_event_source_disable_unref(relay->client_source);
        close(ends[0]);
        close(ends[1]);
        free(relay);
        return NULL;
    }
    user_add(daemon, uid, USER_REQUEST);
    *served = ends[1];
    return relay;
}

static int on_timeout(sd_event_source *source, uint64_t usec, void *userdata)
{
    free_relay(userdata);
    return 0;
}

void http_relay_end(struct http_relay *relay)
{
    relay->is_served_no_more = true;
    /* The end of the answer may still be on its way: give it a while. */
    if (!relay->client_source ||
        sd_event_add_time_relative(relay->daemon->loop, &relay->timeout, CLOCK_MONOTONIC, LAST_BYTES_USEC, 0,
                                   on_timeout, relay) < 0)
        free_relay(relay);
}

int http_relay_client(const struct http_relay *relay)
{
    return relay->client;
}
