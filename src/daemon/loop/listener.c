#include "daemon/loop/listener.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"

#define PAUSE_USEC UINT64_C(100000)
#define AT_ONCE 64 /* then others have their turn */

struct entrance {
    struct daemon *daemon;
    int fd;
    const char *name;
    void (*enter)(void *context, int fd);
    void *context;
    sd_event_source *source, *pause;
};

static int on_pause_over(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct entrance *entrance = userdata;
    entrance->pause = sd_event_source_disable_unref(entrance->pause);
    return sd_event_source_set_enabled(entrance->source, SD_EVENT_ON);
}

static int on_connect(sd_event_source *source, int listening, uint32_t events, void *userdata)
{
    struct entrance *entrance = userdata;
    for (int i = 0; i < AT_ONCE; i++) {
        int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            entrance->enter(entrance->context, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* The waiting connection keeps the socket readable: look again a little later. */
            log_warning("cannot accept on %s: %s", entrance->name, strerror(errno));
            sd_event_source_set_enabled(source, SD_EVENT_OFF);
            sd_event_add_time_relative(entrance->daemon->loop, &entrance->pause, CLOCK_MONOTONIC, PAUSE_USEC,
                                       0, on_pause_over, entrance);
        }
        break;
    }
    return 0;
}

int entrance_open(struct daemon *daemon, int fd, const char *name, void (*enter)(void *context, int fd),
                  void *context, struct entrance **entrance_out, struct error *error)
{
    struct entrance *entrance = calloc(1, sizeof(*entrance));
    if (!entrance)
        return error_set_errno(error, ENOMEM, "cannot serve %s", name);
    *entrance =
        (struct entrance){.daemon = daemon, .fd = fd, .name = name, .enter = enter, .context = context};
    int result = sd_event_add_io(daemon->loop, &entrance->source, fd, EPOLLIN, on_connect, entrance);
    if (result < 0) {
        free(entrance);
        return error_set_errno(error, -result, "cannot serve %s", name);
    }
    *entrance_out = entrance;
    return 0;
}

void entrance_close(struct entrance *entrance)
{
    if (!entrance)
        return;
    sd_event_source_disable_unref(entrance->pause);
    sd_event_source_disable_unref(entrance->source);
    close(entrance->fd);
    free(entrance);
}
