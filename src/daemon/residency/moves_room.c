/* Which sessions come, and which leave for them: has residency.h decide, and carries the answer out. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "daemon/agents/agents.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/deferred.h"
#include "daemon/residency/moves_state.h"
#include "daemon/residency/moves_view.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"

#define TURN_LEAST_NS UINT64_C(1000000000)
#define TURN_MOST_NS UINT64_C(60000000000)
/* The turn where there are no turns: a session that has come can do at least something. */
#define BREATH_NS UINT64_C(100000000)
/* What stays free of the card, for small allocations of the sessions that work. */
#define AHEAD_SPARE_PART 32
#define TURNS_USEC UINT64_C(2000000)
/* What is carried out of one decision: so many sessions are told to leave or to come, and so many programs are refused,
 * which has to be explained. The next decision goes on. */
#define ORDERS_A_ROUND 64u
#define REFUSALS_A_ROUND 8u
/* Deciding takes one part of the loop's time at most, and leaves so many to others. */
#define REST_PARTS 9u

/* How much of a GPU to leave free for the session that works there; nothing while a session leaves it for the next. */
static uint64_t spare_bytes(const struct moves_view *view, unsigned gpu, uint64_t total_bytes)
{
    for (unsigned i = 0; i < view->count; i++)
        for (unsigned j = 0; j < view->seen[i].part_count && view->seen[i].is_leaving; j++)
            if (view->seen[i].parts[j].gpu == gpu)
                return 0;
    return total_bytes / AHEAD_SPARE_PART;
}

/* Whether a session waits for what others have, and is to come when they have left. */
static bool waits_for_others(const struct residency_session *seen)
{
    return seen->waits && seen->due_ns && seen->verdict != RESIDENCY_COMES;
}

static void count_waiters(struct moves_view *view)
{
    for (unsigned i = 0; i < view->count; i++)
        for (unsigned j = 0; j < view->seen[i].part_count && waits_for_others(&view->seen[i]); j++)
            view->waiters[view->seen[i].parts[j].gpu]++;
}

/* Whether a session that is to come waits for what this one has. */
static bool is_waited_for(const struct moves_view *view, const struct residency_session *seen)
{
    unsigned own = waits_for_others(seen);
    bool any = false;
    for (unsigned i = 0; i < seen->part_count; i++)
        any |= view->waiters[seen->parts[i].gpu] > own;
    return any && seen->can_leave && !seen->is_ahead;
}

/* Have as much come ahead as there is room for. */
static void bring_ahead(const struct moves_view *view, unsigned number)
{
    struct session *session = view->sessions[number];
    const struct residency_part *part = view->seen[number].parts;
    bool has_room = false;
    for (unsigned i = 0; i < session->gpu_count; i++) {
        int gpu = session->gpus[i].gpu;
        uint64_t *bytes = &session->move->ahead_bytes[i];
        *bytes = 0;
        if (gpu < 0)
            continue;
        uint64_t spare = spare_bytes(view, (unsigned)gpu, session->daemon->gpus[gpu].total_bytes);
        *bytes = part->ahead_bytes > spare ? part->ahead_bytes - spare : 0;
        has_room |= *bytes > 0;
        part++;
    }
    if (has_room)
        moves_come_ahead(session);
}

/* The session has the room that it waited for: its turn begins, unless others have waited longer. */
static void begin_turn(const struct moves_view *view, unsigned number)
{
    if (view->crowds[number].waits_since_ns > view->seen[number].waits_since_ns)
        view->sessions[number]->move->came_usec = daemon_now_usec();
}

static void note_left(const struct moves_view *view, struct session *session)
{
    for (unsigned i = 0; i < session->gpu_count; i++)
        if (session->gpus[i].gpu >= 0)
            session->move->seemed_left[i] = moves_left_beside(session, i, view->seems_free);
}

/* If it stands still while it comes, it has to try again later. */
static void send_away(struct session *session, bool is_idle)
{
    bool was_coming = session->move->state == MOVE_COMING;
    moves_turn(session, true, MOVE_BY_NEED);
    session->move->is_taken_idle = is_idle && !was_coming;
    if (was_coming) {
        moves_put_off(session);
        moves_want_back(session);
    }
    moves_advance(session);
}

static void obey(struct moves_view *view, unsigned number)
{
    struct session *session = view->sessions[number];
    const struct residency_session *seen = &view->seen[number];
    enum residency_verdict verdict = seen->verdict;
    struct move *move = session->move;
    if ((verdict == RESIDENCY_LEAVES || verdict == RESIDENCY_COMES) &&
        !moves_may_do(view, &view->orders_left))
        return;
    if (verdict == RESIDENCY_LEAVES && seen->is_ahead) {
        moves_drop_ahead(session);
    } else if (verdict == RESIDENCY_COMES_AHEAD) {
        bring_ahead(view, number);
    } else if (verdict == RESIDENCY_LEAVES) {
        send_away(session, seen->idle_since_ns != 0);
    } else if (verdict == RESIDENCY_COMES) {
        bool comes = moves_wants_to_come(session);
        begin_turn(view, number);
        note_left(view, session);
        moves_tell_room(session, true);
        if (comes) {
            moves_turn(session, false, move->cause);
            moves_advance(session);
        }
    } else if (session->properties.engine == LEDGER_ENGINE_SWAP && is_waited_for(view, seen)) {
        moves_prepare(session);
    }
}

/* Whether there is anything to decide: a session waits for room, its paged memory may be more than the card has, or
 * sessions take turns in any case. */
static bool has_something_to_decide(const struct daemon *daemon)
{
    for (const struct session *session = daemon->sessions; session; session = session->next)
        if (session->move && (moves_wants_back(session) || moves_needs_since(session) != UINT64_MAX ||
                              moves_is_paged(session) ||
                              (daemon->moves->anti_thrash == ANTI_THRASH_ON && session_can_move(session))))
            return true;
    return false;
}

static void see_all(const struct daemon *daemon, struct moves_view *view)
{
    unsigned part = 0;
    for (struct session *at = daemon->sessions; at; at = at->next) {
        if (!at->move)
            continue;
        view->sessions[view->count] = at;
        view->first_part[view->count] = &view->parts[part];
        view->seen[view->count] = moves_see(at, &view->parts[part]);
        part += view->seen[view->count++].part_count;
    }
}

/* Add to what each session has held: the time that it worked while others waited for its room. */
static void count_held(const struct moves_view *view, uint64_t before_usec, uint64_t now_usec)
{
    for (unsigned i = 0; i < view->count; i++) {
        struct residency_session *seen = &view->seen[i];
        uint64_t since_usec = view->crowds[i].waits_since_ns / 1000;
        since_usec = since_usec > before_usec ? since_usec : before_usec;
        if (!seen->can_leave || seen->is_ahead || seen->idle_since_ns || since_usec >= now_usec)
            continue;
        view->sessions[i]->move->held_usec += now_usec - since_usec;
        seen->held_ns = view->sessions[i]->move->held_usec * 1000;
    }
}

/* One session at a time has the right to work on a GPU: take away those that work there, or come. */
static void count_rights(const struct moves_view *view, int64_t free_bytes[RESIDENCY_PLACES])
{
    for (unsigned gpu = 0; gpu < RESIDENCY_GPUS; gpu++)
        free_bytes[RESIDENCY_GPUS + gpu] = 1;
    for (unsigned i = 0; i < view->count; i++)
        for (unsigned j = 0; j < view->seen[i].part_count; j++) {
            const struct residency_part *part = &view->seen[i].parts[j];
            if (part->gpu >= RESIDENCY_GPUS)
                free_bytes[part->gpu] -= (int64_t)part->here_bytes;
        }
}

static struct residency_turns turns_of(const struct moves *moves)
{
    if (moves->anti_thrash == ANTI_THRASH_OFF)
        return (struct residency_turns){BREATH_NS, BREATH_NS};
    if (moves->turn_ns)
        return (struct residency_turns){moves->turn_ns, moves->turn_ns};
    return (struct residency_turns){TURN_LEAST_NS, TURN_MOST_NS};
}

/* Sessions take turns on a GPU while one waits for what another has there, and for a while after. */
static void note_turns(struct moves *moves, const struct residency_session *seen)
{
    bool is_turn =
        seen->verdict == RESIDENCY_LEAVES ||
        (seen->waits && (seen->verdict == RESIDENCY_STAYS || seen->verdict == RESIDENCY_COMES_AHEAD));
    for (unsigned i = 0; i < seen->part_count && is_turn; i++)
        if (seen->parts[i].gpu < RESIDENCY_GPUS && (seen->parts[i].missing_bytes || !seen->waits))
            moves->turns_until_usec[seen->parts[i].gpu] = daemon_now_usec() + TURNS_USEC;
}

/* False: out of memory. */
static bool decide_on(struct daemon *daemon, struct moves_view *view)
{
    struct moves *moves = daemon->moves;
    const struct residency_turns turns = turns_of(moves);
    int64_t free_bytes[RESIDENCY_PLACES];
    moves_count_free(daemon, view->seems_free);
    moves_learn_from_needs(daemon, view->seems_free);
    memcpy(free_bytes, view->seems_free, sizeof(free_bytes));
    moves_bound_free(daemon, free_bytes);
    see_all(daemon, view);
    count_rights(view, free_bytes);
    moves_find_hopeless(view, free_bytes);
    moves_end_hopes(view, daemon);
    if (!residency_find_crowds(view->seen, view->count, view->crowds))
        return false;
    uint64_t now_usec = daemon_now_usec();
    count_held(view, moves->decided_usec, now_usec);
    moves->decided_usec = now_usec;
    uint64_t again_ns = residency_decide(view->seen, view->count, free_bytes, &turns, now_usec * 1000);
    count_waiters(view);
    for (unsigned i = 0; i < view->count; i++) {
        const struct residency_session *seen = &view->seen[i];
        view->sessions[i]->move->due_usec = seen->due_ns / 1000;
        note_turns(moves, seen);
        obey(view, i);
    }
    if (again_ns != UINT64_MAX)
        moves_look_again(moves, again_ns / 1000 + 1);
    return true;
}

/* How many places all sessions have together: their GPUs, and the right to work on each. */
static size_t count_places(const struct daemon *daemon)
{
    size_t count = 0;
    for (const struct session *session = daemon->sessions; session; session = session->next)
        count += 2 * (size_t)session->gpu_count;
    return count;
}

static bool view_begin(struct moves_view *view, const struct daemon *daemon)
{
    size_t count = daemon->session_count;
    *view = (struct moves_view){
        .seen = calloc(count, sizeof(*view->seen)),
        .sessions = calloc(count, sizeof(struct session *)),
        .first_part = calloc(count, sizeof(struct residency_part *)),
        .parts = calloc(count_places(daemon), sizeof(*view->parts)),
        .crowds = calloc(count, sizeof(*view->crowds)),
        .lacks = calloc(count, sizeof(*view->lacks)),
        .has_lost_hope = calloc(count, sizeof(*view->has_lost_hope)),
        .vain_waits = calloc(count, sizeof(*view->vain_waits)),
        .orders_left = ORDERS_A_ROUND,
        .refusals_left = REFUSALS_A_ROUND,
    };
    return view->seen && view->sessions && view->first_part && view->parts && view->crowds && view->lacks &&
           view->has_lost_hope && view->vain_waits;
}

static void view_end(struct moves_view *view)
{
    free(view->vain_waits);
    free(view->has_lost_hope);
    free(view->lacks);
    free(view->crowds);
    free(view->parts);
    free(view->first_part);
    free(view->sessions);
    free(view->seen);
}

void moves_decide(struct daemon *daemon)
{
    struct moves *moves = daemon->moves;
    struct moves_view view;
    uint64_t began_usec = daemon_now_usec(), ended_usec;
    if (!has_something_to_decide(daemon)) {
        moves_note_waits(daemon);
        return;
    }
    bool is_done = view_begin(&view, daemon) && decide_on(daemon, &view) && !view.is_cut;
    view_end(&view);
    moves_note_waits(daemon);
    GS_CHECK(moves_are_valid(moves));
    ended_usec = daemon_now_usec();
    moves->rests_until_usec = ended_usec + REST_PARTS * (ended_usec - began_usec);
    if (is_done)
        moves_set_timer(moves);
    else
        moves_decide_soon(moves);
}

void moves_decide_rested(struct moves *moves)
{
    if (daemon_now_usec() < moves->rests_until_usec)
        moves_look_again(moves, moves->rests_until_usec);
    else
        moves_decide(moves->daemon);
}

void moves_decide_soon(struct moves *moves)
{
    if (daemon_now_usec() < moves->rests_until_usec)
        moves_look_again(moves, moves->rests_until_usec);
    else
        deferred_wake(moves->decision);
}
