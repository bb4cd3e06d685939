#include "daemon/loop/listener.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "base/sockets.h"
#include "daemon/loop/connection_closer.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"

#define PAUSE_USEC UINT64_C(100000)

struct listener {
    struct daemon *daemon;
    int fd;
    const char *name;
    void (*enter)(void *context, int fd);
    void *context;
    sd_event_source *source, *pause;
};

static int on_pause_over(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct listener *listener = userdata;
    listener->pause = sd_event_source_disable_unref(listener->pause);
    return sd_event_source_set_enabled(listener->source, SD_EVENT_ON);
}

/* The connection stays in the backlog and keeps the socket readable: look again a little later. */
static void pause_listening(struct listener *listener)
{
    log_warning("cannot accept on %s: %s", listener->name, strerror(errno));
    sd_event_source_set_enabled(listener->source, SD_EVENT_OFF);
    sd_event_add_time_relative(listener->daemon->loop, &listener->pause, CLOCK_MONOTONIC, PAUSE_USEC, 0,
                               on_pause_over, listener);
}

/* One connection a round: what waits in the loop's other sources goes between. */
static int on_connect(sd_event_source *source, int listening, uint32_t events, void *userdata)
{
    struct listener *listener = userdata;
    int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        listener->enter(listener->context, fd); /* which may close the listener */
    else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        pause_listening(listener);
    return 0;
}

int listener_open(struct daemon *daemon, int fd, const char *name, void (*enter)(void *context, int fd),
                  void *context, struct listener **listener_out, struct error *error)
{
    struct listener *listener = calloc(1, sizeof(*listener));
    if (!listener)
        return error_set_errno(error, ENOMEM, "cannot serve %s", name);
    *listener =
        (struct listener){.daemon = daemon, .fd = fd, .name = name, .enter = enter, .context = context};
    socket_refuse_descriptors(fd);
    int result = sd_event_add_io(daemon->loop, &listener->source, fd, EPOLLIN, on_connect, listener);
    if (result < 0) {
        free(listener);
        return error_set_errno(error, -result, "cannot serve %s", name);
    }
    *listener_out = listener;
    return 0;
}

void listener_close(struct listener *listener)
{
    if (!listener)
        return;
    sd_event_source_disable_unref(listener->pause);
    sd_event_source_disable_unref(listener->source);
    close(listener->fd);
    free(listener);
}

int listener_replace(struct listener *listener, int fd)
{
    socket_refuse_descriptors(fd);
    int old = listener->fd, result = sd_event_source_set_io_fd(listener->source, fd);
    if (result < 0)
        return result;
    listener->fd = fd;
    close(old);
    return 0;
}
