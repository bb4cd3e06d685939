/* Takes what processes say of their memory. */
#include <stdlib.h>

#include "base/check.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/residency/arena.h"
#include "daemon/residency/moves_state.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_show.h"

/* How long a process is asked again and again, when its work in flight does not end. */
#define BUSY_USEC UINT64_C(30000000)
#define RETRY_USEC UINT64_C(500000)
/* Arena that a process may have beyond the size of its memory: for memory that comes and goes, and to fill its chunks. */
#define ARENA_MORE_PART 8
#define ARENA_MORE_BYTES (2 * ARENA_CHUNK_LARGE)

/* A new session starts with the most that any other has held: nobody owes it the time before it came. */
static uint64_t most_held_usec(const struct daemon *daemon)
{
    uint64_t most = 0;
    for (const struct session *at = daemon->sessions; at; at = at->next)
        if (at->move && at->move->held_usec > most)
            most = at->move->held_usec;
    return most;
}

struct move *moves_find(struct session *session, const struct wire_moved *moved)
{
    if (session->move || !(session->move = calloc(1, sizeof(*session->move))))
        return session->move;
    /* If it left under an earlier daemon, that was not because a user asked: it comes back when it has work. */
    bool was_away = moved && (moved->flags & WIRE_MOVED_AWAY);
    *session->move = (struct move){
        .is_leaving = session->is_suspended || was_away,
        .cause = session->is_suspended ? MOVE_BY_USER : MOVE_BY_IDLE,
        .began_usec = daemon_now_usec(),
        .came_usec = daemon_now_usec(),
        .new_usec = daemon_now_usec(),
        .held_usec = most_held_usec(session->daemon),
    };
    return session->move;
}

/* The arena was too small. Either the process has been given more since it said so, or its memory does not fit well:
 * then give it more. */
static void grow(struct process_move *move)
{
    if (!process_move_lacks_bytes(move) && !move->has_new_room)
        move->extra_bytes += ARENA_CHUNK_SMALL;
    move->again_usec = 0;
}

/* The card had less room than expected: what has come leaves again, and next time more room is made. */
static void miss(struct session *session)
{
    unsigned misses = session->move->misses + 1;
    if (session->gpu_count == 1) /* else it is not known which card it was */
        moves_learn(session, 0);
    log_info("session %s: the card has less room than expected", session->id);
    moves_turn(session, true, session->move->cause);
    session->move->misses = misses;
    moves_want_back(session);
}

/* An order was answered: go on as the answer says. */
static void take_answer(struct process *process, const struct wire_moved *moved)
{
    struct session *session = process->session;
    struct process_move *move = process->move;
    GS_CHECK(process_move_is_valid(process) && move->order);
    bool was_eviction = move->is_eviction, was_part = move->is_part;
    uint64_t now = daemon_now_usec();
    move->order = 0;
    move->is_part = false;
    if (was_part)
        move->gpus[move->part_gpu].vain_bytes =
            move->now.resident_bytes > move->part_from ? 0 : move->part_bytes;
    if (moved->result == WIRE_MOVE_DONE) {
        move->extra_bytes = 0;
        if (was_eviction && !was_part && process_move_is_partly_away(move) && !process_move_is_away(move))
            move->again_usec = now + RETRY_USEC; /* some of it could not leave */
        return;
    }
    move->again_usec = now + RETRY_USEC;
    if (was_part) /* the memory comes later, with the rest */
        return;
    if (was_eviction !=
        session->move->is_leaving) { /* it has turned round since: no matter what became of this */
        move->again_usec = 0;
        return;
    }
    if (!was_eviction && moved->result == WIRE_MOVE_NO_ROOM)
        miss(session);
    else if (!was_eviction)
        moves_fail(session, "the driver refused to bring memory of process %d back", (int)process->pid);
    else if (moved->result == WIRE_MOVE_NO_ROOM)
        grow(move);
    else if (moved->result == WIRE_MOVE_FAILED)
        moves_fail(session, "the driver refused to move memory of process %d", (int)process->pid);
    else if (session->move->is_taken_idle)
        moves_turn(session, false, session->move->cause);
    else if (now - session->move->began_usec > BUSY_USEC)
        moves_fail(session, "work of process %d on the GPU did not end", (int)process->pid);
}

static void lose_agent(struct process *process)
{
    if (!process->move)
        return;
    process->move->order = 0;
    process->move->is_part = false;
    process->move->need.number = 0;
    moves_set_given(process, process->move->now.arena_bytes);
}

static void note_pause(struct session *session)
{
    if (moves_idle_since(session) != UINT64_MAX && moves_needs_since(session) == UINT64_MAX)
        session->move->paused_usec = daemon_now_usec();
}

static bool does_another_wait(const struct session *session)
{
    for (const struct session *at = session->daemon->sessions; at; at = at->next)
        if (at != session && at->move && (moves_wants_to_come(at) || moves_needs_since(at) != UINT64_MAX))
            return true;
    return false;
}

/* The session works again after a pause in which nobody wanted its room: its turn begins now. */
static void begin_turn(struct session *session, bool has_paused)
{
    if (has_paused && moves_idle_since(session) == UINT64_MAX && session->move->state == MOVE_RESIDENT &&
        !does_another_wait(session))
        session->move->came_usec = daemon_now_usec();
}

/* Note on which GPU the memory is that came while the rest is away: the one that the order named. On which GPU a
 * process has freed some since is not known. */
static void note_ahead(struct process_move *move, uint64_t before_bytes)
{
    uint64_t resident = move->now.resident_bytes, sum = 0;
    if (move->is_part && resident > before_bytes)
        move->gpus[move->part_gpu].ahead_bytes += resident - before_bytes;
    if (!process_move_is_partly_away(move))
        resident = 0;
    for (unsigned i = 0; i < LEDGER_GPUS; i++) {
        uint64_t *ahead = &move->gpus[i].ahead_bytes, left = resident - sum;
        *ahead = *ahead < left ? *ahead : left;
        sum += *ahead;
    }
}

/* A process that attached under an earlier daemon has chunks that this one did not send: it is believed, within bounds. It may
 * have had to attach once more, because its ledger was lost. */
static void believe_first(struct process *process, const struct wire_moved *moved)
{
    uint64_t most = moves_most_of_process(process->session);
    if (!process->attached_usec || process->start_ticks < process->session->lost_ledger_ticks)
        process->move->sent_bytes = process->move->earlier_bytes =
            moves_at_most(moved->arena_bytes, most + most / ARENA_MORE_PART + ARENA_MORE_BYTES);
}

/* What it has away is in the arena that it was sent; or it has charged it, as what it made while it was away. */
static uint64_t away_at_most(const struct process *process)
{
    uint64_t charged = moves_charged_to(process), sent = process->move->sent_bytes;
    return process->session->properties.engine != LEDGER_ENGINE_SWAP || charged > sent ? charged : sent;
}

/* What the process can have of what it says. */
static struct wire_moved bounded(const struct process *process, const struct wire_moved *moved)
{
    uint64_t most = moves_most_of_process(process->session);
    struct wire_moved now = *moved;
    now.resident_bytes = moves_at_most(now.resident_bytes, most);
    now.evicted_bytes = moves_at_most(now.evicted_bytes, moves_at_most(most, away_at_most(process)));
    for (unsigned why = 0; why < WIRE_STAYS_COUNT; why++)
        now.stays_bytes[why] = moves_at_most(now.stays_bytes[why], most);
    now.arena_bytes = moves_at_most(now.arena_bytes, process->move->sent_bytes);
    return now;
}

/* Its arena was `before_bytes`. */
static void take_arena(struct process *process, uint64_t before_bytes)
{
    struct process_move *move = process->move;
    uint64_t arena = move->now.arena_bytes, gone = before_bytes > arena ? before_bytes - arena : 0,
             given = move->given_bytes - gone; /* chunks on their way to it still arrive */
    move->sent_bytes -= gone;
    move->earlier_bytes = moves_at_most(move->earlier_bytes, arena); /* the latest goes back first */
    moves_set_given(process, arena > given ? arena : given);
    GS_CHECK(process_move_is_valid(process));
    moves_take_chunks(process, gone);
}

static void take_moved(struct process *process, const struct wire_moved *moved)
{
    struct session *session = process->session;
    struct process_move *move = process->move;
    bool is_first = !move->has_said;
    uint64_t before_bytes = move->now.resident_bytes;
    bool has_paused = moves_idle_since(session) != UINT64_MAX;
    if (!is_first)
        note_pause(session); /* it may end with this message */
    uint64_t arena_before = move->now.arena_bytes;
    if (is_first)
        believe_first(process, moved);
    move->has_said = true;
    move->now = bounded(process, moved);
    note_ahead(move, before_bytes);
    if (!(moved->flags & WIRE_MOVED_IDLE))
        move->idle_usec = 0;
    else if (!move->idle_usec)
        move->idle_usec = daemon_now_usec();
    note_pause(session);
    begin_turn(session, has_paused);
    if (process_move_is_partly_away(move))
        move->need.number = 0; /* memory that it makes while away needs no room */
    session->move->has_moved |= process_move_is_partly_away(move);
    move->heard_usec = daemon_now_usec();
    take_arena(process, arena_before);
    moves_note_progress(session);
    if (moved->order && moved->order == move->order && moved->result != WIRE_MOVE_GOES_ON)
        take_answer(process, moved);
    if ((moved->flags & WIRE_MOVED_WAITS) && session->move->is_leaving &&
        session->move->cause != MOVE_BY_USER)
        moves_want_back(session);
    moves_advance(session);
}

static void take_need(struct process *process, const struct wire_need *need)
{
    if (need->gpu >= process->session->gpu_count || need->number == 0)
        return;
    struct process_move *move = process->move;
    bool is_new = (need->attempt & ~WIRE_NEED_CHARGED) == 0;
    if (!move->need.number)
        move->need_usec = daemon_now_usec();
    if (is_new && move->rooms_told)
        process->session->move->is_wasteful = moves_use_mark(process) == move->use_when_told;
    if (is_new)
        move->rooms_told = 0;
    move->need = *need;
    /* Who has nothing on the card was refused nothing there; its first context finds out by asking for more. */
    move->need_teaches = move->rooms_told > 0 && session_used(process->session, need->gpu) > 0;
}

static bool take_message(struct process *process, const struct wire_message *message)
{
    bool is_moved = message->header.type == WIRE_MOVED;
    if (is_moved && !session_can_move(process->session))
        return true; /* none of its memory moves */
    if (!moves_find(process->session, is_moved ? &message->moved : NULL) ||
        (!process->move && !(process->move = calloc(1, sizeof(*process->move)))))
        return true;
    if (is_moved)
        take_moved(process, &message->moved);
    else
        take_need(process, &message->need);
    moves_decide_soon(process->session->daemon->moves);
    return true;
}

const struct agent_listener moves_listener = {.take = take_message, .gone = lose_agent};
