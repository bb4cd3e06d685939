/* Sees how each session stands, and what is free of each GPU, for residency.h. */
#include <string.h>

#include "daemon/loop/daemon.h"
#include "daemon/residency/moves_state.h"
#include "daemon/residency/moves_view.h"
#include "daemon/session/process.h"
#include "daemon/session/promises.h"
#include "daemon/session/session.h"
#include "daemon/session/session_show.h"

/* How long a session must have had no work to count as idle: this part of the time that leaving and coming back takes.
 * An agent reports idleness only after IDLE_TOLD_USEC; beyond that the daemon waits IDLE_MOST_USEC at most. */
#define IDLE_PART 16
#define IDLE_TOLD_USEC UINT64_C(40000)
#define IDLE_MOST_USEC UINT64_C(160000)

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

int64_t moves_counted_by(const struct session *session, unsigned policy_gpu)
{
    uint64_t taken = moves_at_most(taken_by(session, policy_gpu), moves_there_at_most(session, policy_gpu));
    return taken < INT64_MAX / LEDGER_GPUS ? (int64_t)taken : INT64_MAX / LEDGER_GPUS;
}

uint64_t moves_slack_bytes(const struct gpu *card)
{
    uint64_t slack = card->total_bytes / MOVES_SLACK_PART;
    return slack < MOVES_SLACK_BYTES ? slack : MOVES_SLACK_BYTES;
}

bool moves_is_paged(const struct session *session)
{
    return session_can_move(session) && session->properties.engine != LEDGER_ENGINE_SWAP;
}

void moves_count_free(const struct daemon *daemon, int64_t free_bytes[RESIDENCY_PLACES])
{
    memset(free_bytes, 0, RESIDENCY_PLACES * sizeof(free_bytes[0]));
    for (unsigned gpu = 0; gpu < daemon->gpu_count; gpu++) {
        const struct gpu *card = &daemon->gpus[gpu];
        free_bytes[gpu] = (int64_t)admission_unreserved(card->total_bytes, moves_slack_bytes(card),
                                                        promises_outside_bytes(daemon, gpu));
    }
    for (const struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; i < session->gpu_count; i++) {
            int gpu = session->gpus[i].gpu;
            if (gpu >= 0)
                free_bytes[gpu] -= moves_counted_by(session, i);
        }
}

static void find_paged(const struct daemon *daemon, bool has_paged[LEDGER_GPUS])
{
    memset(has_paged, 0, LEDGER_GPUS * sizeof(*has_paged));
    for (const struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; i < session->gpu_count && moves_is_paged(session); i++)
            if (session->gpus[i].gpu >= 0)
                has_paged[session->gpus[i].gpu] = true;
}

void moves_bound_free(const struct daemon *daemon, int64_t free_bytes[RESIDENCY_PLACES])
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

int64_t moves_left_beside(const struct session *session, unsigned policy_gpu,
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
    left = moves_left_beside(session, policy_gpu, seems_free);
    moves_lesson_learn(&moves->lessons[gpu], left < told ? left : told, daemon_now_usec());
}

void moves_learn(const struct session *session, unsigned policy_gpu)
{
    int64_t seems_free[RESIDENCY_PLACES];
    moves_count_free(session->daemon, seems_free);
    learn(session, policy_gpu, seems_free);
}

void moves_learn_from_needs(const struct daemon *daemon, const int64_t seems_free[RESIDENCY_PLACES])
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

/* Whether some of it can be on the card while the rest is not. Managed memory comes as a whole. */
static bool can_come_in_parts(const struct session *session)
{
    return session->properties.engine == LEDGER_ENGINE_SWAP;
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
    return session_can_move(session) && !moves_is_stuck(session) &&
           (is_ahead ? !moves_has_part_order(session) || is_still
                     : state == MOVE_RESIDENT || (state == MOVE_COMING && is_still));
}

/* How much there will be of the card when it has left. */
static uint64_t here_bytes(const struct session *session, unsigned policy_gpu)
{
    if (moves_is_stuck(session))
        return 0;
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

struct residency_session moves_see(const struct session *session, struct residency_part *parts)
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
        .priority = session->properties.priority,
        .min_share = session->properties.compute.min,
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
