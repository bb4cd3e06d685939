#include "daemon/loop/deferred.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct deferred {
    sd_event_source *source;
    int fd;
    bool is_awake;
    void (*run)(void *context);
    void *context;
};

static int on_awake(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct deferred *deferred = userdata;
    eventfd_t count;
    eventfd_read(fd, &count);
    deferred->is_awake = false;
    deferred->run(deferred->context); /* may free it */
    return 0;
}

int deferred_new(sd_event *loop, void (*run)(void *context), void *context, struct deferred **soon_out)
{
    struct deferred *deferred = calloc(1, sizeof(*deferred));
    if (!deferred)
        return -ENOMEM;
    *deferred =
        (struct deferred){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .run = run, .context = context};
    int result = deferred->fd < 0
                     ? -errno
                     : sd_event_add_io(loop, &deferred->source, deferred->fd, EPOLLIN, on_awake, deferred);
    if (result < 0) {
        deferred_free(deferred);
        return result;
    }
    *soon_out = deferred;
    return 0;
}

void deferred_wake(struct deferred *deferred)
{
    if (deferred->is_awake)
        return;
    deferred->is_awake = true;
    eventfd_write(deferred->fd, 1);
}

void deferred_free(struct deferred *deferred)
{
    if (!deferred)
        return;
    sd_event_source_disable_unref(deferred->source);
    if (deferred->fd >= 0)
        close(deferred->fd);
    free(deferred);
}
