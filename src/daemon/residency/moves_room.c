/* Who comes, and who leaves for it: residency.h decides, and is told here how everybody stands. */
#include <stdlib.h>
#include <string.h>

#include "daemon/loop/daemon.h"
#include "daemon/residency/moves_state.h"
#include "daemon/residency/residency.h"
#include "daemon/schedule/agents.h"
#include "daemon/session/process.h"
#include "daemon/session/promises.h"
#include "daemon/session/session.h"
#include "daemon/session/session_show.h"

#define HOPE_NS UINT64_C(1500000000)
#define TURN_LEAST_NS UINT64_C(1000000000)
#define TURN_MOST_NS UINT64_C(60000000000)

/* What a session has on the card, or will have when it has come. */
static uint64_t taken_by(const struct session *session, unsigned policy_gpu)
{
    uint64_t used = session_used(session, policy_gpu), away, here;
    if (!session->move || session->move->state == MOVE_COMING)
        return used;
    away = moves_part(session, policy_gpu, MOVES_SUM(session, evicted_bytes));
    here = moves_part(session, policy_gpu, MOVES_SUM(session, resident_bytes));
    used = used > away ? used - away : 0;
    return used > here ? used : here;
}

static void count_free(const struct daemon *daemon, uint64_t free_bytes[RESIDENCY_GPUS])
{
    memset(free_bytes, 0, RESIDENCY_GPUS * sizeof(free_bytes[0]));
    for (unsigned gpu = 0; gpu < daemon->gpu_count; gpu++)
        free_bytes[gpu] = admission_unreserved(daemon->gpus[gpu].total_bytes, MOVES_SLACK_BYTES,
                                               promises_outside_bytes(daemon, gpu));
    for (const struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; i < session->gpu_count; i++) {
            int gpu = session->gpus[i].gpu;
            uint64_t taken = gpu >= 0 ? taken_by(session, i) : 0;
            if (gpu >= 0)
                free_bytes[gpu] -= taken < free_bytes[gpu] ? taken : free_bytes[gpu];
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
        agents_send(process, &message, -1);
    }
}

/* What would leave: as the processes last said, or by the ledger, which knows earlier what they allocated since. */
static uint64_t leaves_with(const struct session *session, unsigned policy_gpu)
{
    int gpu = session->gpus[policy_gpu].gpu;
    uint64_t told = moves_part(session, policy_gpu, MOVES_SUM(session, resident_bytes));
    uint64_t stays = moves_part(session, policy_gpu,
                                MOVES_SUM(session, unmovable_bytes) + MOVES_SUM(session, evicted_bytes)) +
                     session->process_count * session->daemon->gpus[gpu].context_bytes;
    uint64_t charged = session_charged(session, policy_gpu);
    charged = charged > stays ? charged - stays : 0;
    return session->engine != LEDGER_ENGINE_SWAP ? 0 : charged > told ? charged : told;
}

/* One session as residency.h sees it. `parts` has room for its GPUs. */
static struct residency_session see(const struct session *session, struct residency_part *parts)
{
    const struct move *move = session->move;
    uint64_t idle = moves_idle_since(session), since = moves_needs_since(session), moving = 0;
    bool comes = moves_wants_to_come(session);
    struct residency_session seen = {
        .parts = parts,
        .can_leave = session->engine == LEDGER_ENGINE_SWAP && move->state == MOVE_RESIDENT,
        .is_leaving = move->state == MOVE_LEAVING,
        .waits = comes || since != UINT64_MAX,
        .priority = session->priority,
        .waits_since_ns = (comes && move->wants_usec < since ? move->wants_usec : since) * 1000,
        .came_ns = move->came_usec * 1000,
        .idle_since_ns = idle == UINT64_MAX ? 0 : idle * 1000,
    };
    for (unsigned i = 0; i < session->gpu_count; i++) {
        if (session->gpus[i].gpu < 0)
            continue;
        struct residency_part *part = &parts[seen.part_count++];
        *part = (struct residency_part){.gpu = (unsigned)session->gpus[i].gpu,
                                        .here_bytes = leaves_with(session, i),
                                        .missing_bytes = moves_needed_bytes(session, i)};
        if (comes)
            part->missing_bytes += moves_part(session, i, MOVES_SUM(session, evicted_bytes)) +
                                   move->misses * 2 * MOVES_SLACK_BYTES;
        moving += part->here_bytes + part->missing_bytes;
    }
    seen.move_ns = (uint64_t)(2e9 * (double)moving / (double)session->daemon->moves->bytes_per_second);
    return seen;
}

/* Whether there would be room for what a session waits for, if all left that can. What was allocated a moment ago may not be
 * told yet, so nobody is without hope at once. */
static bool has_hope(const struct residency_session *waiter, const struct residency_session *sessions,
                     unsigned count, const uint64_t free_bytes[RESIDENCY_GPUS])
{
    for (unsigned i = 0; i < waiter->part_count; i++) {
        const struct residency_part *wanted = &waiter->parts[i];
        uint64_t room = free_bytes[wanted->gpu];
        for (unsigned j = 0; j < count; j++)
            for (unsigned k = 0; k < sessions[j].part_count && &sessions[j] != waiter; k++)
                if (sessions[j].parts[k].gpu == wanted->gpu)
                    room += sessions[j].parts[k].here_bytes;
        if (wanted->missing_bytes > room)
            return false;
    }
    return true;
}

static void obey(struct session *session, enum residency_verdict verdict)
{
    struct move *move = session->move;
    if (verdict == RESIDENCY_LEAVES) {
        moves_turn(session, true, MOVE_BY_NEED);
        moves_advance(session);
    } else if (verdict == RESIDENCY_COMES) {
        bool comes = moves_wants_to_come(session);
        tell_room(session, true);
        if (comes) {
            moves_turn(session, false, move->cause);
            moves_advance(session);
        }
    }
}

static bool somebody_waits(const struct daemon *daemon)
{
    for (const struct session *session = daemon->sessions; session; session = session->next)
        if (session->move && (moves_wants_to_come(session) || moves_needs_since(session) != UINT64_MAX))
            return true;
    return false;
}

/* Everybody, as residency.h sees them. */
struct view {
    unsigned count;
    struct residency_session *seen;
    struct session **sessions;
    struct residency_part *parts;
};

static void see_all(const struct daemon *daemon, struct view *view)
{
    unsigned part = 0;
    for (struct session *at = daemon->sessions; at; at = at->next) {
        if (!at->move)
            continue;
        view->sessions[view->count] = at;
        view->seen[view->count] = see(at, &view->parts[part]);
        part += view->seen[view->count++].part_count;
    }
}

static void decide_on(struct daemon *daemon, struct view *view)
{
    const struct moves *moves = daemon->moves;
    const struct residency_turns turns = {moves->turn_ns ? moves->turn_ns : TURN_LEAST_NS,
                                          moves->turn_ns ? moves->turn_ns : TURN_MOST_NS};
    uint64_t free_bytes[RESIDENCY_GPUS];
    count_free(daemon, free_bytes);
    see_all(daemon, view);
    for (unsigned i = 0; i < view->count; i++) {
        struct residency_session *seen = &view->seen[i];
        if (!seen->waits || has_hope(seen, view->seen, view->count, free_bytes))
            continue;
        seen->waits = false;
        if (daemon_now_usec() * 1000 - seen->waits_since_ns >= HOPE_NS)
            tell_room(view->sessions[i], false);
    }
    residency_decide(view->seen, view->count, free_bytes, &turns, daemon_now_usec() * 1000);
    for (unsigned i = 0; i < view->count; i++)
        obey(view->sessions[i], view->seen[i].verdict);
}

void moves_decide(struct daemon *daemon)
{
    if (!somebody_waits(daemon))
        return;
    struct view view = {
        .seen = calloc(daemon->session_count, sizeof(*view.seen)),
        .sessions = calloc(daemon->session_count, sizeof(struct session *)),
        .parts = calloc((size_t)daemon->session_count * LEDGER_GPUS, sizeof(*view.parts)),
    };
    if (view.seen && view.sessions && view.parts)
        decide_on(daemon, &view);
    free(view.parts);
    free(view.sessions);
    free(view.seen);
    moves_set_timer(daemon->moves);
}
