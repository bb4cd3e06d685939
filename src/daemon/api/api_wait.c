/* GET /v1/sessions/ID?queue_position=N&wait_seconds=S: answered when the session's place has changed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <systemd/sd-event.h>

#include "daemon/api/api.h"
#include "daemon/http/http.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/queue.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"

/* A request that waits, about the session whose ID is its subject. */
struct waiter {
    LIST_ENTRY(waiter) next;
    struct http_request *request;
    api_reply_place *reply;
    unsigned position; /* as the client knows it */
    char ended[128];   /* why the session has ended; "": it has not, or no reason was given */
    sd_event_source *timeout;
};

struct waiters {
    struct daemon *daemon;
    struct observer observer;
    LIST_HEAD(, waiter) list;
};

static void answer(struct waiter *waiter)
{
    struct http_request *request = waiter->request;
    const struct session *session = session_find_id(request->daemon, request->subject);
    struct error error;
    LIST_REMOVE(waiter, next);
    sd_event_source_disable_unref(waiter->timeout);
    if (session) {
        waiter->reply(request, session);
    } else {
        error_set(&error, ENOENT, "ERR_SESSION_NOT_FOUND",
                  "session %s has ended while it waited for room%s%s", request->subject,
                  *waiter->ended ? ": " : "", waiter->ended);
        http_reply_error(request, &error);
    }
    free(waiter);
}

static int on_wait_over(sd_event_source *source, uint64_t usec, void *userdata)
{
    answer(userdata);
    return 0;
}

/* Keep why a session ended: the session itself is freed. */
static void keep_reason(struct waiters *waiters, const struct change *change)
{
    struct waiter *at;
    LIST_FOREACH (at, &waiters->list, next)
        if (strcmp(at->request->subject, change->session->id) == 0)
            snprintf(at->ended, sizeof(at->ended), "%s", change->message);
}

static void on_change(void *context, const struct change *change)
{
    struct waiters *waiters = context;
    if (change->kind == CHANGE_SESSION_ENDED)
        keep_reason(waiters, change);
    if (change->kind != CHANGE_QUEUE_MOVED)
        return;
    for (struct waiter *at = LIST_FIRST(&waiters->list), *next; at; at = next) {
        const struct session *session = session_find_id(waiters->daemon, at->request->subject);
        next = LIST_NEXT(at, next);
        if (!session || queue_position(session) != at->position)
            answer(at);
    }
}

void api_await_place(struct http_request *request, unsigned position, unsigned seconds,
                     api_reply_place *reply)
{
    struct waiters *waiters = request->daemon->waiters;
    const struct session *session = session_find_id(request->daemon, request->subject);
    struct waiter *waiter = calloc(1, sizeof(*waiter));
    if (waiter && queue_position(session) == position &&
        sd_event_add_time_relative(request->daemon->loop, &waiter->timeout, CLOCK_MONOTONIC,
                                   (uint64_t)seconds * 1000000, 0, on_wait_over, waiter) >= 0) {
        waiter->request = request;
        waiter->reply = reply;
        waiter->position = position;
        LIST_INSERT_HEAD(&waiters->list, waiter, next);
        return;
    }
    free(waiter);
    reply(request, session);
}

int api_wait_start(struct daemon *daemon, struct error *error)
{
    struct waiters *waiters = calloc(1, sizeof(*waiters));
    if (!waiters)
        return error_set_errno(error, ENOMEM, "cannot serve waiting requests");
    waiters->daemon = daemon;
    waiters->observer = (struct observer){.take = on_change, .context = waiters};
    change_observe(daemon, &waiters->observer);
    daemon->waiters = waiters;
    return 0;
}

void api_wait_stop(struct daemon *daemon)
{
    struct waiters *waiters = daemon->waiters;
    if (!waiters)
        return;
    while (!LIST_EMPTY(&waiters->list))
        answer(LIST_FIRST(&waiters->list));
    change_observe_no_more(daemon, &waiters->observer);
    free(waiters);
    daemon->waiters = NULL;
}
