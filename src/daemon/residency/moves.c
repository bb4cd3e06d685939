#include "daemon/residency/moves.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/units.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/residency/arena.h"
#include "daemon/residency/residency.h"
#include "daemon/schedule/agents.h"
#include "daemon/session/process.h"
#include "daemon/session/promises.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/session/session_show.h"
#include "wire/wire.h"

#define TICK_USEC UINT64_C(100000)
/* How long an agent waits for work in flight; and for how long it is asked again and again, where that does not end. */
#define PATIENCE_NS UINT64_C(2000000000)
/* What is not counted among what the card holds, as parts of blocks. */
#define SLACK_BYTES (UINT64_C(16) << 20)
#define FIRST_BYTES_PER_SECOND UINT64_C(10000000000)
#define HOPE_NS UINT64_C(1500000000)
#define TURN_LEAST_NS UINT64_C(1000000000)
#define TURN_MOST_NS UINT64_C(60000000000)
#define IDLE_PATIENCE_NS UINT64_C(20000000)
#define BUSY_USEC UINT64_C(30000000)
#define RETRY_USEC UINT64_C(500000)
/* Who says nothing for so long while it is to move is stopped, or stuck. */
#define SILENCE_USEC UINT64_C(10000000)

/* What one process says of its memory, and was told. */
struct process_move {
    struct wire_moved now;
    uint64_t given_bytes;  /* chunks that were sent and not told of yet count */
    uint64_t order;        /* that was not answered; 0: none */
    uint64_t heard_usec;   /* when it last said something, or was told it */
    uint64_t again_usec;   /* not to be told again before */
    uint64_t extra_bytes;  /* of arena that it needs beyond what it has */
    uint64_t idle_usec;    /* since when it has no work; 0: it has */
    bool has_said;         /* MOVED has come */
    struct wire_need need; /* number 0: no thread waits for room */
    uint64_t need_usec;
    bool silence_told;
    bool chunk_comes; /* one is being made for it */
};

/* One session's move. */
struct move {
    bool is_leaving; /* it is to be away; else on the card */
    enum move_cause cause;
    enum move_state state; /* that was told last */
    uint64_t began_usec, total_bytes;
    uint64_t
        wants_usec; /* of one that is away: since when it is to come as soon as there is room; 0: it is not */
    uint64_t came_usec; /* when it was on the card as a whole last */
    unsigned misses;    /* so often there was room, and the card said that there was not */
    bool has_moved;     /* something of it left since it was resident last */
    char failure[256];
};

struct moves {
    struct daemon *daemon;
    struct observer observer;
    sd_event_source *timer;
    uint64_t last_order;
    uint64_t bytes_per_second; /* of moves, smoothed */
    uint64_t turn_ns;          /* 0: as long as moving is worth */
};

/* A chunk is being made for this process, which may end meanwhile. */
struct chunk_wish {
    struct daemon *daemon;
    char session_id[SESSION_ID_TEXT];
    pid_t pid;
    uint64_t start_ticks, generation;
    uint32_t slot;
};

static void advance(struct session *session);
static void decide(struct daemon *daemon);
static void fail(struct session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- Sums ------------------------------------------------------------------------------------------ */

static bool is_away(const struct process_move *move)
{
    return (move->now.flags & WIRE_MOVED_AWAY) && move->now.resident_bytes == 0;
}

static bool is_partly_away(const struct process_move *move)
{
    return move->now.flags & WIRE_MOVED_AWAY;
}

static uint64_t sum_of(const struct session *session, size_t offset)
{
    uint64_t sum = 0;
    for (const struct process *process = session->processes; process; process = process->next)
        if (process->move &&
            __builtin_add_overflow(
                sum, *(const uint64_t *)(const void *)((const char *)&process->move->now + offset), &sum))
            return UINT64_MAX;
    return sum;
}
#define SUM(session, field) sum_of(session, offsetof(struct wire_moved, field))

/* Host memory that a session has been given. */
static uint64_t arena_of(const struct session *session)
{
    uint64_t sum = 0;
    for (const struct process *process = session->processes; process; process = process->next)
        sum += process->move ? process->move->given_bytes : 0;
    return sum;
}

static uint64_t arena_of_all(const struct daemon *daemon)
{
    uint64_t sum = 0;
    for (const struct session *session = daemon->sessions; session; session = session->next)
        sum += arena_of(session);
    return sum;
}

/* What a process lacks of arena, to leave the card as a whole. */
static uint64_t lacks(const struct process_move *move)
{
    uint64_t needed = move->now.resident_bytes + move->now.evicted_bytes + move->extra_bytes;
    return needed > move->given_bytes ? needed - move->given_bytes : 0;
}

/* --- Bounds ---------------------------------------------------------------------------------------- */

/* Whether the session may have `bytes` more of host memory. */
static int check_bounds(const struct session *session, uint64_t bytes, struct error *error)
{
    const struct daemon *daemon = session->daemon;
    char needed[UNITS_BYTES_TEXT], bound[UNITS_BYTES_TEXT], held[UNITS_BYTES_TEXT];
    uint64_t own = arena_of(session), all = arena_of_all(daemon), most = arena_bound_bytes(daemon);
    if (session->host_memory_bytes && own + bytes > session->host_memory_bytes)
        return error_set(
            error, EBUSY, "ERR_HOST_MEMORY",
            "session %s would need %s of host memory, and may have %s; give it more with 'gpuslice set %s "
            "--host-memory SIZE'",
            session->id, units_format_bytes(own + bytes, needed),
            units_format_bytes(session->host_memory_bytes, bound), session->id);
    if (all + bytes > most)
        return error_set(
            error, EBUSY, "ERR_HOST_MEMORY",
            "session %s needs %s of host memory, and sessions have %s of the %s that host-memory in "
            "gpuslice.conf allows; raise that, or resume or release a session",
            session->id, units_format_bytes(bytes, needed), units_format_bytes(all, held),
            units_format_bytes(most, bound));
    return 0;
}

/* Chunks for all that it still lacks. */
static uint64_t chunks_for(const struct session *session)
{
    uint64_t sum = 0;
    for (const struct process *process = session->processes; process; process = process->next)
        for (uint64_t left = process->move ? lacks(process->move) : 0; left;) {
            uint64_t chunk = arena_chunk_bytes(left);
            sum += chunk;
            left = left > chunk ? left - chunk : 0;
        }
    return sum;
}

/* --- Orders ---------------------------------------------------------------------------------------- */

static void give_order(struct process *process, struct wire_message *message, uint64_t *number)
{
    struct moves *moves = process->session->daemon->moves;
    *number = ++moves->last_order;
    if (!agents_send(process, message, -1))
        return;
    process->move->order = *number;
    process->move->heard_usec = daemon_now_usec();
    process->move->silence_told = false;
}

static void order_out(struct process *process)
{
    const struct session *session = process->session;
    bool is_idle = session->move->cause == MOVE_BY_IDLE;
    struct wire_message message = {.header.type = WIRE_EVICT,
                                   .evict.patience_ns = is_idle ? IDLE_PATIENCE_NS : PATIENCE_NS};
    if (is_idle)
        message.evict.idle_ns = session->idle_suspend_seconds * UINT64_C(1000000000);
    give_order(process, &message, &message.evict.order);
}

static void order_in(struct process *process)
{
    struct wire_message message = {.header.type = WIRE_RESTORE};
    give_order(process, &message, &message.restore.order);
}

static void on_chunk(void *argument, int fd, uint64_t bytes, const char *why)
{
    struct chunk_wish wish = *(struct chunk_wish *)argument;
    free(argument);
    struct session *session = session_find_id(wish.daemon, wish.session_id);
    struct process *process =
        session ? process_find(session, wish.pid, wish.start_ticks, wish.slot, wish.generation) : NULL;
    if (!process || !process->move)
        return;
    process->move->chunk_comes = false;
    struct wire_message message = {.header.type = WIRE_ARENA, .arena.bytes = bytes};
    if (fd < 0)
        fail(session, "%s", why);
    else if (agents_send(process, &message, fd))
        process->move->given_bytes += bytes;
    advance(session);
}

/* Have a chunk made for the process. */
static void ask_for_chunk(struct process *process)
{
    struct session *session = process->session;
    uint64_t bytes = arena_chunk_bytes(lacks(process->move));
    struct error error;
    struct chunk_wish *wish;
    if (check_bounds(session, bytes, &error) < 0) {
        fail(session, "%s", error.message);
    } else if ((wish = calloc(1, sizeof(*wish)))) {
        *wish = (struct chunk_wish){.daemon = session->daemon,
                                    .pid = process->pid,
                                    .start_ticks = process->start_ticks,
                                    .generation = process->generation,
                                    .slot = process->slot};
        strcpy(wish->session_id, session->id);
        process->move->chunk_comes = true;
        arena_make(session->daemon, bytes, chunks_for(session), on_chunk, wish);
    }
}

/* Tell one process what it is to do, unless it is doing so, or has. */
static void step(struct process *process)
{
    struct process_move *move = process->move;
    bool is_leaving = process->session->move->is_leaving;
    if (!process->agent || !move->has_said || move->order || move->chunk_comes ||
        daemon_now_usec() < move->again_usec)
        return;
    if (is_leaving && !is_away(move)) {
        if (lacks(move))
            ask_for_chunk(process);
        else
            order_out(process);
    } else if (!is_leaving && is_partly_away(move)) {
        order_in(process);
    }
}

/* --- Where a session stands ------------------------------------------------------------------------ */

static enum move_state state_of(const struct session *session)
{
    bool all = true, any = false;
    for (const struct process *process = session->processes; process; process = process->next) {
        if (!process->move || !process->move->has_said)
            continue;
        all = all && is_away(process->move);
        any = any || is_partly_away(process->move);
    }
    if (session->move->is_leaving)
        return all ? MOVE_AWAY : MOVE_LEAVING;
    return any ? MOVE_COMING : MOVE_RESIDENT;
}

/* How fast moves are, from one that is done. */
static void note_speed(struct moves *moves, uint64_t bytes, double seconds)
{
    if (bytes < SLACK_BYTES || seconds <= 0)
        return;
    double speed = (double)bytes / seconds;
    moves->bytes_per_second = (uint64_t)(0.75 * (double)moves->bytes_per_second + 0.25 * speed);
}

/* The state that it has come to is news. */
static void tell_state(struct session *session)
{
    struct move *move = session->move;
    char bytes[UNITS_BYTES_TEXT];
    enum move_state state = state_of(session);
    if (state == move->state)
        return;
    double seconds = (double)(daemon_now_usec() - move->began_usec) / 1e6;
    move->state = state;
    if (state != MOVE_AWAY && state != MOVE_RESIDENT)
        return;
    if (state == MOVE_RESIDENT) {
        move->came_usec = daemon_now_usec();
        move->wants_usec = 0;
        move->misses = 0;
    }
    bool has_left = state == MOVE_AWAY, is_news = has_left || move->has_moved;
    move->has_moved = has_left;
    if (!is_news)
        return;
    note_speed(session->daemon->moves, move->total_bytes, seconds);
    units_format_bytes(has_left ? SUM(session, evicted_bytes) : SUM(session, resident_bytes), bytes);
    log_info("session %s: %s %s (%.3f s)", session->id, bytes,
             has_left ? "left the card" : "are back on the card", seconds);
    change_publish(session->daemon,
                   &(struct change){has_left ? CHANGE_SESSION_SUSPENDED : CHANGE_SESSION_RESUMED,
                                    .session = session, .bytes = SUM(session, evicted_bytes),
                                    .seconds = seconds},
                   has_left ? "%s left the card" : "%s are back on the card", bytes);
}

static void set_timer(struct moves *moves)
{
    int enabled;
    if (sd_event_source_get_enabled(moves->timer, &enabled) >= 0 && enabled != SD_EVENT_OFF)
        return;
    sd_event_source_set_time_relative(moves->timer, TICK_USEC);
    sd_event_source_set_enabled(moves->timer, SD_EVENT_ONESHOT);
}

static void advance(struct session *session)
{
    if (!session->move)
        return;
    for (struct process *process = session->processes; process; process = process->next)
        if (process->move)
            step(process);
    tell_state(session);
    set_timer(session->daemon->moves);
}

/* From now on it is to leave, or to come back. */
static void turn(struct session *session, bool is_leaving, enum move_cause cause)
{
    struct move *move = session->move;
    move->is_leaving = is_leaving;
    move->cause = cause;
    move->wants_usec = 0;
    move->began_usec = daemon_now_usec();
    move->total_bytes = is_leaving ? SUM(session, resident_bytes) : SUM(session, evicted_bytes);
    move->state = is_leaving ? MOVE_LEAVING : MOVE_COMING;
    for (struct process *process = session->processes; process; process = process->next)
        if (process->move)
            process->move->again_usec = 0;
}

/* A session is to be suspended until somebody resumes it, or not any more. */
static void set_suspended(struct session *session, bool is_suspended)
{
    if (session->is_suspended == is_suspended)
        return;
    session->is_suspended = is_suspended;
    change_publish(session->daemon, &(struct change){CHANGE_SESSION_MOVES, .session = session}, "%s",
                   is_suspended ? "is to leave the card" : "is to be on the card");
}

/* An eviction comes to nothing: what has left comes back. A restore is tried again. */
static void fail(struct session *session, const char *format, ...)
{
    struct move *move = session->move;
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
    turn(session, false, move->cause);
    move->came_usec = daemon_now_usec();
    set_suspended(session, false);
}

/* It is to come, once there is room. */
static void want_back(struct session *session)
{
    if (!session->move->wants_usec)
        session->move->wants_usec = daemon_now_usec();
}

/* --- What processes say ---------------------------------------------------------------------------- */

static struct move *move_of(struct session *session, const struct wire_moved *moved)
{
    if (session->move || !(session->move = calloc(1, sizeof(*session->move))))
        return session->move;
    /* Under an earlier daemon it left for some reason that was not somebody's: whoever has work comes back. */
    bool was_away = moved && (moved->flags & WIRE_MOVED_AWAY);
    *session->move = (struct move){
        .is_leaving = session->is_suspended || was_away,
        .cause = session->is_suspended ? MOVE_BY_USER : MOVE_BY_IDLE,
        .began_usec = daemon_now_usec(),
        .came_usec = daemon_now_usec(),
    };
    return session->move;
}

/* The arena was too small: it has more by now than it last said, or they do not fit well. */
static void grow(struct process_move *move)
{
    if (!lacks(move))
        move->extra_bytes += ARENA_CHUNK_SMALL;
    move->again_usec = 0;
}

/* There is less room on the card than it seemed: what has come leaves again, and there is to be more next time. */
static void miss(struct session *session)
{
    unsigned misses = session->move->misses + 1;
    log_info("session %s: the card has less room than expected", session->id);
    turn(session, true, session->move->cause);
    session->move->misses = misses;
    want_back(session);
}

/* An order was answered. */
static void take_answer(struct process *process, const struct wire_moved *moved)
{
    struct session *session = process->session;
    struct process_move *move = process->move;
    bool was_eviction = session->move->is_leaving;
    uint64_t now = daemon_now_usec();
    move->order = 0;
    if (moved->result == WIRE_MOVE_DONE) {
        move->extra_bytes = 0;
        return;
    }
    move->again_usec = now + RETRY_USEC;
    if (!was_eviction && moved->result == WIRE_MOVE_NO_ROOM)
        miss(session);
    else if (!was_eviction)
        fail(session, "the driver refused to bring memory of process %d back", (int)process->pid);
    else if (moved->result == WIRE_MOVE_NO_ROOM)
        grow(move);
    else if (moved->result == WIRE_MOVE_FAILED)
        fail(session, "the driver refused to move memory of process %d", (int)process->pid);
    else if (session->move->cause == MOVE_BY_IDLE)
        turn(session, false, MOVE_BY_IDLE);
    else if (now - session->move->began_usec > BUSY_USEC)
        fail(session, "work of process %d on the GPU did not end", (int)process->pid);
}

static void lose_agent(struct process *process)
{
    if (!process->move)
        return;
    process->move->order = 0;
    process->move->need.number = 0;
    process->move->given_bytes = process->move->now.arena_bytes;
}

static void take_moved(struct process *process, const struct wire_moved *moved)
{
    struct session *session = process->session;
    struct process_move *move = process->move;
    bool is_first = !move->has_said;
    move->has_said = true;
    move->now = *moved;
    if (!(moved->flags & WIRE_MOVED_IDLE))
        move->idle_usec = 0;
    else if (!move->idle_usec)
        move->idle_usec = daemon_now_usec();
    if (is_partly_away(move))
        move->need.number = 0; /* what is made now needs no room */
    session->move->has_moved |= is_partly_away(move);
    move->heard_usec = daemon_now_usec();
    if (is_first || move->now.arena_bytes > move->given_bytes)
        move->given_bytes = move->now.arena_bytes;
    if (moved->order && moved->order == move->order && moved->result != WIRE_MOVE_GOES_ON)
        take_answer(process, moved);
    if ((moved->flags & WIRE_MOVED_WAITS) && session->move->is_leaving &&
        session->move->cause != MOVE_BY_USER)
        want_back(session);
    advance(session);
}

static void take_need(struct process *process, const struct wire_need *need)
{
    if (need->gpu >= process->session->gpu_count || need->number == 0)
        return;
    if (!process->move->need.number)
        process->move->need_usec = daemon_now_usec();
    process->move->need = *need;
    set_timer(process->session->daemon->moves);
}

static void take_memory(struct process *process, const struct wire_message *message)
{
    if (!message) {
        lose_agent(process);
        return;
    }
    bool is_moved = message->header.type == WIRE_MOVED;
    if (!move_of(process->session, is_moved ? &message->moved : NULL) ||
        (!process->move && !(process->move = calloc(1, sizeof(*process->move)))))
        return;
    if (is_moved)
        take_moved(process, &message->moved);
    else
        take_need(process, &message->need);
    decide(process->session->daemon);
}
/* --- Who comes, and who leaves for it (residency.h) ------------------------------------------------ */

/* Of so many of the session's bytes, those of one of its GPUs: in proportion to what it is charged there. */
static uint64_t part_of(const struct session *session, unsigned policy_gpu, uint64_t bytes)
{
    double all = 0;
    if (session->gpu_count == 1)
        return bytes;
    for (unsigned i = 0; i < session->gpu_count; i++)
        all += (double)session_charged(session, i);
    return all > 0 ? (uint64_t)((double)bytes * ((double)session_charged(session, policy_gpu) / all)) : 0;
}

/* What a session has on the card, or will have when it has come. */
static uint64_t taken_by(const struct session *session, unsigned policy_gpu)
{
    uint64_t used = session_used(session, policy_gpu), away, here;
    if (!session->move || session->move->state == MOVE_COMING)
        return used;
    away = part_of(session, policy_gpu, SUM(session, evicted_bytes));
    here = part_of(session, policy_gpu, SUM(session, resident_bytes));
    used = used > away ? used - away : 0;
    return used > here ? used : here;
}

static void count_free(const struct daemon *daemon, uint64_t free_bytes[RESIDENCY_GPUS])
{
    memset(free_bytes, 0, RESIDENCY_GPUS * sizeof(free_bytes[0]));
    for (unsigned gpu = 0; gpu < daemon->gpu_count; gpu++)
        free_bytes[gpu] = admission_unreserved(daemon->gpus[gpu].total_bytes, SLACK_BYTES,
                                               promises_outside_bytes(daemon, gpu));
    for (const struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; i < session->gpu_count; i++) {
            int gpu = session->gpus[i].gpu;
            uint64_t taken = gpu >= 0 ? taken_by(session, i) : 0;
            if (gpu >= 0)
                free_bytes[gpu] -= taken < free_bytes[gpu] ? taken : free_bytes[gpu];
        }
}

/* What threads of the session wait for on one of its GPUs. Who was told in vain that there is room is given more. */
static uint64_t needed_by(const struct session *session, unsigned policy_gpu)
{
    const uint64_t most = UINT64_MAX / 64;
    uint64_t sum = 0;
    for (const struct process *process = session->processes; process; process = process->next) {
        const struct wire_need *need = process->move ? &process->move->need : NULL;
        if (!need || !need->number || need->gpu != policy_gpu)
            continue;
        uint64_t bytes = need->bytes < most ? need->bytes : most,
                 attempts = need->attempt < 16 ? need->attempt : 16;
        sum += bytes + attempts * (bytes / 2 + SLACK_BYTES);
        sum = sum < most ? sum : most;
    }
    return sum;
}

/* Since when a thread of the session waits for room; UINT64_MAX: none does. */
static uint64_t needs_since(const struct session *session)
{
    uint64_t first = UINT64_MAX;
    for (const struct process *process = session->processes; process; process = process->next)
        if (process->move && process->move->need.number && process->move->need_usec < first)
            first = process->move->need_usec;
    return first;
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

/* Since when none of its processes has work; UINT64_MAX: one has. */
static uint64_t idle_since(const struct session *session)
{
    uint64_t latest = 1;
    for (const struct process *process = session->processes; process; process = process->next) {
        uint64_t since = process->move && process->move->has_said ? process->move->idle_usec : 1;
        latest = since == 0 ? UINT64_MAX : since > latest ? since : latest;
    }
    return latest;
}

/* What would leave: as the processes last said, or by the ledger, which knows earlier what they allocated since. */
static uint64_t leaves_with(const struct session *session, unsigned policy_gpu)
{
    int gpu = session->gpus[policy_gpu].gpu;
    uint64_t told = part_of(session, policy_gpu, SUM(session, resident_bytes));
    uint64_t stays =
        part_of(session, policy_gpu, SUM(session, unmovable_bytes) + SUM(session, evicted_bytes)) +
        session->process_count * session->daemon->gpus[gpu].context_bytes;
    uint64_t charged = session_charged(session, policy_gpu);
    charged = charged > stays ? charged - stays : 0;
    return session->engine != LEDGER_ENGINE_SWAP ? 0 : charged > told ? charged : told;
}

static bool wants_to_come(const struct session *session)
{
    return session->move->state == MOVE_AWAY && session->move->wants_usec;
}

/* One session as residency.h sees it. `parts` has room for its GPUs. */
static struct residency_session see(const struct session *session, struct residency_part *parts)
{
    const struct move *move = session->move;
    uint64_t idle = idle_since(session), since = needs_since(session), moving = 0;
    bool comes = wants_to_come(session);
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
                                        .missing_bytes = needed_by(session, i)};
        if (comes)
            part->missing_bytes +=
                part_of(session, i, SUM(session, evicted_bytes)) + move->misses * 2 * SLACK_BYTES;
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
        turn(session, true, MOVE_BY_NEED);
        advance(session);
    } else if (verdict == RESIDENCY_COMES) {
        bool comes = wants_to_come(session);
        tell_room(session, true);
        if (comes) {
            turn(session, false, move->cause);
            advance(session);
        }
    }
}

static bool somebody_waits(const struct daemon *daemon)
{
    for (const struct session *session = daemon->sessions; session; session = session->next)
        if (session->move && (wants_to_come(session) || needs_since(session) != UINT64_MAX))
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

/* Who waits for room gets it, and somebody may have to leave for it. */
static void decide(struct daemon *daemon)
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
    set_timer(daemon->moves);
}

/* --- What time brings ------------------------------------------------------------------------------ */

/* One that does not answer. Its session waits for it, and nobody else. */
static void look_for_silence(struct process *process, uint64_t now)
{
    struct process_move *move = process->move;
    struct session *session = process->session;
    if (!move->order || move->silence_told || now - move->heard_usec < SILENCE_USEC)
        return;
    move->silence_told = true;
    snprintf(session->move->failure, sizeof(session->move->failure),
             "process %d does not answer: it is stopped, or its driver hangs; it moves as soon as it goes on",
             (int)process->pid);
    log_warning("session %s: %s", session->id, session->move->failure);
    change_publish(session->daemon,
                   &(struct change){CHANGE_MOVE_FAILED, .session = session, .process = process}, "%s",
                   session->move->failure);
}

/* Have it leave if it had no work for long. */
static void look_for_idleness(struct session *session, uint64_t now)
{
    const struct move *move = session->move;
    uint64_t since = idle_since(session), usec = session->idle_suspend_seconds * 1000000;
    if (usec == 0 || move->is_leaving || move->state != MOVE_RESIDENT || since == UINT64_MAX ||
        now - since < usec || now - move->began_usec < usec || SUM(session, resident_bytes) == 0)
        return;
    turn(session, true, MOVE_BY_IDLE);
}

static bool needs_time(const struct session *session)
{
    return session->move && (session->idle_suspend_seconds || session->move->state == MOVE_LEAVING ||
                             session->move->state == MOVE_COMING);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct moves *moves = userdata;
    uint64_t now = daemon_now_usec();
    bool more = false;
    (void)source;
    (void)usec;
    for (struct session *session = moves->daemon->sessions; session; session = session->next) {
        if (!needs_time(session))
            continue;
        look_for_idleness(session, now);
        for (struct process *process = session->processes; process; process = process->next)
            if (process->move)
                look_for_silence(process, now);
        advance(session);
        more = true;
    }
    decide(moves->daemon);
    if (more)
        set_timer(moves);
    return 0;
}

static void take(void *context, const struct change *change)
{
    (void)context;
    struct session *session = change->session;
    switch (change->kind) {
    case CHANGE_PROCESS_GONE:
        free(change->process->move);
        change->process->move = NULL;
        advance(session);
        break;
    case CHANGE_SESSION_GONE:
        free(session->move);
        session->move = NULL;
        break;
    default:
        break;
    }
}

/* --- What people ask ------------------------------------------------------------------------------- */

static int check_moves(const struct session *session, struct error *error)
{
    if (session->engine == LEDGER_ENGINE_SWAP)
        return 0;
    return error_set(error, EBUSY, "ERR_NOT_MOVABLE",
                     "the memory of session %s cannot leave the card; make one that can with --oversubscribe",
                     session->id);
}

int moves_suspend(struct session *session, struct error *error)
{
    int result = check_moves(session, error);
    bool leaves = session->move && session->move->is_leaving;
    if (result == 0 && !leaves)
        result = check_bounds(session, chunks_for(session), error);
    if (result < 0)
        return result;
    if (!move_of(session, NULL))
        return error_set_errno(error, ENOMEM, "cannot suspend session %s", session->id);
    if (leaves) {
        session->move->cause = MOVE_BY_USER; /* from now on */
    } else {
        session->move->failure[0] = '\0';
        turn(session, true, MOVE_BY_USER);
    }
    set_suspended(session, true);
    advance(session);
    return 0;
}

int moves_resume(struct session *session, struct error *error)
{
    int result = check_moves(session, error);
    if (result < 0)
        return result;
    set_suspended(session, false);
    if (!move_of(session, NULL))
        return error_set_errno(error, ENOMEM, "cannot resume session %s", session->id);
    if (!session->move->is_leaving)
        return 0;
    session->move->failure[0] = '\0';
    session->move->cause = MOVE_BY_NEED;
    if (session->move->state == MOVE_LEAVING)
        turn(session, false, MOVE_BY_NEED); /* what has left is missing, and no more */
    else
        want_back(session);
    advance(session);
    decide(session->daemon);
    return 0;
}

struct moves_standing moves_standing(const struct session *session)
{
    const struct move *move = session->move;
    struct moves_standing standing = {
        .state = session->is_suspended ? MOVE_AWAY : MOVE_RESIDENT, .failure = "", .seconds_left = -1};
    if (!move)
        return standing;
    standing = (struct moves_standing){
        .state = move->state,
        .cause = move->cause,
        .waits = (move->state == MOVE_AWAY && move->wants_usec) || needs_since(session) != UINT64_MAX,
        .resident_bytes = SUM(session, resident_bytes),
        .evicted_bytes = SUM(session, evicted_bytes),
        .unmovable_bytes = SUM(session, unmovable_bytes),
        .arena_bytes = arena_of(session),
        .seconds_left = -1,
        .failure = move->failure,
    };
    if (move->state != MOVE_LEAVING && move->state != MOVE_COMING)
        return standing;
    uint64_t left = move->is_leaving ? standing.resident_bytes : standing.evicted_bytes;
    standing.total_bytes = left > move->total_bytes ? left : move->total_bytes;
    standing.done_bytes = standing.total_bytes - left;
    double seconds = (double)(daemon_now_usec() - move->began_usec) / 1e6;
    if (standing.done_bytes)
        standing.seconds_left = seconds * (double)left / (double)standing.done_bytes;
    return standing;
}

const char *moves_state_name(enum move_state state)
{
    static const char *const names[] = {[MOVE_RESIDENT] = "resident",
                                        [MOVE_LEAVING] = "leaving",
                                        [MOVE_AWAY] = "away",
                                        [MOVE_COMING] = "coming"};
    return names[state];
}

const char *moves_cause_name(enum move_cause cause)
{
    static const char *const names[] = {
        [MOVE_BY_USER] = "user", [MOVE_BY_IDLE] = "idle", [MOVE_BY_NEED] = "need"};
    return names[cause];
}

/* --- Start and end --------------------------------------------------------------------------------- */

int moves_start(struct daemon *daemon, struct error *error)
{
    struct moves *moves = calloc(1, sizeof(*moves));
    if (!moves)
        return error_set_errno(error, ENOMEM, "cannot move memory");
    moves->daemon = daemon;
    moves->bytes_per_second = FIRST_BYTES_PER_SECOND;
    moves->observer = (struct observer){.take = take, .context = moves};
    int result = sd_event_add_time_relative(daemon->loop, &moves->timer, CLOCK_MONOTONIC, TICK_USEC, 1,
                                            on_timer, moves);
    if (result < 0) {
        free(moves);
        return error_set_errno(error, -result, "cannot move memory");
    }
    daemon->moves = moves;
    change_observe(daemon, &moves->observer);
    agents_tell_memory(daemon, take_memory);
    return 0;
}

void moves_stop(struct daemon *daemon)
{
    if (!daemon->moves)
        return;
    change_observe_no_more(daemon, &daemon->moves->observer);
    sd_event_source_disable_unref(daemon->moves->timer);
    free(daemon->moves);
    daemon->moves = NULL;
}
