#include "daemon/session/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <time.h>

#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/soon.h"
#include "daemon/session/promises.h"
#include "daemon/session/request.h"
#include "daemon/session/session.h"
#include "daemon/session/session_life.h"

/* A session is small beside another that asks for so many times as much. */
#define SMALL_PARTS 4
#define ENDS_LOOKED_AT 64

struct queued {
    TAILQ_ENTRY(queued) next;
    struct session *session;
    struct session_request request;
    bool waits_for_others; /* as the line was walked last: those behind it wait too */
    uint64_t
        passed_bytes; /* what was reserved by sessions that went past it, and promised to them of a GPU's time */
    uint64_t passed_share;
};

struct queue {
    struct observer observer;
    TAILQ_HEAD(, queued) line;
    struct soon *advance;
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
    /* It may be small enough to go past those that wait. */
    soon_wake(session->daemon->queue->advance);
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

/* The next session to end by itself after `after`; NULL: none. */
static const struct session *next_to_end(const struct daemon *daemon, const struct session *after)
{
    const struct session *next = NULL;
    for (const struct session *at = daemon->sessions; at; at = at->next) {
        bool is_later = !after || at->expires_at_ms > after->expires_at_ms ||
                        (at->expires_at_ms == after->expires_at_ms && at->number > after->number);
        bool is_earlier = !next || at->expires_at_ms < next->expires_at_ms;
        if (at->expires_at_ms && (at->kills_at_ttl || !at->processes) && !session_can_move(at) && is_later &&
            is_earlier)
            next = at;
    }
    return next;
}

/* Of what is promised, without what `session` has. */
static void take_out(const struct session *session, struct admission_state *state)
{
    for (unsigned i = 0; i < session->gpu_count; i++) {
        const struct session_gpu *gpu = &session->gpus[i];
        if (gpu->gpu < 0)
            continue;
        state->gpus[gpu->gpu].promised_share -= session->compute.min;
        if (gpu->reserved)
            state->gpus[gpu->gpu].reserved_bytes -= gpu->limit_bytes;
    }
}

double queue_seconds_left(const struct session *session)
{
    const struct daemon *daemon = session->daemon;
    const struct queued *first = TAILQ_FIRST(&daemon->queue->line);
    struct admission_state state;
    struct admission admission;
    const struct session *ends = NULL;
    if (!first || first->session != session)
        return -1;
    promises_gather(daemon, NULL, &state);
    for (unsigned looked = 0; looked < ENDS_LOOKED_AT && (ends = next_to_end(daemon, ends)); looked++) {
        take_out(ends, &state);
        if (admission_plan(&state, NULL, &first->request, &admission, NULL) == 0 && !admission.waits) {
            double seconds = (double)ends->expires_at_ms / 1e3 - (double)time(NULL);
            return seconds > 0 ? seconds : 0;
        }
    }
    return -1;
}

/* What one user has, of those whose sessions wait; asked for one after the other. */
struct owned {
    bool is_known;
    uid_t owner;
    struct admission_state state;
};

/* Whether the session would have room if all other users left: one that its own user's sessions keep out waits
 * for that user, and keeps no other waiting. */
static bool waits_for_others(const struct daemon *daemon, const struct queued *queued, struct owned *owned)
{
    struct admission admission;
    uid_t owner = queued->session->owner;
    if (!owned->is_known || owned->owner != owner) {
        owned->is_known = true;
        owned->owner = owner;
        promises_gather_own(daemon, owner, &owned->state);
    }
    return admission_plan(&owned->state, NULL, &queued->request, &admission, NULL) == 0 && !admission.waits;
}

static void count_waiting(const struct queued *queued, struct admission_state *state)
{
    for (unsigned gpu = 0; gpu < state->gpu_count; gpu++)
        state->gpus[gpu].waiting += admission_may_reserve(&queued->request, gpu);
}

void queue_count_waiting(const struct daemon *daemon, uid_t asker, struct admission_state *state)
{
    struct owned owned = {.is_known = false};
    const struct queued *at;
    TAILQ_FOREACH (at, &daemon->queue->line, next) {
        if (at->session->owner == asker || waits_for_others(daemon, at, &owned))
            count_waiting(at, state);
    }
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

/* The sessions of one user that he keeps out himself, as far as the line was walked. */
struct self_waiting {
    LIST_ENTRY(self_waiting) next;
    uid_t owner;
    bool on_gpu[LEDGER_GPUS];
};
LIST_HEAD(self_waiters, self_waiting);

static struct self_waiting *find_self_waiting(const struct self_waiters *list, uid_t owner)
{
    struct self_waiting *at;
    LIST_FOREACH (at, list, next) {
        if (at->owner == owner)
            return at;
    }
    return NULL;
}

/* Without memory for it, later sessions of the user may pass this one. */
static void note_self_waiting(struct self_waiters *list, const struct queued *queued, unsigned gpu_count)
{
    struct self_waiting *own = find_self_waiting(list, queued->session->owner);
    if (!own && (own = calloc(1, sizeof(*own)))) {
        own->owner = queued->session->owner;
        LIST_INSERT_HEAD(list, own, next);
    }
    for (unsigned gpu = 0; own && gpu < gpu_count; gpu++)
        own->on_gpu[gpu] |= admission_may_reserve(&queued->request, gpu);
}

static bool is_behind_own(const struct self_waiters *list, const struct queued *queued, unsigned gpu_count)
{
    const struct self_waiting *own = find_self_waiting(list, queued->session->owner);
    for (unsigned gpu = 0; own && gpu < gpu_count; gpu++)
        if (own->on_gpu[gpu] && admission_may_reserve(&queued->request, gpu))
            return true;
    return false;
}

/* What a session that goes past others takes from them. */
struct taking {
    uint64_t bytes, share;
};

static struct taking taking_of(const struct allotment *allotment)
{
    struct taking taking = {.share = allotment->compute.min};
    for (unsigned i = 0; i < allotment->gpu_count; i++)
        if (allotment->gpus[i].reserved &&
            __builtin_add_overflow(taking.bytes, allotment->gpus[i].limit_bytes, &taking.bytes))
            taking.bytes = UINT64_MAX;
    return taking;
}

static bool waits_for(const struct queued *queued, const struct allotment *allotment)
{
    for (unsigned i = 0; i < allotment->gpu_count; i++)
        if (allotment->gpus[i].gpu >= 0 &&
            admission_may_reserve(&queued->request, (unsigned)allotment->gpus[i].gpu))
            return true;
    return false;
}

/* Those that go past it are small beside it, and all of them together take no more than it asks for itself. So its
 * wait is longer by the time of so many at most, and it is never starved. */
static bool may_be_passed(const struct queued *queued, const struct taking *taking)
{
    uint64_t asked = queued->session->queued_bytes;
    uint32_t minimum = queued->request.has_compute ? queued->request.compute.min : 0;
    return taking->bytes <= asked / SMALL_PARTS && queued->passed_bytes <= asked - taking->bytes &&
           (minimum == 0 || queued->passed_share + taking->share <= minimum);
}

/* Whether `queued` has room, and everybody before it who waits for the same GPUs may be passed. */
static bool may_pass(const struct queue *queue, const struct queued *queued,
                     const struct admission_state *state, struct admission *admission)
{
    struct admission_state free_of_waiting = *state;
    for (unsigned gpu = 0; gpu < state->gpu_count; gpu++)
        free_of_waiting.gpus[gpu].waiting = 0;
    if (admission_plan(&free_of_waiting, NULL, &queued->request, admission, NULL) < 0 || admission->waits)
        return false;
    struct taking taking = taking_of(&admission->allotment);
    const struct queued *at;
    TAILQ_FOREACH (at, &queue->line, next) {
        if (at == queued)
            return true;
        if (at->waits_for_others && waits_for(at, &admission->allotment) && !may_be_passed(at, &taking))
            return false;
    }
    return true;
}

/* Those before `queued` that it has gone past remember what it took. */
static void note_passed(struct queue *queue, const struct queued *queued, const struct allotment *allotment)
{
    struct taking taking = taking_of(allotment);
    struct queued *at;
    TAILQ_FOREACH (at, &queue->line, next) {
        if (at == queued)
            return;
        if (!at->waits_for_others || !waits_for(at, allotment))
            continue;
        at->passed_bytes += taking.bytes;
        at->passed_share += taking.share;
    }
}

static bool find_room(struct queue *queue, const struct queued *queued, const struct admission_state *state,
                      struct admission *admission)
{
    if (admission_plan(state, NULL, &queued->request, admission, NULL) == 0 && !admission->waits)
        return true;
    return may_pass(queue, queued, state, admission);
}

static void walk(struct daemon *daemon, struct self_waiters *self_waiters)
{
    struct queue *queue = daemon->queue;
    struct admission_state state;
    struct owned owned = {.is_known = false};
    promises_gather(daemon, NULL, &state);
    for (struct queued *at = TAILQ_FIRST(&queue->line), *next; at; at = next) {
        struct admission admission;
        next = TAILQ_NEXT(at, next);
        bool has_room =
            !is_behind_own(self_waiters, at, state.gpu_count) && find_room(queue, at, &state, &admission);
        at->waits_for_others = !has_room && waits_for_others(daemon, at, &owned);
        if (at->waits_for_others)
            count_waiting(at, &state);
        else if (!has_room)
            note_self_waiting(self_waiters, at, state.gpu_count);
        if (!has_room)
            continue;
        struct session *session = at->session;
        note_passed(queue, at, &admission.allotment);
        leave(queue, at);
        admission_promise(&state, &admission.allotment);
        admit(session, &admission.allotment);
        owned.is_known = false;
    }
}

static void on_advance(void *context)
{
    struct daemon *daemon = context;
    struct self_waiters self_waiters = LIST_HEAD_INITIALIZER(self_waiters);
    walk(daemon, &self_waiters);
    while (!LIST_EMPTY(&self_waiters)) {
        struct self_waiting *own = LIST_FIRST(&self_waiters);
        LIST_REMOVE(own, next);
        free(own);
    }
    change_publish(daemon, &(struct change){CHANGE_QUEUE_MOVED}, "the queue has moved");
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
    soon_wake(queue->advance);
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
    int result = queue ? soon_new(daemon->loop, on_advance, daemon, &queue->advance) : -ENOMEM;
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
    soon_free(queue->advance);
    free(queue);
    daemon->queue = NULL;
}
