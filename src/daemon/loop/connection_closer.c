#include "daemon/loop/connection_closer.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/peer.h"

#define STOP_SECONDS 1
#define LOOK_USEC UINT64_C(100000)
#define ACCURACY_USEC UINT64_C(50000)

struct close_job {
    STAILQ_ENTRY(close_job) next;
    int fd;
    uid_t uid; /* whose connection it was */
};

/* A helper thread. One that was left behind ends as soon as its descriptor is closed. */
struct helper {
    LIST_ENTRY(helper) next;
    struct closer *closer;
    uid_t uid;         /* whose connection it closes */
    uint64_t since_ns; /* when that close began; 0: it closes nothing */
    bool is_left_behind;
};

struct closer {
    struct daemon *daemon;
    sd_event_source *look; /* runs while there is something to close */
    pthread_mutex_t lock;
    pthread_cond_t submitted, ended;
    /* Under the lock: */
    STAILQ_HEAD(, close_job) waiting;
    LIST_HEAD(, helper) left_behind;
    struct helper *active; /* NULL: it has ended, or could not be started */
    bool is_stopping;
};

/* --- In a helper thread ---------------------------------------------------------------------------- */

static unsigned held_up_by(const struct closer *closer, uid_t uid)
{
    const struct helper *at;
    unsigned count = 0;
    LIST_FOREACH (at, &closer->left_behind, next)
        count += at->uid == uid;
    return count;
}

/* The oldest job whose user holds up fewer than CLOSER_HELD_UP_MAX helpers; the others keep their order. */
static struct close_job *take_job(struct closer *closer)
{
    struct close_job *job;
    STAILQ_FOREACH (job, &closer->waiting, next) {
        if (held_up_by(closer, job->uid) >= CLOSER_HELD_UP_MAX)
            continue;
        STAILQ_REMOVE(&closer->waiting, job, close_job, next);
        return job;
    }
    return NULL;
}

/* Called with the lock held; lets go of it during the close. */
static void close_one(struct helper *self, struct close_job *job)
{
    struct closer *closer = self->closer;
    self->uid = job->uid;
    self->since_ns = monotonic_ns();
    pthread_mutex_unlock(&closer->lock);
    close(job->fd);
    free(job);
    pthread_mutex_lock(&closer->lock);
    self->since_ns = 0;
}

static void *help(void *argument)
{
    struct helper *self = argument;
    struct closer *closer = self->closer;
    pthread_mutex_lock(&closer->lock);
    while (!self->is_left_behind) {
        struct close_job *job = take_job(closer);
        if (job)
            close_one(self, job);
        else if (closer->is_stopping)
            break;
        else
            pthread_cond_wait(&closer->submitted, &closer->lock);
    }
    if (self->is_left_behind) {
        LIST_REMOVE(self, next);
        pthread_cond_signal(&closer->submitted); /* wakes the thread for jobs of this user that had to wait */
    } else {
        closer->active = NULL;
    }
    pthread_cond_signal(&closer->ended);
    pthread_mutex_unlock(&closer->lock);
    free(self);
    return NULL;
}

/* --- In the loop ----------------------------------------------------------------------------------- */

/* Called with the lock held. 0 or a positive errno; without a helper, jobs wait until there is one. */
static int start_helper(struct closer *closer)
{
    struct helper *helper = calloc(1, sizeof(*helper));
    sigset_t all, before;
    pthread_t thread;
    if (!helper)
        return ENOMEM;
    helper->closer = closer;
    sigfillset(&all); /* signals are the loop's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = pthread_create(&thread, NULL, help, helper);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result != 0) {
        free(helper);
        return result;
    }
    pthread_setname_np(thread, "gpusliced-close");
    pthread_detach(thread);
    closer->active = helper;
    return 0;
}

/* The active thread has been closing for too long: mark it, so that another one takes over. */
static void leave_behind(struct closer *closer)
{
    struct helper *stuck = closer->active;
    stuck->is_left_behind = true;
    LIST_INSERT_HEAD(&closer->left_behind, stuck, next);
    closer->active = NULL;
    unsigned count = held_up_by(closer, stuck->uid);
    log_warning("a descriptor that uid %u sent along with a message does not close; %u of at most %u helper "
                "threads wait for such descriptors, and others go on%s",
                (unsigned)stuck->uid, count, CLOSER_HELD_UP_MAX,
                count < CLOSER_HELD_UP_MAX ? "" : "; that user's connections stay open from now on");
}

/* Whether there is something to close, or being closed. Starts a helper if there is none. */
static bool look_after_helpers(struct closer *closer)
{
    pthread_mutex_lock(&closer->lock);
    uint64_t since_ns = closer->active ? closer->active->since_ns : 0;
    if (since_ns && monotonic_ns() - since_ns > CLOSER_LONG_NS)
        leave_behind(closer);
    int result = closer->active ? 0 : start_helper(closer);
    bool goes_on = !STAILQ_EMPTY(&closer->waiting) || (closer->active && closer->active->since_ns);
    pthread_mutex_unlock(&closer->lock);
    if (result != 0)
        log_error("cannot close connections without a helper thread: %s", strerror(result));
    return goes_on;
}

static int on_look(sd_event_source *source, uint64_t usec, void *userdata)
{
    if (!look_after_helpers(userdata))
        return 0;
    sd_event_source_set_time_relative(source, LOOK_USEC);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static uid_t user_of(int fd)
{
    struct peer peer;
    return peer_credentials(fd, &peer) == 0 ? peer.uid : geteuid();
}

void connection_closer_close(struct daemon *daemon, int fd)
{
    struct closer *closer = daemon->closer;
    shutdown(fd, SHUT_RDWR); /* the client sees the end now */
    struct close_job *job = closer ? calloc(1, sizeof(*job)) : NULL;
    if (!job) {
        close(fd);
        return;
    }
    *job = (struct close_job){.fd = fd, .uid = user_of(fd)};
    pthread_mutex_lock(&closer->lock);
    STAILQ_INSERT_TAIL(&closer->waiting, job, next);
    pthread_cond_signal(&closer->submitted);
    pthread_mutex_unlock(&closer->lock);
    int enabled = SD_EVENT_OFF;
    sd_event_source_get_enabled(closer->look, &enabled);
    if (enabled != SD_EVENT_OFF)
        return;
    sd_event_source_set_time_relative(closer->look, LOOK_USEC);
    sd_event_source_set_enabled(closer->look, SD_EVENT_ONESHOT);
}

static void free_closer(struct closer *closer)
{
    sd_event_source_disable_unref(closer->look);
    pthread_cond_destroy(&closer->submitted);
    pthread_cond_destroy(&closer->ended);
    pthread_mutex_destroy(&closer->lock);
    free(closer);
}

int connection_closer_start(struct daemon *daemon, struct error *error)
{
    struct closer *closer = calloc(1, sizeof(*closer));
    pthread_condattr_t monotonic;
    if (!closer)
        return error_set_errno(error, ENOMEM, "cannot start the helper that closes connections");
    closer->daemon = daemon;
    STAILQ_INIT(&closer->waiting);
    LIST_INIT(&closer->left_behind);
    pthread_mutex_init(&closer->lock, NULL);
    pthread_cond_init(&closer->submitted, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&closer->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int result = sd_event_add_time_relative(daemon->loop, &closer->look, CLOCK_MONOTONIC, LOOK_USEC,
                                            ACCURACY_USEC, on_look, closer);
    if (result >= 0)
        result = sd_event_source_set_enabled(closer->look, SD_EVENT_OFF);
    if (result >= 0)
        result = -start_helper(closer);
    if (result < 0) {
        free_closer(closer);
        return error_set_errno(error, -result, "cannot start the helper that closes connections");
    }
    daemon->closer = closer;
    return 0;
}

void connection_closer_stop(struct daemon *daemon)
{
    struct closer *closer = daemon->closer;
    struct timespec end;
    if (!closer)
        return;
    daemon->closer = NULL;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += STOP_SECONDS;
    pthread_mutex_lock(&closer->lock);
    closer->is_stopping = true;
    pthread_cond_broadcast(&closer->submitted);
    while ((closer->active || !LIST_EMPTY(&closer->left_behind)) &&
           pthread_cond_timedwait(&closer->ended, &closer->lock, &end) == 0)
        ;
    bool has_ended = !closer->active && LIST_EMPTY(&closer->left_behind);
    pthread_mutex_unlock(&closer->lock);
    if (has_ended && STAILQ_EMPTY(&closer->waiting))
        free_closer(closer);
    else
        sd_event_source_disable_unref(closer->look);
}
