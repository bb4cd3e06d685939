/* Which sessions come, and which leave for them: gathers how each session stands, has residency.h decide, and carries
 * the answer out. */
#include <stdlib.h>
#include <string.h>

#include "daemon/loop/daemon.h"
#include "daemon/loop/soon.h"
#include "daemon/residency/moves_state.h"
#include "daemon/residency/residency.h"
#include "daemon/schedule/agents.h"
#include "daemon/session/process.h"
#include "daemon/session/promises.h"
#include "daemon/session/session.h"
#include "daemon/session/session_show.h"

#define HOPE_USEC UINT64_C(1500000)
#define TURN_LEAST_NS UINT64_C(1000000000)
#define TURN_MOST_NS UINT64_C(60000000000)
/* The turn where there are no turns: a session that has come can do at least something. */
#define BREATH_NS UINT64_C(100000000)
/* What stays free of the card, for small allocations of the sessions that work. */
#define AHEAD_SPARE_PART 32
#define TURNS_USEC UINT64_C(2000000)
/* How long a session must have had no work to count as idle: this part of the time that leaving and coming back takes.
 * An agent reports idleness only after IDLE_TOLD_USEC; beyond that the daemon waits IDLE_MOST_USEC at most. */
#define IDLE_PART 16
#define IDLE_TOLD_USEC UINT64_C(40000)
#define IDLE_MOST_USEC UINT64_C(160000)
/* What is carried out of one decision: so many sessions are told to leave or to come, and so many programs are refused,
 * which has to be explained. The next decision goes on. */
#define ORDERS_A_ROUND 64u
#define REFUSALS_A_ROUND 8u
/* Deciding takes one part of the loop's time at most, and leaves so many to others. */
#define REST_PARTS 9u

/* What a session has on the card, or will have when it has come. */
static uint64_t taken_by(const struct session *session, unsigned policy_gpu)
{
    uint64_t used = session_used(session, policy_gpu), away, here,
             waits = session->move ? moves_charged_ahead(session, policy_gpu) : 0;
    used = used > waits ? used - waits : 0;
    if (!session->move || session->move->state == MOVE_COMING)
        return used;
    away = moves_away_bytes(session, policy_gpu);
    here = session->move->state == MOVE_AWAY
               ? moves_ahead_bytes(session, policy_gpu)
               : moves_part(session, policy_gpu, MOVES_SUM(session, resident_bytes));
    used = used > away ? used - away : 0;
    used += moves_coming_bytes(session, policy_gpu);
    return used > here ? used : here;
}

/* The same, but no more than it can have, and bounded so that sums of it cannot overflow. */
static int64_t counted_by(const struct session *session, unsigned policy_gpu)
{
    uint64_t taken = moves_at_most(taken_by(session, policy_gpu), moves_there_at_most(session, policy_gpu));
    return taken < INT64_MAX / LEDGER_GPUS ? (int64_t)taken : INT64_MAX / LEDGER_GPUS;
}

static uint64_t slack_bytes(const struct gpu *card)
{
    uint64_t slack = card->total_bytes / MOVES_SLACK_PART;
    return slack < MOVES_SLACK_BYTES ? slack : MOVES_SLACK_BYTES;
}

/* Whether the driver pages the session's memory: then it may be more than the card has. Other memory cannot be,
 * whatever the counts say. */
static bool is_paged(const struct session *session)
{
    return session_can_move(session) && session->engine != LEDGER_ENGINE_SWAP;
}

/* What seems to be free of each GPU; below 0: more is counted there than it has. */
static void count_free(const struct daemon *daemon, int64_t free_bytes[RESIDENCY_PLACES])
{
    memset(free_bytes, 0, RESIDENCY_PLACES * sizeof(free_bytes[0]));
    for (unsigned gpu = 0; gpu < daemon->gpu_count; gpu++) {
        const struct gpu *card = &daemon->gpus[gpu];
        free_bytes[gpu] = (int64_t)admission_unreserved(card->total_bytes, slack_bytes(card),
                                                        promises_outside_bytes(daemon, gpu));
    }
    for (const struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; i < session->gpu_count; i++) {
            int gpu = session->gpus[i].gpu;
            if (gpu >= 0)
                free_bytes[gpu] -= counted_by(session, i);
        }
}

static void find_paged(const struct daemon *daemon, bool has_paged[LEDGER_GPUS])
{
    memset(has_paged, 0, LEDGER_GPUS * sizeof(*has_paged));
    for (const struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; i < session->gpu_count && is_paged(session); i++)
            if (session->gpus[i].gpu >= 0)
                has_paged[session->gpus[i].gpu] = true;
}

/* Take off what refusals taught. More than there is can only be on a GPU whose memory the driver pages. */
static void bound_free(const struct daemon *daemon, int64_t free_bytes[RESIDENCY_PLACES])
{
    bool has_paged[LEDGER_GPUS];
    find_paged(daemon, has_paged);
    for (unsigned gpu = 0; gpu < daemon->gpu_count; gpu++) {
        bool may_be_over = daemon->moves->anti_thrash != ANTI_THRASH_OFF && has_paged[gpu];
        int64_t seems = free_bytes[gpu],
                unseen = (int64_t)moves_lesson_bytes(&daemon->moves->lessons[gpu], daemon_now_usec());
        if (seems > 0)
            free_bytes[gpu] = seems > unseen ? seems - unseen : 0;
        else if (!may_be_over)
            free_bytes[gpu] = 0;
    }
}

/* Of what is away of the session, the bytes that have to come to one of its GPUs; its threads' needs come on top. */
static uint64_t still_away(const struct session *session, unsigned policy_gpu)
{
    uint64_t away = moves_away_bytes(session, policy_gpu), coming = moves_coming_bytes(session, policy_gpu);
    return away > coming ? away - coming : 0;
}

/* What would seem to be left of a GPU if the session had all that it waits for. A session that is coming counts as there. */
static int64_t left_beside(const struct session *session, unsigned policy_gpu,
                           const int64_t seems_free[RESIDENCY_PLACES])
{
    uint64_t needed = moves_needed_bytes(session, policy_gpu, false);
    if (moves_wants_to_come(session))
        needed += still_away(session, policy_gpu);
    return seems_free[session->gpus[policy_gpu].gpu] - (int64_t)needed;
}

static void learn(const struct session *session, unsigned policy_gpu,
                  const int64_t seems_free[RESIDENCY_PLACES])
{
    struct moves *moves = session->daemon->moves;
    int64_t left, told = session->move->seemed_left[policy_gpu];
    int gpu = session->gpus[policy_gpu].gpu;
    if (gpu < 0)
        return;
    left = left_beside(session, policy_gpu, seems_free);
    moves_lesson_learn(&moves->lessons[gpu], left < told ? left : told, daemon_now_usec());
}

void moves_learn(const struct session *session, unsigned policy_gpu)
{
    int64_t seems_free[RESIDENCY_PLACES];
    count_free(session->daemon, seems_free);
    learn(session, policy_gpu, seems_free);
}

/* Learn from all who asked again since it was last decided. */
static void learn_from_needs(const struct daemon *daemon, const int64_t seems_free[RESIDENCY_PLACES])
{
    for (const struct session *session = daemon->sessions; session; session = session->next)
        for (const struct process *process = session->processes; process && session->move;
             process = process->next) {
            if (process->move && process->move->need.number && process->move->need_teaches)
                learn(session, process->move->need.gpu, seems_free);
            if (process->move)
                process->move->need_teaches = false;
        }
}

static void tell_room(struct session *session, bool has_room)
{
    for (struct process *process = session->processes; process; process = process->next) {
        if (!process->move || !process->move->need.number)
            continue;
        struct wire_message message = {.header.type = WIRE_ROOM,
                                       .room = {.number = process->move->need.number, .has_room = has_room}};
        process->move->need.number = 0;
        process->move->rooms_told += has_room;
        process->move->use_when_told = moves_use_mark(process);
        agents_send(process, &message, -1);
    }
}

/* How much would leave: by what the processes last said, or by the ledger if that is more, because it knows earlier
 * what they have allocated since. */
static uint64_t leaves_with(const struct session *session, unsigned policy_gpu)
{
    int gpu = session->gpus[policy_gpu].gpu;
    uint64_t told = moves_part(session, policy_gpu, MOVES_SUM(session, resident_bytes));
    uint64_t stays =
        moves_part(session, policy_gpu, moves_stay_bytes(session) + MOVES_SUM(session, evicted_bytes)) +
        session->process_count * session->daemon->gpus[gpu].context_bytes;
    uint64_t charged = session_charged(session, policy_gpu);
    stays += moves_charged_ahead(session, policy_gpu);
    charged = charged > stays ? charged - stays : 0;
    return !session_can_move(session) ? 0 : charged > told ? charged : told;
}

/* One session works at a time: for each of its GPUs, note whether it has the one right to work there, or misses it. */
static void see_right_to_work(const struct session *session, struct residency_part *parts,
                              struct residency_session *seen)
{
    bool comes = moves_wants_to_come(session);
    bool has_some = MOVES_SUM(session, resident_bytes) > 0 && !comes && !moves_stands_still(session);
    for (unsigned i = 0, count = seen->part_count; i < count; i++)
        parts[seen->part_count++] = (struct residency_part){.gpu = RESIDENCY_GPUS + parts[i].gpu,
                                                            .here_bytes = has_some && !seen->idle_since_ns,
                                                            .missing_bytes = comes};
}

/* Since when it has no work; UINT64_MAX: it has, or had until just now, compared with how long its memory takes to
 * leave and come back. */
static uint64_t rests_since(const struct session *session, uint64_t move_ns)
{
    uint64_t idle_usec = moves_idle_since(session), wait_usec = move_ns / 1000 / IDLE_PART;
    wait_usec = wait_usec > IDLE_TOLD_USEC ? wait_usec - IDLE_TOLD_USEC : 0;
    wait_usec = wait_usec < IDLE_MOST_USEC ? wait_usec : IDLE_MOST_USEC;
    if (idle_usec == UINT64_MAX || daemon_now_usec() >= idle_usec + wait_usec)
        return idle_usec;
    moves_look_again(session->daemon->moves, idle_usec + wait_usec);
    return UINT64_MAX;
}

/* Whether some of it can be on the card while the rest is not. */
static bool can_come_in_parts(const struct session *session)
{
    for (const struct process *process = session->processes; process; process = process->next)
        if (process->move && process->move->has_said && !(process->move->now.flags & WIRE_MOVED_PARTS))
            return false;
    return true;
}

/* How long it takes to move this much one way, by the speed of earlier moves. */
static uint64_t moving_ns(const struct moves *moves, uint64_t bytes)
{
    return (uint64_t)(1e9 * (double)bytes / (double)moves->bytes_per_second);
}

/* Whether it can be told to leave. Of what stands still while it comes, that is at once what has not come. */
static bool can_leave(const struct session *session, bool is_ahead)
{
    enum move_state state = session->move->state;
    bool is_still = moves_stands_still(session);
    return session_can_move(session) &&
           (is_ahead ? !moves_has_part_order(session) || is_still
                     : state == MOVE_RESIDENT || (state == MOVE_COMING && is_still));
}

/* How much there will be of the card when it has left. */
static uint64_t here_bytes(const struct session *session, unsigned policy_gpu)
{
    uint64_t bytes = moves_wants_to_come(session)          ? moves_ahead_bytes(session, policy_gpu)
                     : !moves_stands_still(session)        ? leaves_with(session, policy_gpu)
                     : session->move->state == MOVE_COMING ? moves_away_bytes(session, policy_gpu)
                     : moves_stands_for_good(session)      ? 0
                                                           : leaves_with(session, policy_gpu);
    return moves_at_most(bytes, moves_there_at_most(session, policy_gpu));
}

/* Since when it has no work, or stands still while it comes; 0: it works. */
static uint64_t idle_since_ns(const struct session *session, uint64_t move_ns)
{
    if (session->move->state == MOVE_COMING && moves_stands_still(session))
        return session->move->progress_usec * 1000;
    uint64_t rests = rests_since(session, move_ns);
    return rests == UINT64_MAX ? 0 : rests * 1000;
}

/* How residency.h sees one session. `parts` has room for the places of all its GPUs. */
static struct residency_session see(const struct session *session, struct residency_part *parts)
{
    const struct move *move = session->move;
    uint64_t since = moves_needs_since(session), here = 0, missing = 0;
    bool comes = moves_wants_to_come(session), is_still = moves_stands_still(session);
    uint64_t ahead = comes ? MOVES_SUM(session, resident_bytes) : 0;
    struct residency_session seen = {
        .parts = parts,
        .can_leave = can_leave(session, ahead > 0),
        .is_ahead = ahead > 0,
        .can_come_ahead = comes && !moves_has_part_order(session) && can_come_in_parts(session),
        .is_leaving = move->state == MOVE_LEAVING && !is_still,
        .is_coming = (move->state == MOVE_COMING || moves_has_part_order(session)) && !is_still,
        .waits = comes || since != UINT64_MAX,
        .comes_last = move->is_wasteful,
        .priority = session->priority,
        .min_share = session->compute.min,
        .waits_since_ns = (comes && move->wants_usec < since ? move->wants_usec : since) * 1000,
        .came_ns = move->came_usec * 1000,
        .paused_ns = move->paused_usec * 1000,
        .began_ns = move->new_usec * 1000,
        .held_ns = move->held_usec * 1000,
    };
    for (unsigned i = 0; i < session->gpu_count; i++) {
        if (session->gpus[i].gpu < 0)
            continue;
        struct residency_part *part = &parts[seen.part_count++];
        *part = (struct residency_part){.gpu = (unsigned)session->gpus[i].gpu,
                                        .here_bytes = here_bytes(session, i),
                                        .missing_bytes = moves_needed_bytes(session, i, true),
                                        .least_bytes = moves_needed_bytes(session, i, false)};
        if (comes) {
            uint64_t away = still_away(session, i);
            part->least_bytes += away;
            part->missing_bytes += away + move->misses * 2 * MOVES_SLACK_BYTES;
        }
        here += part->here_bytes;
        missing += part->missing_bytes;
    }
    seen.move_ns = 2 * moving_ns(session->daemon->moves, here + missing);
    seen.come_ns = moving_ns(session->daemon->moves,
                             move->state == MOVE_COMING ? MOVES_SUM(session, evicted_bytes) : missing);
    seen.idle_since_ns = idle_since_ns(session, seen.move_ns);
    if (session->daemon->moves->anti_thrash == ANTI_THRASH_ON && session_can_move(session))
        see_right_to_work(session, parts, &seen);
    return seen;
}

/* All sessions, as residency.h sees them. */
struct view {
    unsigned count;
    struct residency_session *seen;
    struct session **sessions;
    /* The parts of all sessions; and where each session's begin. */
    struct residency_part *parts, **first_part;
    struct residency_crowd *crowds; /* per session; found before those are told apart that wait in vain */
    /* Those that wait for room that nobody can make; there is room for all. Per session: what it lacks then, and whether it has
     * waited so for long enough to be refused. */
    struct vain_wait *vain_waits;
    unsigned vain_count;
    struct moves_lack *lacks;
    bool *has_lost_hope;
    int64_t seems_free[RESIDENCY_PLACES]; /* by the counts alone */
    int64_t most_room[RESIDENCY_PLACES];  /* if all left, and whoever comes now had come and left */
    unsigned waiters[RESIDENCY_PLACES];   /* how many wait there for what others have */
    unsigned orders_left, refusals_left;  /* in this round; */
    bool is_cut;                          /* and there was more to do */
};

/* A session of the view that waits in vain. */
struct vain_wait {
    uint64_t since_ns;
    unsigned number;
};

/* How much of a GPU to leave free for the session that works there; nothing while a session leaves it for the next. */
static uint64_t spare_bytes(const struct view *view, unsigned gpu, uint64_t total_bytes)
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

static void count_waiters(struct view *view)
{
    for (unsigned i = 0; i < view->count; i++)
        for (unsigned j = 0; j < view->seen[i].part_count && waits_for_others(&view->seen[i]); j++)
            view->waiters[view->seen[i].parts[j].gpu]++;
}

/* Whether a session that is to come waits for what this one has. */
static bool is_waited_for(const struct view *view, const struct residency_session *seen)
{
    unsigned own = waits_for_others(seen);
    bool any = false;
    for (unsigned i = 0; i < seen->part_count; i++)
        any |= view->waiters[seen->parts[i].gpu] > own;
    return any && seen->can_leave && !seen->is_ahead;
}

/* Have as much come ahead as there is room for. */
static void bring_ahead(const struct view *view, unsigned number)
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
static void begin_turn(const struct view *view, unsigned number)
{
    if (view->crowds[number].waits_since_ns > view->seen[number].waits_since_ns)
        view->sessions[number]->move->came_usec = daemon_now_usec();
}

static void note_left(const struct view *view, struct session *session)
{
    for (unsigned i = 0; i < session->gpu_count; i++)
        if (session->gpus[i].gpu >= 0)
            session->move->seemed_left[i] = left_beside(session, i, view->seems_free);
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

/* Whether one more may be done of what costs something; `*left` may be done in this round. */
static bool may_do(struct view *view, unsigned *left)
{
    bool may = *left > 0;
    *left -= may;
    view->is_cut |= !may;
    return may;
}

static void obey(struct view *view, unsigned number)
{
    struct session *session = view->sessions[number];
    const struct residency_session *seen = &view->seen[number];
    enum residency_verdict verdict = seen->verdict;
    struct move *move = session->move;
    if ((verdict == RESIDENCY_LEAVES || verdict == RESIDENCY_COMES) && !may_do(view, &view->orders_left))
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
        tell_room(session, true);
        if (comes) {
            moves_turn(session, false, move->cause);
            moves_advance(session);
        }
    } else if (session->engine == LEDGER_ENGINE_SWAP && is_waited_for(view, seen)) {
        moves_prepare(session);
    }
}

/* Whether there is anything to decide: a session waits for room, its paged memory may be more than the card has, or
 * sessions take turns in any case. */
static bool has_something_to_decide(const struct daemon *daemon)
{
    for (const struct session *session = daemon->sessions; session; session = session->next)
        if (session->move &&
            (moves_wants_back(session) || moves_needs_since(session) != UINT64_MAX || is_paged(session) ||
             (daemon->moves->anti_thrash == ANTI_THRASH_ON && session_can_move(session))))
            return true;
    return false;
}

static void see_all(const struct daemon *daemon, struct view *view)
{
    unsigned part = 0;
    for (struct session *at = daemon->sessions; at; at = at->next) {
        if (!at->move)
            continue;
        view->sessions[view->count] = at;
        view->first_part[view->count] = &view->parts[part];
        view->seen[view->count] = see(at, &view->parts[part]);
        part += view->seen[view->count++].part_count;
    }
}

/* Add to what each session has held: the time that it worked while others waited for its room. */
static void count_held(const struct view *view, uint64_t before_usec, uint64_t now_usec)
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
static void count_rights(const struct view *view, int64_t free_bytes[RESIDENCY_PLACES])
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

/* What is coming to one of the session's GPUs now: when it has come, it can leave again. */
static uint64_t on_its_way(const struct session *session, unsigned policy_gpu)
{
    bool comes = session->move->state == MOVE_COMING && !moves_stands_still(session);
    uint64_t bytes = comes ? moves_away_bytes(session, policy_gpu) : moves_coming_bytes(session, policy_gpu);
    return moves_at_most(bytes, moves_most_bytes(session, policy_gpu));
}

/* Find what would be free in each place if all left that can leave, or can when they have come. */
static void find_most_room(struct view *view, const int64_t free_bytes[RESIDENCY_PLACES])
{
    memcpy(view->most_room, free_bytes, sizeof(view->most_room));
    for (unsigned i = 0; i < view->count; i++) {
        const struct session *session = view->sessions[i];
        for (unsigned j = 0; j < view->seen[i].part_count; j++)
            view->most_room[view->seen[i].parts[j].gpu] += (int64_t)view->seen[i].parts[j].here_bytes;
        for (unsigned j = 0; j < session->gpu_count; j++)
            if (session->gpus[j].gpu >= 0)
                view->most_room[session->gpus[j].gpu] += (int64_t)on_its_way(session, j);
    }
}

/* The same, but session `number` of the view keeps what it has there. */
static int64_t most_room(const struct view *view, unsigned number, const struct residency_part *part)
{
    const struct session *session = view->sessions[number];
    int64_t room = view->most_room[part->gpu] - (int64_t)part->here_bytes;
    for (unsigned j = 0; j < session->gpu_count; j++)
        if (session->gpus[j].gpu == (int)part->gpu)
            room -= (int64_t)on_its_way(session, j);
    return room;
}

/* Whether there would be room for what session `number` of the view waits for, if all others left; else sets what it lacks.
 * A session whose last try was not enough misses more than it needs: that is cut to the room there is. Memory that the
 * driver pages comes in any case, as far as there is room. What is left out as unusable parts of blocks may be usable after all,
 * so a session whose memory needs that too tries to come back. */
static bool has_hope(const struct view *view, unsigned number, struct moves_lack *lack)
{
    const struct residency_session *waiter = &view->seen[number];
    for (unsigned i = 0; i < waiter->part_count; i++) {
        struct residency_part *wanted = &view->first_part[number][i];
        int64_t room = most_room(view, number, wanted);
        if ((int64_t)wanted->missing_bytes <= room)
            continue;
        const struct session *session = view->sessions[number];
        bool tries = moves_wants_to_come(session) && wanted->gpu < RESIDENCY_GPUS;
        int64_t most = room + (tries ? (int64_t)slack_bytes(&session->daemon->gpus[wanted->gpu]) : 0);
        uint64_t room_bytes = room > 0 ? (uint64_t)room : 0;
        if (!is_paged(session) && (int64_t)wanted->least_bytes > most) {
            *lack = (struct moves_lack){wanted->gpu, wanted->least_bytes, room_bytes, true};
            return false;
        }
        wanted->missing_bytes = room_bytes;
    }
    return true;
}

/* What there would be on each GPU if programs outside of sessions ended, and all sessions too. */
static void find_far_room(const struct daemon *daemon, int64_t far_room[LEDGER_GPUS])
{
    for (unsigned gpu = 0; gpu < daemon->gpu_count; gpu++)
        far_room[gpu] =
            (int64_t)admission_unreserved(daemon->gpus[gpu].total_bytes, slack_bytes(&daemon->gpus[gpu]), 0);
}

/* The session stays. */
static void take_far_room(const struct session *session, int64_t far_room[LEDGER_GPUS])
{
    for (unsigned i = 0; i < session->gpu_count; i++)
        if (session->gpus[i].gpu >= 0)
            far_room[session->gpus[i].gpu] -= counted_by(session, i);
}

/* Whether there is so much room for what threads of the session wait for. */
static bool has_far_hope(const struct session *session, const int64_t far_room[LEDGER_GPUS])
{
    bool has = true;
    for (unsigned i = 0; i < session->gpu_count; i++) {
        uint64_t wanted = moves_needed_bytes(session, i, false);
        int64_t room = session->gpus[i].gpu >= 0 ? far_room[session->gpus[i].gpu] : INT64_MAX;
        has &= !wanted || (room >= 0 && wanted <= (uint64_t)room);
    }
    return has;
}

/* Whether all that the session's threads wait for is reserved for it. */
static bool is_promised(const struct session *session)
{
    for (unsigned i = 0; i < session->gpu_count; i++)
        if (moves_needed_bytes(session, i, false) && !session->gpus[i].reserved)
            return false;
    return true;
}

/* Whether there is room for what the session waits for without anybody leaving; else sets what it lacks. */
static bool has_room_now(const struct residency_session *seen, const int64_t free_bytes[RESIDENCY_PLACES],
                         struct moves_lack *lack)
{
    for (unsigned i = 0; i < seen->part_count; i++) {
        const struct residency_part *wanted = &seen->parts[i];
        int64_t room = free_bytes[wanted->gpu];
        if ((int64_t)wanted->missing_bytes <= room)
            continue;
        *lack = (struct moves_lack){wanted->gpu, wanted->least_bytes, room > 0 ? (uint64_t)room : 0, false};
        return false;
    }
    return true;
}

/* Whether the session asked to be refused rather than have others leave, and has no other right to the room. */
static bool is_refused_at_once(const struct view *view, unsigned number,
                               const int64_t free_bytes[RESIDENCY_PLACES], struct moves_lack *lack)
{
    const struct session *session = view->sessions[number];
    return session->when_full == WHEN_FULL_REFUSE && !is_promised(session) &&
           !has_room_now(&view->seen[number], free_bytes, lack);
}

/* Whether the session has waited in vain for long enough to be refused. Not at once: the daemon may not have heard yet
 * of what was allocated or is moving now. */
static bool has_lost_hope(struct move *move, bool is_in_vain, uint64_t waits_since_ns)
{
    uint64_t now = daemon_now_usec(), since = waits_since_ns / 1000;
    if (!is_in_vain)
        move->vain_usec = 0;
    else if (move->vain_usec < since) /* left from an earlier wait */
        move->vain_usec = now;
    return is_in_vain && now - move->vain_usec >= HOPE_USEC;
}

static void refuse(struct view *view, unsigned number)
{
    struct session *session = view->sessions[number];
    bool has_asked = moves_needs_since(session) != UINT64_MAX;
    if (!has_asked || !may_do(view, &view->refusals_left))
        return;
    moves_tell_refused(session, &view->lacks[number]);
    tell_room(session, false);
}

/* Session `number` of the view could not have room whoever left: its threads stop waiting, unless it asked to wait until others
 * end; and where it cannot come back it says so, and goes on waiting. */
static void end_hope(struct view *view, unsigned number, const int64_t far_room[LEDGER_GPUS])
{
    struct session *session = view->sessions[number];
    if (moves_wants_to_come(session) && (session->move->is_short || may_do(view, &view->refusals_left)))
        moves_tell_short(session, &view->lacks[number]);
    if (session->when_full != WHEN_FULL_WAIT || !has_far_hope(session, far_room))
        refuse(view, number);
}

static int compare_vain_waits(const void *a, const void *b)
{
    const struct vain_wait *first = a, *second = b;
    if (first->since_ns != second->since_ns)
        return first->since_ns < second->since_ns ? -1 : 1;
    return first->number < second->number ? -1 : 1;
}

/* What somebody waits for in vain is far, if it is there when all others have ended but for those that wait in vain too, and have
 * waited for longer. */
static void end_hopes(struct view *view, const struct daemon *daemon)
{
    int64_t far_room[LEDGER_GPUS];
    find_far_room(daemon, far_room);
    qsort(view->vain_waits, view->vain_count, sizeof(*view->vain_waits), compare_vain_waits);
    for (unsigned i = 0, stay = 0; i < view->vain_count; i++) {
        for (; stay < view->vain_count && view->vain_waits[stay].since_ns <= view->vain_waits[i].since_ns;
             stay++)
            take_far_room(view->sessions[view->vain_waits[stay].number], far_room);
        if (view->has_lost_hope[view->vain_waits[i].number])
            end_hope(view, view->vain_waits[i].number, far_room);
    }
}

/* Tell apart those that wait in vain: they wait no longer in this decision. */
static void find_the_hopeless(struct view *view, const int64_t free_bytes[RESIDENCY_PLACES])
{
    find_most_room(view, free_bytes);
    for (unsigned i = 0; i < view->count; i++) {
        struct residency_session *seen = &view->seen[i];
        struct moves_lack *lack = &view->lacks[i];
        bool is_refused = seen->waits && is_refused_at_once(view, i, free_bytes, lack);
        bool is_in_vain = is_refused || (seen->waits && !has_hope(view, i, lack));
        seen->waits &= !is_in_vain;
        view->has_lost_hope[i] = has_lost_hope(view->sessions[i]->move, is_in_vain, seen->waits_since_ns);
        if (is_refused)
            refuse(view, i);
        if (is_in_vain)
            view->vain_waits[view->vain_count++] = (struct vain_wait){seen->waits_since_ns, i};
        else
            moves_forget_short(view->sessions[i]);
    }
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
static bool decide_on(struct daemon *daemon, struct view *view)
{
    struct moves *moves = daemon->moves;
    const struct residency_turns turns = turns_of(moves);
    int64_t free_bytes[RESIDENCY_PLACES];
    count_free(daemon, view->seems_free);
    learn_from_needs(daemon, view->seems_free);
    memcpy(free_bytes, view->seems_free, sizeof(free_bytes));
    bound_free(daemon, free_bytes);
    see_all(daemon, view);
    count_rights(view, free_bytes);
    find_the_hopeless(view, free_bytes);
    end_hopes(view, daemon);
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

static bool view_begin(struct view *view, const struct daemon *daemon)
{
    size_t count = daemon->session_count;
    *view = (struct view){
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

static void view_end(struct view *view)
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
    struct view view;
    uint64_t began_usec = daemon_now_usec(), ended_usec;
    if (!has_something_to_decide(daemon))
        return;
    bool is_done = view_begin(&view, daemon) && decide_on(daemon, &view) && !view.is_cut;
    view_end(&view);
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
        soon_wake(moves->soon);
}
