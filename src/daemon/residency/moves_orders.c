/* Tells processes what to do, and works out the state that their session comes to. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/units.h"
#include "daemon/agents/agents.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/process/driver_line.h"
#include "daemon/residency/arena.h"
#include "daemon/residency/moves_state.h"
#include "daemon/residency/stays.h"
#include "daemon/schedule/schedule.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/users/descriptor_bounds.h"
#include "daemon/users/user_time.h"

/* How long an agent waits for work in flight to end. */
#define PATIENCE_NS UINT64_C(2000000000)
#define IDLE_PATIENCE_NS UINT64_C(20000000)
/* The smallest piece that comes ahead: this part of the process's memory, and at most this many bytes. */
#define AHEAD_LEAST_PART 32
#define AHEAD_LEAST_BYTES (UINT64_C(64) << 20)
/* When a chunk could not be made ahead of need, how long until it is tried again. */
#define PREPARE_AGAIN_USEC UINT64_C(10000000)
/* How long until host memory is asked for again that others were told to give back. */
#define GIVEN_BACK_USEC UINT64_C(20000)
/* A session that could not leave for others counts as staying for so long, and for twice as long each time: up to a minute. */
#define STUCK_USEC UINT64_C(1000000)
#define STUCK_DOUBLINGS 6u

/* A chunk is being made for this process, which may end meanwhile. */
struct chunk_wish {
    struct daemon *daemon;
    char session_id[SESSION_ID_TEXT];
    pid_t pid;
    uint64_t start_ticks, generation;
    uint32_t slot;
    bool is_ahead; /* nothing waits for it */
};

static void give_order(struct process *process, struct wire_message *message, uint64_t *number)
{
    struct moves *moves = process->session->daemon->moves;
    GS_CHECK(!process->move->order && !process->move->is_part);
    *number = ++moves->last_order;
    if (!agents_send(process, message, -1))
        return;
    process->move->order = *number;
    process->move->is_eviction = message->header.type == WIRE_EVICT;
    process->move->order_usec = process->move->heard_usec = daemon_now_usec();
    process->move->silence_told = false;
}

static void order_out(struct process *process)
{
    const struct session *session = process->session;
    bool is_idle = session->move->is_taken_idle;
    struct wire_message message = {.header.type = WIRE_EVICT,
                                   .evict.patience_ns = is_idle ? IDLE_PATIENCE_NS : PATIENCE_NS};
    if (is_idle)
        message.evict.idle_ns = session->move->cause == MOVE_BY_IDLE
                                    ? session->properties.idle_suspend_seconds * UINT64_C(1000000000)
                                    : 1;
    give_order(process, &message, &message.evict.order);
}

static void order_in(struct process *process)
{
    struct wire_message message = {.header.type = WIRE_RESTORE};
    give_order(process, &message, &message.restore.order);
}

/* How much of the process may have left one of its GPUs, at most. */
static uint64_t away_from(const struct process *process, unsigned policy_gpu)
{
    const struct process_move *move = process->move;
    uint64_t away = move->now.evicted_bytes, ahead = move->gpus[policy_gpu].ahead_bytes;
    if (process->session->gpu_count == 1)
        return away;
    uint64_t charged = ledger_slot_bytes(process->session->ledger.usage, process->slot, policy_gpu);
    charged = charged > ahead ? charged - ahead : 0;
    return away < charged ? away : charged;
}

/* The piece of the process that may come ahead to one of its GPUs; 0: none. A piece that is not worth an order waits
 * until there is more room, unless it is the last. */
static uint64_t next_part(const struct process *process, unsigned policy_gpu)
{
    const struct process_move *move = process->move;
    uint64_t away = away_from(process, policy_gpu), room = process->session->move->ahead_bytes[policy_gpu],
             bytes = away < room ? away : room;
    uint64_t least = (move->now.evicted_bytes + move->now.resident_bytes) / AHEAD_LEAST_PART;
    least = least < AHEAD_LEAST_BYTES ? least : AHEAD_LEAST_BYTES;
    return bytes <= move->gpus[policy_gpu].vain_bytes || (bytes < least && bytes < away) ? 0 : bytes;
}

static void order_part(struct process *process)
{
    struct process_move *move = process->move;
    struct session *session = process->session;
    uint64_t bytes = 0;
    unsigned gpu = 0;
    for (unsigned i = 0; i < session->gpu_count && !bytes; i++)
        bytes = next_part(process, gpu = i);
    if (!bytes)
        return;
    struct wire_message message = {.header.type = WIRE_RESTORE_PART,
                                   .restore_part = {.most_bytes = bytes, .gpu = gpu}};
    give_order(process, &message, &message.restore_part.order);
    if (!move->order)
        return;
    move->is_part = true;
    move->part_gpu = gpu;
    move->part_bytes = bytes;
    move->part_from = move->now.resident_bytes;
    moves_watch_progress(session);
    GS_CHECK(process_move_is_valid(process) && bytes <= session->move->ahead_bytes[gpu]);
    session->move->ahead_bytes[gpu] -= bytes;
}

/* There is no host memory for the process. If it should leave, others may have some that they do not use. */
static void lack(struct process *process, uint64_t bytes, const char *why)
{
    struct session *session = process->session;
    if (!session->move->is_leaving)
        process->move->prepare_usec = daemon_now_usec() + PREPARE_AGAIN_USEC;
    else if (moves_take_back(session, bytes))
        process->move->prepare_usec = daemon_now_usec() + GIVEN_BACK_USEC;
    else
        moves_fail(session, "%s", why);
}

static void send_chunk(struct process *process, int fd, uint64_t bytes)
{
    struct wire_message message = {.header.type = WIRE_ARENA, .arena.bytes = bytes};
    struct held_chunk *chunk = moves_keep_chunk(process, fd, bytes);
    if (!chunk) {
        lack(process, bytes, "the daemon has no descriptor or memory left to make host memory");
        return;
    }
    if (!agents_send(process, &message, fd)) {
        moves_drop_chunk(chunk);
        return;
    }
    moves_note_chunk(process, bytes);
    process->move->has_new_room = true;
}

static void on_chunk(void *argument, int fd, uint64_t bytes, const char *why)
{
    struct chunk_wish wish = *(struct chunk_wish *)argument;
    free(argument);
    wish.daemon->moves->is_making_ahead &= !wish.is_ahead;
    struct session *session = session_find_id(wish.daemon, wish.session_id);
    struct process *process =
        session ? process_find(session, wish.pid, wish.start_ticks, wish.slot, wish.generation) : NULL;
    if (!process || !process->move)
        return;
    process->move->chunk_comes = false;
    if (fd < 0 && wish.is_ahead)
        process->move->prepare_usec = session->move->is_leaving ? 0 : daemon_now_usec() + PREPARE_AGAIN_USEC;
    else if (fd < 0)
        lack(process, bytes, why);
    else
        send_chunk(process, fd, bytes);
    moves_advance(session);
}

/* The PCI address of the session's GPU, to make its host memory near it; "" if it has several, which may be near
 * different processors. */
static const char *pci_address_of(const struct session *session)
{
    const struct daemon *daemon = session->daemon;
    bool is_one = session->gpu_count == 1 && session->gpus[0].gpu >= 0;
    return is_one && !daemon->options.simulated ? daemon->gpus[session->gpus[0].gpu].pci_address : "";
}

/* Have a chunk made for the process. False, with the reason: it may have no more now. */
static bool make_chunk(struct process *process, uint64_t bytes, bool is_ahead, struct error *error)
{
    struct session *session = process->session;
    if (moves_check_bounds(session, bytes, 0, 0, error) < 0 ||
        user_check(session->daemon, session->owner, USER_CHUNK, error) < 0)
        return false;
    struct chunk_wish *wish = calloc(1, sizeof(*wish));
    if (!wish) {
        error_set_errno(error, ENOMEM, "host memory for session %s", session->id);
        return false;
    }
    *wish = (struct chunk_wish){.daemon = session->daemon,
                                .pid = process->pid,
                                .start_ticks = process->start_ticks,
                                .generation = process->generation,
                                .slot = process->slot,
                                .is_ahead = is_ahead};
    strcpy(wish->session_id, session->id);
    process->move->chunk_comes = true;
    arena_make(session->daemon,
               &(struct arena_wish){.bytes = bytes,
                                    .all_bytes = is_ahead ? bytes : moves_chunk_bytes(session),
                                    .is_ahead = is_ahead,
                                    .payer = user_time_key(session->owner, session->number),
                                    .pci_address = pci_address_of(session)},
               on_chunk, wish);
    return true;
}

static void ask_for_chunk(struct process *process, uint64_t bytes)
{
    struct error error;
    uint64_t least = bytes < ARENA_CHUNK_SMALL ? bytes : ARENA_CHUNK_SMALL;
    if (!make_chunk(process, bytes, false, &error) && !make_chunk(process, least, false, &error))
        lack(process, bytes, error.message);
}

bool moves_make_chunk(struct process *process, uint64_t bytes)
{
    struct error error;
    bool is_made = make_chunk(process, bytes, true, &error);
    if (!is_made)
        process->move->prepare_usec = daemon_now_usec() + PREPARE_AGAIN_USEC;
    return is_made;
}

static bool may_be_told(const struct process *process)
{
    const struct process_move *move = process->move;
    return process->agent && move->has_said && !move->order && !move->chunk_comes;
}

void moves_prepare(struct session *session)
{
    for (struct process *process = session->processes; process; process = process->next)
        if (process->move && may_be_told(process) && process_move_lacks_bytes(process->move) &&
            daemon_now_usec() >= process->move->prepare_usec)
            ask_for_chunk(process, ARENA_CHUNK_SMALL);
}

/* Whether the process can begin to leave before it has all host memory that it needs: it has some that it has not used
 * since it was last told to, and may have the rest. */
static bool can_leave_in_steps(const struct process *process)
{
    const struct session *session = process->session;
    struct error error;
    return process->move->has_new_room &&
           moves_check_bounds(session, moves_chunk_bytes(session), 0, 0, &error) == 0;
}

/* The process should leave: it is given what host memory it lacks, and told to go as soon as there is some. While it
 * leaves with that, the next chunk is made. */
static void step_out(struct process *process)
{
    struct process_move *move = process->move;
    uint64_t lacking =
        process->session->properties.engine == LEDGER_ENGINE_SWAP ? process_move_lacks_bytes(move) : 0;
    if (lacking && !move->chunk_comes && daemon_now_usec() >= move->prepare_usec)
        ask_for_chunk(process, arena_chunk_bytes(lacking));
    if (process->session->move->is_leaving && !move->order && daemon_now_usec() >= move->again_usec &&
        ((!lacking && !move->chunk_comes) || can_leave_in_steps(process))) {
        move->has_new_room = false;
        order_out(process);
    }
}

/* Tell one process what to do, unless it is doing that or has done it. */
static void step(struct process *process)
{
    struct process_move *move = process->move;
    bool is_leaving = process->session->move->is_leaving;
    if (!process->agent || !move->has_said || daemon_now_usec() < move->again_usec)
        return;
    bool comes_ahead = is_leaving && process->session->move->is_ahead && process_move_is_partly_away(move);
    if (is_leaving && !comes_ahead && !process_move_is_away(move))
        step_out(process);
    else if (!may_be_told(process))
        return;
    else if (comes_ahead)
        order_part(process);
    else if (!is_leaving && process_move_is_partly_away(move))
        order_in(process);
}

/* Whether the process's gate is closed whatever the leases say, or will be as soon as it hears of an order. */
static bool is_kept_from_gpu(const struct process_move *move)
{
    return move->order || process_move_is_partly_away(move);
}

/* Learn the speed of moves from one that has ended. */
static void note_speed(struct moves *moves, uint64_t bytes, double seconds)
{
    if (bytes < MOVES_SLACK_BYTES || seconds <= 0)
        return;
    double speed = (double)bytes / seconds;
    moves->bytes_per_second = (uint64_t)(0.75 * (double)moves->bytes_per_second + 0.25 * speed);
}

static void tell_left(struct session *session, double seconds)
{
    struct moves_memory memory;
    char bytes[UNITS_BYTES_TEXT], stays[STAYS_TEXT];
    moves_look(session, &memory);
    stays_text(memory.stays_bytes, stays, sizeof(stays));
    units_format_bytes(memory.evicted_bytes, bytes);
    log_info("session %s: %s left the card (%.3f s)%s%s", session->id, bytes, seconds, *stays ? "; " : "",
             stays);
    change_publish(
        session->daemon,
        &(struct change){CHANGE_SESSION_SUSPENDED, .session = session, .bytes = memory.evicted_bytes,
                         .stays_bytes = stays_against_wish(memory.stays_bytes), .seconds = seconds},
        "%s left the card%s%s", bytes, *stays ? "; " : "", stays);
}

static void tell_back(struct session *session, double seconds)
{
    char bytes[UNITS_BYTES_TEXT];
    units_format_bytes(MOVES_SUM(session, resident_bytes), bytes);
    log_info("session %s: %s are back on the card (%.3f s)", session->id, bytes, seconds);
    change_publish(session->daemon,
                   &(struct change){CHANGE_SESSION_RESUMED, .session = session, .seconds = seconds},
                   "%s are back on the card", bytes);
}

/* If the session has come to another state, note and report it. */
static void tell_state(struct session *session)
{
    struct move *move = session->move;
    enum move_state state = moves_state_now(session);
    if (state == move->state)
        return;
    double seconds = (double)(daemon_now_usec() - move->began_usec) / 1e6;
    move->state = state;
    if (state != MOVE_AWAY && state != MOVE_RESIDENT)
        return;
    if (state == MOVE_RESIDENT) {
        move->put_offs = 0;
        move->came_usec = daemon_now_usec();
        move->wants_usec = 0;
        move->misses = 0;
    }
    if (state == MOVE_AWAY)
        move->stuck_times = 0;
    bool has_left = state == MOVE_AWAY, is_news = has_left ? !move->is_told_away : move->has_moved;
    move->is_told_away = has_left;
    move->has_moved = has_left;
    if (!is_news)
        return;
    if (!has_left ||
        session->properties.engine == LEDGER_ENGINE_SWAP) /* memory that the driver pages leaves later */
        note_speed(session->daemon->moves, move->total_bytes, seconds);
    if (has_left)
        tell_left(session, seconds);
    else
        tell_back(session, seconds);
}

void moves_advance(struct session *session)
{
    if (!session->move)
        return;
    for (struct process *process = session->processes; process; process = process->next)
        if (process->move) {
            step(process);
            schedule_set_away(process, is_kept_from_gpu(process->move));
            driver_line_hold(process, !process->agent || is_kept_from_gpu(process->move));
        }
    tell_state(session);
    moves_set_timer(session->daemon->moves);
}

static void forget_refusals(struct process_move *move)
{
    move->again_usec = move->prepare_usec = 0;
    move->has_new_room = move->now.arena_bytes > 0;
    for (unsigned i = 0; i < LEDGER_GPUS; i++)
        move->gpus[i].vain_bytes = 0;
}

void moves_turn(struct session *session, bool is_leaving, enum move_cause cause)
{
    struct move *move = session->move;
    move->is_leaving = is_leaving;
    move->cause = cause;
    move->is_taken_idle = is_leaving && cause == MOVE_BY_IDLE;
    move->is_ahead = false;
    move->wants_usec = 0;
    move->began_usec = daemon_now_usec();
    move->total_bytes = is_leaving ? MOVES_SUM(session, resident_bytes) : MOVES_SUM(session, evicted_bytes);
    move->state = is_leaving ? MOVE_LEAVING : MOVE_COMING;
    GS_CHECK(move_is_valid(session));
    moves_watch_progress(session);
    for (struct process *process = session->processes; process; process = process->next)
        if (process->move)
            forget_refusals(process->move);
}

void moves_set_suspended(struct session *session, bool is_suspended)
{
    if (session->is_suspended == is_suspended)
        return;
    session->is_suspended = is_suspended;
    change_publish(session->daemon, &(struct change){CHANGE_SESSION_MOVES, .session = session}, "%s",
                   is_suspended ? "is to leave the card" : "is to be on the card");
}

bool moves_is_stuck(const struct session *session)
{
    return session->move && daemon_now_usec() < session->move->stuck_until_usec;
}

/* Whoever waits for its room is told so, instead of waiting while it fails again and again. */
static void get_stuck(struct move *move)
{
    unsigned doublings = move->stuck_times < STUCK_DOUBLINGS ? move->stuck_times++ : STUCK_DOUBLINGS;
    move->stuck_until_usec = daemon_now_usec() + (STUCK_USEC << doublings);
}

void moves_fail(struct session *session, const char *format, ...)
{
    struct move *move = session->move;
    GS_CHECK(move_is_valid(session));
    bool was_leaving = move->is_leaving;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(move->failure, sizeof(move->failure), format, arguments);
    va_end(arguments);
    log_warning("session %s: %s failed: %s", session->id, was_leaving ? "an eviction" : "a restore",
                move->failure);
    change_publish(session->daemon, &(struct change){CHANGE_MOVE_FAILED, .session = session},
                   "it could not %s: %s", was_leaving ? "leave the card" : "come back to the card",
                   move->failure);
    if (!was_leaving)
        return;
    if (move->cause != MOVE_BY_USER)
        get_stuck(move);
    moves_turn(session, false, move->cause);
    move->came_usec = daemon_now_usec();
    moves_set_suspended(session, false);
}

void moves_come_ahead(struct session *session)
{
    GS_CHECK(move_is_valid(session));
    session->move->is_ahead = true;
    moves_advance(session);
}

void moves_drop_ahead(struct session *session)
{
    GS_CHECK(move_is_valid(session));
    session->move->is_ahead = false;
    if (MOVES_SUM(session, resident_bytes)) {
        session->move->state = MOVE_LEAVING;
        moves_watch_progress(session);
    }
    moves_advance(session);
}

void moves_want_back(struct session *session)
{
    if (!session->move->wants_usec)
        session->move->wants_usec = daemon_now_usec();
}
