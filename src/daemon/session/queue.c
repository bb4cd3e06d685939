#include "daemon/session/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/check.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/clocks.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/deferred.h"
#include "daemon/loop/log.h"
#include "daemon/session/promises.h"
#include "daemon/session/queue_users.h"
#include "daemon/session/request.h"
#include "daemon/session/session.h"
#include "daemon/session/session_life.h"
#include "daemon/users/descriptor_bounds.h"

/* A session is small beside another that asks for this many times as much. */
#define SMALL_PARTS 4
#define ENDS_LOOKED_AT 64

struct queued {
    TAILQ_ENTRY(queued) next;
    struct session *session;
    struct queue_user *user; /* its owner */
    unsigned position;       /* from 1; valid while positions_are_known */
    struct session_request request;
    bool waits_for_others; /* when the queue was last walked: those behind it wait too */
    /* What sessions that passed it reserved, and the shares of a GPU's time that were promised to them. */
    uint64_t passed_bytes;
    uint64_t passed_share;
};

struct queue {
    struct observer observer;
    TAILQ_HEAD(, queued) line;
    struct queue_users users;
    bool positions_are_known;
    struct deferred *advance;
};

/* --- What must hold -------------------------------------------------------------------------------- */

static uint32_t minimum_of(const struct queued *queued)
{
    const struct session_properties *properties = &queued->request.properties;
    return property_is_given(properties, PROPERTY_COMPUTE) ? properties->compute.min : 0;
}

/* Those that passed it took no more than it asks for (may_be_passed()). */
static bool queued_is_valid(const struct queued *queued)
{
    const struct session *session = queued->session;
    return session->queued == queued && session->state == SESSION_QUEUED && !session->has_ended &&
           session->owner == queued->user->uid && !queued->request.name &&
           queued->passed_bytes <= session->queued_bytes &&
           (minimum_of(queued) == 0 || queued->passed_share <= minimum_of(queued));
}

bool queue_is_valid(const struct queue *queue)
{
    unsigned count = 0;
    const struct queued *at;
    TAILQ_FOREACH (at, &queue->line, next) {
        count++;
        if (!queued_is_valid(at) || (queue->positions_are_known && at->position != count))
            return false;
    }
    return queue_users_are_valid(&queue->users, count);
}

/* --- Places ---------------------------------------------------------------------------------------- */

int queue_join(struct session *session, const struct session_request *request, struct error *error)
{
    struct daemon *daemon = session->daemon;
    int result = user_check(daemon, session->owner, USER_QUEUED, error);
    struct queued *queued = result == 0 ? calloc(1, sizeof(*queued)) : NULL;
    if (queued)
        queued->user = queue_users_join(&daemon->queue->users, session->owner);
    if (!queued || !queued->user) {
        free(queued);
        return result < 0 ? result : error_set_errno(error, ENOMEM, "cannot queue the session");
    }
    user_add(daemon, session->owner, USER_QUEUED);
    session->queued = queued;
    queued->session = session;
    queued->request = *request;
    queued->request.name = NULL; /* the session has its name; this text is freed with the request's body */
    TAILQ_INSERT_TAIL(&daemon->queue->line, queued, next);
    daemon->queue->positions_are_known = false;
    GS_CHECK(queue_is_valid(daemon->queue));
    /* It may be small enough to pass those that wait. */
    deferred_wake(daemon->queue->advance);
    return 0;
}

static void leave(struct queue *queue, struct queued *queued)
{
    struct session *session = queued->session;
    GS_CHECK(queued_is_valid(queued));
    TAILQ_REMOVE(&queue->line, queued, next);
    queue->positions_are_known = false;
    session->queued = NULL;
    user_remove(session->daemon, session->owner, USER_QUEUED);
    queue_users_leave(&queue->users, queued->user);
    free(queued);
}

static void count_positions(struct queue *queue)
{
    unsigned position = 1;
    struct queued *at;
    TAILQ_FOREACH (at, &queue->line, next)
        at->position = position++;
    queue->positions_are_known = true;
    GS_CHECK(queue_is_valid(queue));
}

unsigned queue_position(const struct session *session)
{
    struct queue *queue = session->daemon->queue;
    if (!session->queued)
        return 0;
    if (!queue->positions_are_known)
        count_positions(queue);
    return session->queued->position;
}

const struct session_request *queue_request(const struct session *session)
{
    return session->queued ? &session->queued->request : NULL;
}

/* The next session after `after` that ends by itself and frees reserved memory; NULL: there is none. */
static const struct session *next_to_end(const struct daemon *daemon, const struct session *after)
{
    const struct session *next = NULL;
    for (const struct session *at = daemon->sessions; at; at = at->next) {
        bool is_later = !after || at->expires_at_ms > after->expires_at_ms ||
                        (at->expires_at_ms == after->expires_at_ms && at->number > after->number);
        bool is_earlier = !next || at->expires_at_ms < next->expires_at_ms;
        if (at->expires_at_ms && (at->properties.ttl_action == TTL_ACTION_KILL || !at->processes) &&
            !session_can_move(at) && is_later && is_earlier)
            next = at;
    }
    return next;
}

/* Take what `session` has out of what is promised. */
static void take_out(const struct session *session, struct admission_state *state)
{
    for (unsigned i = 0; i < session->gpu_count; i++) {
        const struct session_gpu *gpu = &session->gpus[i];
        if (gpu->gpu < 0)
            continue;
        state->gpus[gpu->gpu].promised_share -= session->properties.compute.min;
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
            int64_t left_ms = ends->expires_at_ms - clock_machine_ms();
            return left_ms > 0 ? (double)left_ms / 1e3 : 0;
        }
    }
    return -1;
}

/* Whether the session would have room if all other users left. If not, its own user's sessions keep it out: it waits
 * for them, and keeps no other user waiting. */
static bool waits_for_others(const struct queued *queued)
{
    struct admission admission;
    return admission_plan(&queued->user->own, NULL, &queued->request, &admission, NULL) == 0 &&
           !admission.waits;
}

static void count_waiting(const struct queued *queued, struct admission_state *state)
{
    for (unsigned gpu = 0; gpu < state->gpu_count; gpu++)
        state->gpus[gpu].waiting += admission_may_reserve(&queued->request, gpu);
}

void queue_count_waiting(const struct daemon *daemon, uid_t asker, struct admission_state *state)
{
    const struct queued *at;
    queue_users_look(&daemon->queue->users, daemon);
    TAILQ_FOREACH (at, &daemon->queue->line, next)
        if (at->session->owner == asker || waits_for_others(at))
            count_waiting(at, state);
}

/* --- Admission ------------------------------------------------------------------------------------- */

static void admit(struct session *session, const struct allotment *allotment)
{
    struct error error;
    session_take_allotment(session, allotment);
    if (session_activate(session, &error) == 0)
        return;
    log_error("session %s: its turn in the queue came, but it cannot start: %s", session->id, error.message);
    session_end(session, "its turn in the queue came, but it cannot start");
}

/* Whether it asks for one of these GPUs. */
static bool asks_for_any(const struct queued *queued, const bool gpus[static LEDGER_GPUS], unsigned gpu_count)
{
    for (unsigned gpu = 0; gpu < gpu_count; gpu++)
        if (gpus[gpu] && admission_may_reserve(&queued->request, gpu))
            return true;
    return false;
}

static void add_asked(const struct queued *queued, bool gpus[static LEDGER_GPUS], unsigned gpu_count)
{
    for (unsigned gpu = 0; gpu < gpu_count; gpu++)
        gpus[gpu] |= admission_may_reserve(&queued->request, gpu);
}

/* What a session that passes others takes from them. */
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

/* Whether a session that takes `taking` may pass `queued`. Those that pass are small beside it, and all of them
 * together take no more than it asks for itself. So they make it wait longer by a bounded time, and never starve it. */
static bool may_be_passed(const struct queued *queued, const struct taking *taking)
{
    uint64_t asked = queued->session->queued_bytes;
    uint32_t minimum = minimum_of(queued);
    return taking->bytes <= asked / SMALL_PARTS && queued->passed_bytes <= asked - taking->bytes &&
           (minimum == 0 || queued->passed_share + taking->share <= minimum);
}

/* Whether all sessions before `queued` that wait for the same GPUs may be passed. */
static bool may_pass(const struct queue *queue, const struct queued *queued,
                     const struct allotment *allotment)
{
    struct taking taking = taking_of(allotment);
    const struct queued *at;
    TAILQ_FOREACH (at, &queue->line, next) {
        if (at == queued)
            return true;
        if (at->waits_for_others && waits_for(at, allotment) && !may_be_passed(at, &taking))
            return false;
    }
    return true;
}

/* Note what `queued` takes, with the sessions before it that it has passed. */
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

/* How far the queue has been walked. */
struct walk {
    /* The GPUs, as if nobody waited. */
    struct admission_state state;
    /* A session nearer the head waits for other users there. */
    bool is_awaited[LEDGER_GPUS];
};

static bool is_behind_others(const struct walk *walk, const struct queued *queued)
{
    return asks_for_any(queued, walk->is_awaited, walk->state.gpu_count);
}

static bool find_room(const struct queue *queue, const struct walk *walk, const struct queued *queued,
                      struct admission *admission)
{
    if (asks_for_any(queued, queued->user->is_behind, walk->state.gpu_count) ||
        admission_plan(&walk->state, NULL, &queued->request, admission, NULL) < 0 || admission->waits)
        return false;
    return !is_behind_others(walk, queued) || may_pass(queue, queued, &admission->allotment);
}

/* How many are admitted in one go; the rest follow in the next round of the loop, so that nobody else is held up. */
#define ADMITTED_AT_ONCE 16u

static void walk_line(struct daemon *daemon)
{
    struct queue *queue = daemon->queue;
    struct walk walk = {.is_awaited = {false}};
    unsigned admitted = 0;
    promises_gather(daemon, NULL, &walk.state);
    queue_users_look(&queue->users, daemon);
    for (struct queued *at = TAILQ_FIRST(&queue->line), *next; at; at = next) {
        struct admission admission;
        next = TAILQ_NEXT(at, next);
        bool has_room = find_room(queue, &walk, at, &admission);
        at->waits_for_others = !has_room && waits_for_others(at);
        if (at->waits_for_others)
            add_asked(at, walk.is_awaited, walk.state.gpu_count);
        else if (!has_room)
            add_asked(at, at->user->is_behind, walk.state.gpu_count);
        if (!has_room)
            continue;
        struct session *session = at->session;
        if (is_behind_others(&walk, at))
            note_passed(queue, at, &admission.allotment);
        admission_promise(&walk.state, &admission.allotment);
        admission_promise(&at->user->own, &admission.allotment);
        leave(queue, at);
        admit(session, &admission.allotment);
        if (++admitted == ADMITTED_AT_ONCE) {
            deferred_wake(queue->advance);
            return;
        }
    }
}

static void on_advance(void *context)
{
    struct daemon *daemon = context;
    walk_line(daemon);
    GS_CHECK(queue_is_valid(daemon->queue));
    change_publish(daemon, &(struct change){CHANGE_QUEUE_MOVED}, "the queue has advanced");
}

/* When something may have become free, walk the queue later in the loop. */
static void on_change(void *context, const struct change *change)
{
    struct queue *queue = context;
    bool may_free = change->kind == CHANGE_SESSION_GONE || change->kind == CHANGE_SESSION_CHANGED ||
                    change->kind == CHANGE_GPUS_SAMPLED;
    if (!may_free || TAILQ_EMPTY(&queue->line))
        return;
    deferred_wake(queue->advance);
    if (change->kind != CHANGE_SESSION_GONE || change->session->state != SESSION_QUEUED)
        return;
    if (change->session->queued)
        leave(queue, change->session->queued);
}

/* --- Start and end --------------------------------------------------------------------------------- */

int queue_start(struct daemon *daemon, struct error *error)
{
    struct queue *queue = calloc(1, sizeof(*queue));
    int result = queue ? deferred_new(daemon->loop, on_advance, daemon, &queue->advance) : -ENOMEM;
    if (result < 0) {
        free(queue);
        return error_set_errno(error, -result, "cannot make the queue");
    }
    TAILQ_INIT(&queue->line);
    queue->observer = (struct observer){.take = on_change, .context = queue};
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
        session_end(TAILQ_FIRST(&queue->line)->session, "the daemon ends while the session waits");
    GS_CHECK(queue_users_are_valid(&queue->users, 0));
    change_observe_no_more(daemon, &queue->observer);
    deferred_free(queue->advance);
    free(queue);
    daemon->queue = NULL;
}
