#include "daemon/loop/closer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/loop/daemon.h"
#include "daemon/loop/worker.h"

#define STOP_SECONDS 1

struct close_job {
    struct worker_job job;
    int fd;
};

/* Connections take it over from the socket that they were made to. */
void closer_refuse_descriptors(int listening_fd)
{
    int off = 0;
    setsockopt(listening_fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off));
}

/* In the helper thread. */
static void close_all(struct worker_job *first, void *context)
{
    for (struct worker_job *job = first; job; job = job->next)
        close(((struct close_job *)job)->fd);
}

static void on_closed(struct worker_job *job)
{
    free(job);
}

void closer_close(struct daemon *daemon, int fd)
{
    shutdown(fd, SHUT_RDWR); /* the client sees the end now */
    struct close_job *job = daemon->closer ? calloc(1, sizeof(*job)) : NULL;
    if (!job) {
        close(fd);
        return;
    }
    *job = (struct close_job){.job.done = on_closed, .fd = fd};
    worker_submit(daemon->closer, &job->job);
}

int closer_start(struct daemon *daemon, struct error *error)
{
    return worker_start(&daemon->closer, daemon->loop, "gpusliced-close", close_all, NULL, error);
}

void closer_stop(struct daemon *daemon)
{
    worker_stop(daemon->closer, STOP_SECONDS);
    daemon->closer = NULL;
}
