#include "cli/top/top_fetch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/client.h"

/* The pause between two requests is at least so many times as long as a request takes, so that a thousand sessions
 * keep the daemon no busier. */
#define REST 4
#define ASK_TIMEOUT_S 5  /* a daemon that works answers at once */
#define ACT_TIMEOUT_S 30 /* a release that kills programs takes more than 10 s */
#define HISTORY_PATH "/v1/history?since=2m&points=120&sessions=64"

struct action {
    bool is_wanted;
    char method[8], session[64], behind[32], done[128];
    json_t *body;
};

struct top_fetch {
    struct client client;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t woken;
    int event_fd;
    /* this and all below: under the lock */
    uint64_t interval_ns;
    bool stop;
    struct action action;
    struct top_news news;
};

static void drop(json_t **old, json_t *fresh)
{
    json_decref(*old);
    *old = fresh;
}

/* Leave news from an answer. */
static void post(struct top_fetch *fetch, json_t *sessions, json_t *gpus, json_t *history)
{
    pthread_mutex_lock(&fetch->lock);
    if (sessions)
        drop(&fetch->news.sessions, sessions);
    if (gpus)
        drop(&fetch->news.gpus, gpus);
    if (history)
        drop(&fetch->news.history, history);
    fetch->news.is_lost = false;
    pthread_mutex_unlock(&fetch->lock);
    eventfd_write(fetch->event_fd, 1);
}

/* Leave a message. */
static void set_message(struct top_fetch *fetch, const char *said, bool is_bad, bool is_lost)
{
    pthread_mutex_lock(&fetch->lock);
    free(fetch->news.said);
    fetch->news.said = strdup(said);
    fetch->news.is_bad = is_bad;
    fetch->news.is_lost = is_lost;
    pthread_mutex_unlock(&fetch->lock);
    eventfd_write(fetch->event_fd, 1);
}

/* Returns how long the daemon took to answer, and 0 if it did not: a daemon that is back is to be seen soon. */
static uint64_t fetch_all(struct top_fetch *fetch, bool *has_history)
{
    json_t *sessions = NULL, *gpus = NULL, *history = NULL;
    struct error error;
    uint64_t begin = monotonic_ns();
    fetch->client.connection.timeout_s = ASK_TIMEOUT_S;
    int result = client_request(&fetch->client, "GET", "/v1/sessions", NULL, &sessions, &error);
    if (result == 0)
        result = client_request(&fetch->client, "GET", "/v1/gpus", NULL, &gpus, &error);
    /* A daemon without a history refuses; then the sparklines begin empty. */
    if (result == 0 && !*has_history)
        client_request(&fetch->client, "GET", HISTORY_PATH, NULL, &history, NULL);
    *has_history |= result == 0;
    if (result == 0) {
        post(fetch, sessions, gpus, history);
    } else {
        json_decref(sessions);
        set_message(fetch, error.message, true, true);
    }
    return result == 0 ? monotonic_ns() - begin : 0;
}

static void send_action(struct top_fetch *fetch, struct action *action)
{
    struct error error;
    fetch->client.connection.timeout_s = ACT_TIMEOUT_S;
    int result = client_request_session(&fetch->client, action->method, action->session, action->behind,
                                        action->body, NULL, &error);
    json_decref(action->body);
    set_message(fetch, result < 0 ? error.message : action->done, result < 0,
                result == -ENOTCONN || result == -ETIMEDOUT);
}

/* Wait until it is time to ask again, or for an action, or the end. Returns whether to go on. */
static bool wait_for_next(struct top_fetch *fetch, uint64_t took_ns, struct action *action)
{
    uint64_t begin = monotonic_ns();
    pthread_mutex_lock(&fetch->lock);
    for (;;) {
        uint64_t rest_ns = took_ns * REST > fetch->interval_ns ? took_ns * REST : fetch->interval_ns;
        uint64_t end = begin + rest_ns;
        if (fetch->stop || fetch->action.is_wanted || monotonic_ns() >= end)
            break;
        struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
        pthread_cond_timedwait(&fetch->woken, &fetch->lock, &until);
    }
    *action = fetch->action;
    fetch->action = (struct action){0};
    bool goes_on = !fetch->stop;
    pthread_mutex_unlock(&fetch->lock);
    return goes_on;
}

static void *thread_main(void *argument)
{
    struct top_fetch *fetch = argument;
    struct action action = {0};
    bool has_history = false;
    uint64_t took_ns;
    do {
        if (action.is_wanted)
            send_action(fetch, &action);
        took_ns = fetch_all(fetch, &has_history);
    } while (wait_for_next(fetch, took_ns, &action));
    json_decref(action.body);
    return NULL;
}

int top_fetch_start(struct top_fetch **fetch_out, bool simulated, uint64_t interval_usec, struct error *error)
{
    struct top_fetch *fetch = calloc(1, sizeof(*fetch));
    if (!fetch)
        return error_set_errno(error, ENOMEM, "cannot ask the daemon");
    int result = client_open(&fetch->client, simulated, error);
    if (result < 0) {
        free(fetch);
        return result;
    }
    pthread_mutex_init(&fetch->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&fetch->woken, &monotonic);
    pthread_condattr_destroy(&monotonic);
    fetch->interval_ns = interval_usec * 1000;
    fetch->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    /* The screen's thread handles the signals. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    result = fetch->event_fd < 0 ? -errno : -pthread_create(&fetch->thread, NULL, thread_main, fetch);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result < 0) {
        client_close(&fetch->client);
        free(fetch);
        return error_set_errno(error, -result, "cannot ask the daemon");
    }
    *fetch_out = fetch;
    return 0;
}

/* Does not wait for the thread, which may hang on a daemon that does not answer: the process is about to end. */
void top_fetch_stop(struct top_fetch *fetch)
{
    pthread_mutex_lock(&fetch->lock);
    fetch->stop = true;
    pthread_cond_signal(&fetch->woken);
    pthread_mutex_unlock(&fetch->lock);
}

int top_fetch_fd(const struct top_fetch *fetch)
{
    return fetch->event_fd;
}

struct top_news top_fetch_take(struct top_fetch *fetch)
{
    eventfd_t count;
    eventfd_read(fetch->event_fd, &count);
    pthread_mutex_lock(&fetch->lock);
    struct top_news news = fetch->news;
    fetch->news = (struct top_news){.is_lost = news.is_lost};
    pthread_mutex_unlock(&fetch->lock);
    return news;
}

bool top_fetch_act(struct top_fetch *fetch, const char *method, const char *session, const char *behind,
                   json_t *body, const char *done)
{
    pthread_mutex_lock(&fetch->lock);
    bool is_free = !fetch->action.is_wanted;
    if (is_free) {
        struct action *action = &fetch->action;
        action->is_wanted = true;
        snprintf(action->method, sizeof(action->method), "%s", method);
        snprintf(action->session, sizeof(action->session), "%s", session);
        snprintf(action->behind, sizeof(action->behind), "%s", behind);
        snprintf(action->done, sizeof(action->done), "%s", done);
        action->body = body;
        pthread_cond_signal(&fetch->woken);
    } else {
        json_decref(body);
    }
    pthread_mutex_unlock(&fetch->lock);
    return is_free;
}

void top_fetch_set_interval(struct top_fetch *fetch, uint64_t interval_usec)
{
    pthread_mutex_lock(&fetch->lock);
    fetch->interval_ns = interval_usec * 1000;
    pthread_cond_signal(&fetch->woken);
    pthread_mutex_unlock(&fetch->lock);
}
