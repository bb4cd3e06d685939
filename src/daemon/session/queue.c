#include "daemon/session/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <systemd/sd-event.h>

#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/session/promises.h"
#include "daemon/session/request.h"
#include "daemon/session/session.h"
#include "daemon/session/session_life.h"

struct queued {
    TAILQ_ENTRY(queued) next;
    struct session *session;
    struct session_request request;
};

struct queue {
    struct observer observer;
    TAILQ_HEAD(, queued) line;
    sd_event_source *advance;
};

/* --- The line -------------------------------------------------------------------------------------- */

int queue_join(struct session *session, const struct session_request *request, struct error *error)
{
    struct queued *queued = calloc(1, sizeof(*queued));
    if (!queued)
        return error_set_errno(error, ENOMEM, "cannot queue the session");
    queued->session = session;
    queued->request = *request;
    queued->request.name = NULL; /* the session has it; the text goes with the request's body */
    TAILQ_INSERT_TAIL(&session->daemon->queue->line, queued, next);
    return 0;
}

static void leave(struct queue *queue, struct queued *queued)
{
    TAILQ_REMOVE(&queue->line, queued, next);
    free(queued);
}

unsigned queue_position(const struct session *session)
{
    unsigned position = 1;
    const struct queued *at;
    TAILQ_FOREACH (at, &session->daemon->queue->line, next) {
        if (at->session == session)
            return position;
        position++;
    }
    return 0;
}

const struct session_request *queue_request(const struct session *session)
{
    const struct queued *at;
    TAILQ_FOREACH (at, &session->daemon->queue->line, next) {
        if (at->session == session)
            return &at->request;
    }
    return NULL;
}

static void count_waiting(const struct queued *queued, struct admission_state *state)
{
    for (unsigned gpu = 0; gpu < state->gpu_count; gpu++)
        state->gpus[gpu].waiting += admission_may_reserve(&queued->request, gpu);
}

void queue_count_waiting(const struct daemon *daemon, struct admission_state *state)
{
    const struct queued *at;
    TAILQ_FOREACH (at, &daemon->queue->line, next)
        count_waiting(at, state);
}

/* --- Going on -------------------------------------------------------------------------------------- */

static void admit(struct session *session, const struct allotment *allotment)
{
    struct error error;
    session_take_allotment(session, allotment);
    if (session_activate(session, &error) == 0)
        return;
    log_error("session %s had its turn and cannot begin: %s", session->id, error.message);
    session_end(session, "it had its turn and cannot begin");
}

static int on_advance(sd_event_source *source, void *userdata)
{
    struct daemon *daemon = userdata;
    struct queue *queue = daemon->queue;
    struct admission_state state;
    promises_gather(daemon, NULL, &state);
    for (struct queued *at = TAILQ_FIRST(&queue->line), *next; at; at = next) {
        struct admission admission;
        next = TAILQ_NEXT(at, next);
        if (admission_plan(&state, NULL, &at->request, &admission, NULL) < 0 || admission.waits) {
            count_waiting(at, &state);
            continue;
        }
        struct session *session = at->session;
        leave(queue, at);
        admission_promise(&state, &admission.allotment);
        admit(session, &admission.allotment);
    }
    change_publish(daemon, &(struct change){CHANGE_QUEUE_MOVED}, "the queue has moved");
    return 0;
}

/* What may have become free is looked at when the loop comes round. */
static void take(void *context, const struct change *change)
{
    struct queue *queue = context;
    struct queued *at;
    bool may_free = change->kind == CHANGE_SESSION_GONE || change->kind == CHANGE_SESSION_CHANGED ||
                    change->kind == CHANGE_GPUS_SAMPLED;
    if (!may_free || TAILQ_EMPTY(&queue->line))
        return;
    sd_event_source_set_enabled(queue->advance, SD_EVENT_ONESHOT);
    if (change->kind != CHANGE_SESSION_GONE || change->session->state != SESSION_QUEUED)
        return;
    TAILQ_FOREACH (at, &queue->line, next) {
        if (at->session == change->session) {
            leave(queue, at);
            return;
        }
    }
}

/* --- Start and end --------------------------------------------------------------------------------- */

int queue_start(struct daemon *daemon, struct error *error)
{
    struct queue *queue = calloc(1, sizeof(*queue));
    int result = queue ? sd_event_add_defer(daemon->loop, &queue->advance, on_advance, daemon) : -ENOMEM;
    if (result >= 0)
        result = sd_event_source_set_enabled(queue->advance, SD_EVENT_OFF);
    if (result < 0) {
        free(queue);
        return error_set_errno(error, -result, "cannot make the queue");
    }
    TAILQ_INIT(&queue->line);
    queue->observer = (struct observer){.take = take, .context = queue};
    change_observe(daemon, &queue->observer);
    daemon->queue = queue;
    return 0;
}

void queue_stop(struct daemon *daemon)
{
    struct queue *queue = daemon->queue;
    if (!queue)
        return;
    while (!TAILQ_EMPTY(&queue->line))
        session_end(TAILQ_FIRST(&queue->line)->session, "its daemon ends while it waits");
    change_observe_no_more(daemon, &queue->observer);
    sd_event_source_disable_unref(queue->advance);
    free(queue);
    daemon->queue = NULL;
}
