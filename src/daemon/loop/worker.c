#include "daemon/loop/worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/loop/job_turns.h"

struct job_list {
    struct worker_job *first, **last;
};

struct worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t submitted;
    struct job_list waiting, finished; /* under the lock */
    bool takes_turns;                  /* `turns` is used instead of `waiting`; */
    struct job_turns turns;            /* under the lock */
    bool stop, has_ended;              /* under the lock */
    pthread_cond_t ended;
    int event_fd;
    sd_event_source *source;
    void (*run)(struct worker_job *first, void *context);
    void *context;
};

static struct worker_job *list_take(struct job_list *list)
{
    struct worker_job *first = list->first;
    list->first = NULL;
    list->last = &list->first;
    return first;
}

/* What the thread is to run next; NULL: nothing. */
static struct worker_job *take_next(struct worker *worker)
{
    return worker->takes_turns ? job_turns_take(&worker->turns) : list_take(&worker->waiting);
}

static void *thread_main(void *argument)
{
    struct worker *worker = argument;
    pthread_mutex_lock(&worker->lock);
    for (;;) {
        struct worker_job *jobs;
        while (!(jobs = take_next(worker)) && !worker->stop)
            pthread_cond_wait(&worker->submitted, &worker->lock);
        if (!jobs)
            break;
        pthread_mutex_unlock(&worker->lock);
        uint64_t began_ns = monotonic_ns();
        worker->run(jobs, worker->context);
        pthread_mutex_lock(&worker->lock);
        job_turns_charge(&worker->turns, monotonic_ns() - began_ns);
        *worker->finished.last = jobs;
        while (*worker->finished.last)
            worker->finished.last = &(*worker->finished.last)->next;
        eventfd_write(worker->event_fd, 1);
    }
    worker->has_ended = true;
    pthread_cond_signal(&worker->ended);
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

static void deliver(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    struct worker_job *job = list_take(&worker->finished);
    pthread_mutex_unlock(&worker->lock);
    while (job) {
        struct worker_job *next = job->next;
        job->done(job);
        job = next;
    }
}

static int on_finished(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    eventfd_t count;
    eventfd_read(fd, &count);
    deliver(userdata);
    return 0;
}

static int start(struct worker **worker_out, sd_event *loop, const char *name,
                 void (*run)(struct worker_job *first, void *context), void *context, bool takes_turns,
                 struct error *error)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    if (!worker)
        return error_set_errno(error, ENOMEM, "cannot start the helper thread %s", name);
    *worker = (struct worker){.run = run, .context = context, .takes_turns = takes_turns};
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->submitted, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&worker->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    list_take(&worker->waiting);
    list_take(&worker->finished);

    int result;
    worker->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (worker->event_fd < 0) {
        result = -errno;
        goto free_worker;
    }
    result = sd_event_add_io(loop, &worker->source, worker->event_fd, EPOLLIN, on_finished, worker);
    if (result < 0)
        goto close_event;

    /* Signals are for the loop's thread. SIGBUS and the like go to the thread that caused them, whatever the
     * mask says. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    result = -pthread_create(&worker->thread, NULL, thread_main, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result < 0)
        goto remove_source;
    pthread_setname_np(worker->thread, name);
    *worker_out = worker;
    return 0;

remove_source:
    sd_event_source_disable_unref(worker->source);
close_event:
    close(worker->event_fd);
free_worker:
    free(worker);
    return error_set_errno(error, -result, "cannot start the helper thread %s", name);
}

int worker_start(struct worker **worker, sd_event *loop, const char *name,
                 void (*run)(struct worker_job *first, void *context), void *context, struct error *error)
{
    return start(worker, loop, name, run, context, false, error);
}

int worker_start_in_turns(struct worker **worker, sd_event *loop, const char *name,
                          void (*run)(struct worker_job *first, void *context), void *context,
                          struct error *error)
{
    return start(worker, loop, name, run, context, true, error);
}

static void list_add(struct job_list *list, struct worker_job *job)
{
    job->next = NULL;
    *list->last = job;
    list->last = &job->next;
}

void worker_submit(struct worker *worker, struct worker_job *job)
{
    pthread_mutex_lock(&worker->lock);
    if (worker->takes_turns)
        job_turns_add(&worker->turns, job);
    else
        list_add(&worker->waiting, job);
    pthread_cond_signal(&worker->submitted);
    pthread_mutex_unlock(&worker->lock);
}

bool worker_stop(struct worker *worker, unsigned seconds)
{
    if (!worker)
        return true;
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += seconds;
    pthread_mutex_lock(&worker->lock);
    worker->stop = true;
    pthread_cond_signal(&worker->submitted);
    while (!worker->has_ended && pthread_cond_timedwait(&worker->ended, &worker->lock, &end) == 0)
        ;
    bool has_ended = worker->has_ended;
    pthread_mutex_unlock(&worker->lock);
    if (!has_ended) {
        sd_event_source_disable_unref(worker->source);
        return false;
    }
    pthread_join(worker->thread, NULL);
    deliver(worker);
    sd_event_source_disable_unref(worker->source);
    close(worker->event_fd);
    pthread_cond_destroy(&worker->submitted);
    pthread_cond_destroy(&worker->ended);
    pthread_mutex_destroy(&worker->lock);
    job_turns_end(&worker->turns);
    free(worker);
    return true;
}
