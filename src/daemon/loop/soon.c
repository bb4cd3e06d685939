#include "daemon/loop/soon.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct soon {
    sd_event_source *source;
    int fd;
    bool is_awake;
    void (*run)(void *context);
    void *context;
};

static int on_awake(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct soon *soon = userdata;
    eventfd_t count;
    eventfd_read(fd, &count);
    soon->is_awake = false;
    soon->run(soon->context); /* may free it */
    return 0;
}

int soon_new(sd_event *loop, void (*run)(void *context), void *context, struct soon **soon_out)
{
    struct soon *soon = calloc(1, sizeof(*soon));
    if (!soon)
        return -ENOMEM;
    *soon = (struct soon){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .run = run, .context = context};
    int result =
        soon->fd < 0 ? -errno : sd_event_add_io(loop, &soon->source, soon->fd, EPOLLIN, on_awake, soon);
    if (result < 0) {
        soon_free(soon);
        return result;
    }
    *soon_out = soon;
    return 0;
}

void soon_wake(struct soon *soon)
{
    if (soon->is_awake)
        return;
    soon->is_awake = true;
    eventfd_write(soon->fd, 1);
}

void soon_free(struct soon *soon)
{
    if (!soon)
        return;
    sd_event_source_disable_unref(soon->source);
    if (soon->fd >= 0)
        close(soon->fd);
    free(soon);
}
