#include "daemon/session/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-event.h>

#include "daemon/api/api.h"
#include "daemon/gpu/gpu.h"
#include "daemon/http/http.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/session/admission.h"
#include "daemon/store/store.h"

struct queued {
    struct queued *next;
    struct session *session;
    struct session_request request;
};

/* A client that is told when its session's place changes. */
struct waiter {
    struct waiter *next;
    struct http_request *request;
    unsigned position; /* as it knows it */
    char ended[128];   /* why the session has ended; "": it has not, for all that was said */
    sd_event_source *timeout;
};

struct queue {
    struct queued *head;
    struct waiter *waiters;
    sd_event_source *advance;
    struct observer observer;
};

/* --- Room ------------------------------------------------------------------------------------------ */

/* What other sessions than `but` have been promised of a card's time. */
static uint32_t promised_share(const struct daemon *daemon, int gpu, const struct session *but)
{
    uint32_t sum = 0;
    for (const struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; i < session->gpu_count && session != but; i++)
            if (session->gpus[i].gpu == gpu)
                sum += session->compute.min;
    return sum;
}

int queue_admit_share(const struct session *session, struct share compute, struct error *error)
{
    const struct daemon *daemon = session->daemon;
    int result = 0;
    for (unsigned i = 0; i < session->gpu_count && result == 0; i++) {
        int gpu = session->gpus[i].gpu;
        if (gpu >= 0)
            result = admission_check_share(daemon->gpus[gpu].label, promised_share(daemon, gpu, session),
                                           compute.min, error);
    }
    return result;
}

static uint32_t minimum_of(const struct session_request *request)
{
    return request->has_compute ? request->compute.min : 0;
}

/* Among the cards that can keep the minimum share, if there is one, the one with most unreserved memory. */
static unsigned roomiest(const struct daemon *daemon, uint32_t minimum)
{
    uint64_t unreserved[LEDGER_GPUS];
    for (unsigned i = 0; i < daemon->gpu_count; i++) {
        bool keeps = promised_share(daemon, (int)i, NULL) + minimum <= SHARE_WHOLE;
        unreserved[i] = keeps
                            ? admission_unreserved(daemon->gpus[i].total_bytes, gpu_reserved(daemon, i, NULL),
                                                   gpu_held_by_others(daemon, i))
                            : 0;
    }
    return (unsigned)admission_roomiest(unreserved, daemon->gpu_count);
}

static uint64_t limit_on(const struct session_request *request, const struct session_limit *limit,
                         const struct gpu *card)
{
    return limit->has_bytes ? limit->bytes : request->has_bytes ? request->bytes : card->total_bytes;
}

static struct share compute_of(const struct session_request *request)
{
    return request->has_compute ? request->compute : SHARE_ANY;
}

static enum session_priority priority_of(const struct session_request *request)
{
    return request->has_priority ? request->priority : PRIORITY_NORMAL;
}

/* As queue_admit(), whoever waits. */
static int admit(struct daemon *daemon, const struct session_request *request, struct session *session,
                 struct error *error)
{
    struct session_limit limits[LEDGER_GPUS] = {{.gpu = 0}};
    unsigned count = request->limit_count;
    memcpy(limits, request->limits, count * sizeof(limits[0]));
    if (count == 0) {
        limits[0].gpu = roomiest(daemon, minimum_of(request));
        count = 1;
    }
    for (unsigned i = 0; i < count; i++) {
        const struct gpu *card = &daemon->gpus[limits[i].gpu];
        struct session_gpu *gpu = &session->gpus[i];
        gpu->gpu = (int)limits[i].gpu;
        memcpy(gpu->uuid, card->uuid, sizeof(gpu->uuid));
        gpu->is_mig = card->mig_index >= 0;
        gpu->reserved = limits[i].has_bytes || request->has_bytes;
        gpu->limit_bytes = limit_on(request, &limits[i], card);
        int result = !gpu->reserved ? 0
                                    : admission_check(card->label, card->total_bytes,
                                                      gpu_reserved(daemon, limits[i].gpu, session),
                                                      gpu_held_by_others(daemon, limits[i].gpu),
                                                      gpu->limit_bytes, error);
        if (result == 0)
            result = admission_check_share(card->label, promised_share(daemon, gpu->gpu, session),
                                           minimum_of(request), error);
        if (result < 0)
            return result;
    }
    session->gpu_count = count;
    session->compute = compute_of(request);
    session->priority = priority_of(request);
    return 0;
}

bool queue_has_hope(const struct daemon *daemon, const struct session_request *request)
{
    struct session_limit any = {.gpu = 0};
    if (request->limit_count == 0) {
        for (any.gpu = 0; any.gpu < daemon->gpu_count; any.gpu++)
            if (limit_on(request, &any, &daemon->gpus[any.gpu]) <= daemon->gpus[any.gpu].total_bytes)
                return true;
        return false;
    }
    for (unsigned i = 0; i < request->limit_count; i++) {
        const struct gpu *card = &daemon->gpus[request->limits[i].gpu];
        if (limit_on(request, &request->limits[i], card) > card->total_bytes)
            return false;
    }
    return true;
}

void queue_note_demand(const struct daemon *daemon, const struct session_request *request,
                       struct session *session)
{
    struct session_limit any = {.gpu = 0};
    session->compute = compute_of(request);
    session->priority = priority_of(request);
    session->queued_bytes = 0;
    for (unsigned i = 0; i < request->limit_count; i++)
        if (__builtin_add_overflow(
                session->queued_bytes,
                limit_on(request, &request->limits[i], &daemon->gpus[request->limits[i].gpu]),
                &session->queued_bytes))
            session->queued_bytes = UINT64_MAX;
    for (; any.gpu < daemon->gpu_count && request->limit_count == 0; any.gpu++) {
        uint64_t limit = limit_on(request, &any, &daemon->gpus[any.gpu]);
        session->queued_bytes = limit > session->queued_bytes ? limit : session->queued_bytes;
    }
}

/* Whether `request` may come to stand on `gpu`, and have something set aside there. */
static bool wants(const struct session_request *request, unsigned gpu)
{
    bool reserves = request->has_bytes || minimum_of(request);
    for (unsigned i = 0; i < request->limit_count; i++)
        if (request->limits[i].gpu == gpu)
            return reserves || request->limits[i].has_bytes;
    return request->limit_count == 0 && reserves;
}

/* Refuse what no card has, whoever else waits: to wait would not help. */
static int check_hope(const struct daemon *daemon, const struct session_request *request, struct error *error)
{
    struct session_limit any[LEDGER_GPUS];
    const struct session_limit *limits = request->limits;
    unsigned count = request->limit_count;
    if (queue_has_hope(daemon, request))
        return 0;
    if (count == 0) {
        limits = any;
        for (; count < daemon->gpu_count; count++)
            any[count] = (struct session_limit){.gpu = count};
    }
    const struct gpu *largest = NULL;
    uint64_t wanted = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct gpu *card = &daemon->gpus[limits[i].gpu];
        uint64_t limit = limit_on(request, &limits[i], card);
        if (limit <= card->total_bytes || (largest && card->total_bytes <= largest->total_bytes))
            continue;
        largest = card;
        wanted = limit;
    }
    return admission_check(largest->label, largest->total_bytes, 0, 0, wanted, error);
}

int queue_admit(struct daemon *daemon, const struct session_request *request, struct session *session,
                struct error *error)
{
    int result = check_hope(daemon, request, error);
    if (result < 0)
        return result;
    for (unsigned gpu = 0; gpu < daemon->gpu_count; gpu++) {
        unsigned waiting = 0;
        if (!wants(request, gpu))
            continue;
        for (const struct queued *at = daemon->queue->head; at; at = at->next)
            waiting += wants(&at->request, gpu);
        if (waiting)
            return error_set(
                error, EBUSY, "ERR_ADMISSION",
                "%u session%s for room on GPU %s already; wait behind %s with --wait, or name another GPU",
                waiting, waiting == 1 ? " waits" : "s wait", daemon->gpus[gpu].label,
                waiting == 1 ? "it" : "them");
    }
    return admit(daemon, request, session, error);
}

/* --- The line -------------------------------------------------------------------------------------- */

int queue_join(struct session *session, const struct session_request *request, struct error *error)
{
    struct queued *queued = calloc(1, sizeof(*queued)), **last = &session->daemon->queue->head;
    if (!queued)
        return error_set_errno(error, ENOMEM, "cannot queue the session");
    queued->session = session;
    queued->request = *request;
    queued->request.name = NULL; /* the session has it; the text goes with the request's body */
    while (*last)
        last = &(*last)->next;
    *last = queued;
    return 0;
}

static struct queued *unlink_queued(struct session *session)
{
    struct queued **at = &session->daemon->queue->head, *found;
    while (*at && (*at)->session != session)
        at = &(*at)->next;
    found = *at;
    if (found)
        *at = found->next;
    return found;
}

void queue_leave(struct session *session)
{
    if (session->daemon->queue) /* it goes before the sessions do */
        free(unlink_queued(session));
}

const struct session_request *queue_request(const struct session *session)
{
    for (const struct queued *at = session->daemon->queue->head; at; at = at->next)
        if (at->session == session)
            return &at->request;
    return NULL;
}

unsigned queue_position(const struct session *session)
{
    unsigned position = 1;
    for (const struct queued *at = session->daemon->queue->head; at; at = at->next, position++)
        if (at->session == session)
            return position;
    return 0;
}

/* --- Who waits ------------------------------------------------------------------------------------- */

static void answer(struct waiter **at)
{
    struct waiter *waiter = *at;
    struct http_request *request = waiter->request;
    const struct session *session = session_find_id(request->daemon, request->session_id);
    struct error error;
    *at = waiter->next;
    sd_event_source_disable_unref(waiter->timeout);
    if (session) {
        http_reply_json(request, 200, api_session_json(session));
    } else {
        error_set(&error, ENOENT, "ERR_SESSION_NOT_FOUND",
                  "session %s has ended while it waited for room%s%s", request->session_id,
                  *waiter->ended ? ": " : "", waiter->ended);
        http_reply_error(request, &error);
    }
    free(waiter);
}

/* A session that ends takes its reason along: keep it for those who wait for its place. */
static void on_change(void *context, const struct change *change)
{
    struct queue *queue = context;
    for (struct waiter *at = queue->waiters; at && change->kind == CHANGE_SESSION_ENDED; at = at->next)
        if (strcmp(at->request->session_id, change->session->id) == 0)
            snprintf(at->ended, sizeof(at->ended), "%s", change->message);
}

static void answer_changed(struct daemon *daemon)
{
    struct waiter **at = &daemon->queue->waiters;
    while (*at) {
        const struct session *session = session_find_id(daemon, (*at)->request->session_id);
        if (!session || queue_position(session) != (*at)->position)
            answer(at);
        else
            at = &(*at)->next;
    }
}

static int on_wait_over(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct waiter *waiter = userdata, **at = &waiter->request->daemon->queue->waiters;
    while (*at != waiter)
        at = &(*at)->next;
    answer(at);
    return 0;
}

void queue_wait(struct http_request *request, unsigned position, unsigned seconds)
{
    struct queue *queue = request->daemon->queue;
    const struct session *session = session_find_id(request->daemon, request->session_id);
    struct waiter *waiter = calloc(1, sizeof(*waiter));
    if (waiter && queue_position(session) == position &&
        sd_event_add_time_relative(request->daemon->loop, &waiter->timeout, CLOCK_MONOTONIC,
                                   (uint64_t)seconds * 1000000, 0, on_wait_over, waiter) >= 0) {
        waiter->request = request;
        waiter->position = position;
        waiter->next = queue->waiters;
        queue->waiters = waiter;
        return;
    }
    free(waiter);
    http_reply_json(request, 200, api_session_json(session));
}

/* --- Going on -------------------------------------------------------------------------------------- */

struct admitted {
    struct daemon *daemon;
    char id[SESSION_ID_TEXT];
};

static void on_stored(void *argument, int result, const char *message)
{
    struct admitted *admitted = argument;
    struct session *session = session_find_id(admitted->daemon, admitted->id);
    if (session && result < 0) {
        log_error("session %s could not be stored and ends: %s", session->id, message);
        session_end(session, "it could not be stored");
    }
    answer_changed(admitted->daemon);
    free(admitted);
}

static void enter(struct session *session)
{
    struct admitted *admitted = malloc(sizeof(*admitted));
    struct error error = {.message = "out of memory"};
    if (!admitted || session_activate(session, &error) < 0) {
        log_error("session %s had its turn and cannot begin: %s", session->id, error.message);
        free(admitted);
        session_end(session, "it had its turn and cannot begin");
        return;
    }
    admitted->daemon = session->daemon;
    strcpy(admitted->id, session->id);
    store_put_session(session, on_stored, admitted);
}

static int on_advance(sd_event_source *source, void *userdata)
{
    struct daemon *daemon = userdata;
    bool is_waited_for[LEDGER_GPUS] = {false};
    for (struct queued *at = daemon->queue->head, *next; at; at = next) {
        bool is_behind = false;
        next = at->next;
        for (unsigned gpu = 0; gpu < daemon->gpu_count; gpu++)
            is_behind |= is_waited_for[gpu] && wants(&at->request, gpu);
        if (!is_behind && admit(daemon, &at->request, at->session, NULL) == 0) {
            struct session *session = at->session;
            queue_leave(session);
            enter(session);
            continue;
        }
        for (unsigned gpu = 0; gpu < daemon->gpu_count; gpu++)
            is_waited_for[gpu] |= wants(&at->request, gpu);
    }
    answer_changed(daemon);
    return 0;
}

void queue_advance_soon(struct daemon *daemon)
{
    if (daemon->queue && (daemon->queue->head || daemon->queue->waiters))
        sd_event_source_set_enabled(daemon->queue->advance, SD_EVENT_ONESHOT);
}

/* --- Start and end --------------------------------------------------------------------------------- */

int queue_start(struct daemon *daemon, struct error *error)
{
    daemon->queue = calloc(1, sizeof(*daemon->queue));
    int result = daemon->queue ? sd_event_add_defer(daemon->loop, &daemon->queue->advance, on_advance, daemon)
                               : -ENOMEM;
    if (result >= 0)
        result = sd_event_source_set_enabled(daemon->queue->advance, SD_EVENT_OFF);
    if (result >= 0) {
        daemon->queue->observer = (struct observer){.take = on_change, .context = daemon->queue};
        change_observe(daemon, &daemon->queue->observer);
    }
    return result < 0 ? error_set_errno(error, -result, "cannot make the queue") : 0;
}

void queue_stop(struct daemon *daemon)
{
    struct queue *queue = daemon->queue;
    if (!queue)
        return;
    while (queue->waiters)
        answer(&queue->waiters);
    while (queue->head)
        session_end(queue->head->session, "its daemon ends while it waits");
    sd_event_source_disable_unref(queue->advance);
    if (queue->observer.take)
        change_observe_no_more(daemon, &queue->observer);
    free(queue);
    daemon->queue = NULL;
}
