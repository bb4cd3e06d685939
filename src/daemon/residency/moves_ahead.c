/* Has host memory made before memory has to leave the card, and taken back where others need it (ahead.h). */
#include <stdlib.h>

#include "daemon/agents/agents.h"
#include "daemon/loop/daemon.h"
#include "daemon/residency/ahead.h"
#include "daemon/residency/arena.h"
#include "daemon/residency/moves_state.h"
#include "daemon/residency/residency.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"

/* How often to look whether there is something to be made ahead; and whether the machine is short of memory. */
#define AHEAD_TICK_USEC UINT64_C(500000)
#define AHEAD_PAUSE_USEC UINT64_C(20000) /* while chunks are made: between a look and the next */
#define LOOK_USEC UINT64_C(2000000)
/* How long a process may take to give host memory back; one that did not is not asked again for a while. */
#define KEEP_USEC UINT64_C(3000000)
#define KEEP_AGAIN_USEC UINT64_C(10000000)

/* --- Making ---------------------------------------------------------------------------------------- */

/* For each GPU, whether the sessions there may need more memory together than it has. */
struct crowds {
    bool is_crowded[RESIDENCY_GPUS];
};

static struct crowds find_crowds(const struct daemon *daemon)
{
    uint64_t sums[RESIDENCY_GPUS] = {0};
    struct crowds crowds;
    for (const struct session *at = daemon->sessions; at; at = at->next)
        for (unsigned i = 0; i < at->gpu_count; i++)
            if (at->gpus[i].gpu >= 0)
                sums[at->gpus[i].gpu] += moves_at_most(moves_most_bytes(at, i), MOVES_BYTES_MOST);
    for (unsigned gpu = 0; gpu < RESIDENCY_GPUS; gpu++)
        crowds.is_crowded[gpu] = gpu < daemon->gpu_count && sums[gpu] > daemon->gpus[gpu].total_bytes;
    return crowds;
}

static bool may_have_to_leave(const struct session *session, const struct crowds *crowds)
{
    bool is_crowded = false;
    for (unsigned i = 0; i < session->gpu_count; i++)
        is_crowded |= session->gpus[i].gpu >= 0 && crowds->is_crowded[session->gpus[i].gpu];
    return session->idle_suspend_seconds || is_crowded;
}

static bool is_on_card(const struct session *session)
{
    return session->engine == LEDGER_ENGINE_SWAP && session->move && !session->move->is_leaving &&
           session->move->state == MOVE_RESIDENT;
}

static uint64_t movable_bytes(const struct process_move *move)
{
    return move->now.resident_bytes + move->now.evicted_bytes;
}

/* For how long its memory has not grown. */
static uint64_t steady_usec(struct process_move *move, uint64_t now)
{
    if (movable_bytes(move) > move->grown_bytes || !move->grown_usec)
        move->grown_usec = now;
    move->grown_bytes = movable_bytes(move);
    return now - move->grown_usec;
}

/* Older agents page-lock a chunk as a whole when it comes: nothing is made ahead for them. */
static bool takes_ahead(const struct process *process, uint64_t now)
{
    const struct process_move *move = process->move;
    return process->agent && move && move->has_said && (move->now.flags & WIRE_MOVED_STEPS) && !move->order &&
           !move->chunk_comes && move->given_bytes == move->now.arena_bytes && now >= move->prepare_usec;
}

static struct ahead_host host_of(const struct daemon *daemon)
{
    struct ahead_host host = {.is_allowed = daemon->config.daemon.host_memory_ahead,
                              .given_bytes = moves_all_arena_bytes(daemon->moves),
                              .bound_bytes = arena_bound_bytes(daemon),
                              .chunk_bytes = ARENA_CHUNK_SMALL};
    return host;
}

/* Have one chunk made for a process of the session, if that should be now. Returns whether one is being made. */
static bool make_for(struct session *session, const struct ahead_host *host, bool may_leave, uint64_t now)
{
    for (struct process *process = session->processes; process; process = process->next) {
        if (!process->move)
            continue;
        struct ahead_process seen = {.movable_bytes = movable_bytes(process->move),
                                     .given_bytes = process->move->given_bytes,
                                     .steady_usec = steady_usec(process->move, now),
                                     .may_have_to_leave = may_leave};
        if (takes_ahead(process, now) && ahead_is_due(&seen, host) &&
            moves_make_chunk(process, ARENA_CHUNK_SMALL))
            return true;
    }
    return false;
}

/* One chunk at a time for all sessions, so that a session that leaves does not wait for many. */
static void make_ahead(struct daemon *daemon, const struct crowds *crowds)
{
    struct moves *moves = daemon->moves;
    uint64_t now = daemon_now_usec();
    const struct ahead_host host = host_of(daemon);
    for (struct session *at = daemon->sessions; at && !moves->is_making_ahead; at = at->next)
        if (is_on_card(at) && make_for(at, &host, may_have_to_leave(at, crowds), now))
            moves->is_making_ahead = true;
}

/* --- Taking back ----------------------------------------------------------------------------------- */

/* A process that was told to give some back, and may still do so. */
static bool is_giving(const struct process_move *move, uint64_t now)
{
    return move->keep_usec && now - move->keep_usec < KEEP_USEC && move->given_bytes > move->keep_bytes;
}

static bool may_be_told_to_keep(const struct process *process, uint64_t now)
{
    const struct process_move *move = process->move;
    return process->agent && move->has_said && (move->now.flags & WIRE_MOVED_STEPS) && !move->order &&
           !(move->now.flags & WIRE_MOVED_AWAY) &&
           (!move->keep_usec || now - move->keep_usec >= KEEP_AGAIN_USEC);
}

/* The processes that have host memory to give, in the order of the lists. */
struct givers {
    struct process **processes;
    struct ahead_holder *holders;
    unsigned count, room;
    uint64_t coming_bytes; /* from those that were told already */
};

static void add_giver(struct givers *givers, struct process *process, bool may_leave, uint64_t now)
{
    const struct process_move *move = process->move;
    if (is_giving(move, now)) {
        givers->coming_bytes += move->given_bytes - move->keep_bytes;
    } else if (may_be_told_to_keep(process, now) && givers->count < givers->room) {
        givers->processes[givers->count] = process;
        givers->holders[givers->count++] = (struct ahead_holder){.given_bytes = move->given_bytes,
                                                                 .away_bytes = move->now.evicted_bytes,
                                                                 .may_have_to_leave = may_leave};
    }
}

static unsigned count_processes(const struct daemon *daemon)
{
    unsigned count = 0;
    for (const struct session *at = daemon->sessions; at; at = at->next)
        count += at->process_count;
    return count;
}

/* `owner`: of whose sessions; NULL: of all. `except` keeps what it has; may be NULL. */
static void find_givers(const struct daemon *daemon, const struct session *except, const uid_t *owner,
                        struct givers *givers)
{
    const struct crowds crowds = find_crowds(daemon);
    uint64_t now = daemon_now_usec();
    unsigned room = count_processes(daemon);
    *givers = (struct givers){.processes = calloc(room + 1, sizeof(struct process *)),
                              .holders = calloc(room + 1, sizeof(struct ahead_holder))};
    givers->room = givers->processes && givers->holders ? room : 0;
    for (struct session *at = daemon->sessions; at; at = at->next) {
        if (at == except || !is_on_card(at) || (owner && at->owner != *owner))
            continue;
        for (struct process *process = at->processes; process; process = process->next)
            if (process->move)
                add_giver(givers, process, may_have_to_leave(at, &crowds), now);
    }
}

static void end_givers(struct givers *givers)
{
    free(givers->processes);
    free(givers->holders);
}

static void tell_to_keep(struct process *process, uint64_t keep_bytes)
{
    struct wire_message message = {.header.type = WIRE_KEEP, .keep.most_bytes = keep_bytes};
    if (!agents_send(process, &message, -1))
        return;
    process->move->keep_usec = daemon_now_usec();
    process->move->keep_bytes = keep_bytes;
    process->move->prepare_usec = process->move->keep_usec + KEEP_AGAIN_USEC;
}

static uint64_t take_back(const struct daemon *daemon, const struct session *except, const uid_t *owner,
                          uint64_t bytes)
{
    struct givers givers;
    find_givers(daemon, except, owner, &givers);
    uint64_t sum = givers.coming_bytes;
    if (sum < bytes)
        sum += ahead_take_back(givers.holders, givers.count, bytes - sum);
    for (unsigned i = 0; i < givers.count && givers.coming_bytes < bytes; i++)
        if (givers.holders[i].keep_bytes < givers.holders[i].given_bytes)
            tell_to_keep(givers.processes[i], givers.holders[i].keep_bytes);
    end_givers(&givers);
    return sum;
}

bool moves_take_back(const struct session *session, uint64_t bytes)
{
    struct error error;
    if (moves_check_bounds(session, bytes, UINT64_MAX, UINT64_MAX, &error) < 0)
        return false; /* it is the session's own bound */
    bool is_owners = moves_check_bounds(session, bytes, 0, 0, &error) < 0 &&
                     moves_check_bounds(session, bytes, UINT64_MAX, 0, &error) < 0;
    return take_back(session->daemon, session, is_owners ? &session->owner : NULL, bytes) > 0;
}

uint64_t moves_given_back(const struct session *session, bool by_owner)
{
    struct givers givers;
    find_givers(session->daemon, session, by_owner ? &session->owner : NULL, &givers);
    uint64_t sum = givers.coming_bytes + ahead_take_back(givers.holders, givers.count, UINT64_MAX);
    end_givers(&givers);
    return sum;
}

/* The machine has nothing to spare any more: somebody gives some back, and as much again at the next look. */
static void take_look(struct daemon *daemon, bool is_short)
{
    daemon->moves->is_looking = false;
    if (is_short)
        take_back(daemon, NULL, NULL, ARENA_CHUNK_LARGE);
}

static bool has_unused(const struct session *session)
{
    return is_on_card(session) && moves_arena_bytes(session) > MOVES_SUM(session, evicted_bytes);
}

/* Whether the session may get host memory ahead when time has passed. */
static bool lacks_some(const struct session *session, const struct crowds *crowds)
{
    return session->daemon->config.daemon.host_memory_ahead && is_on_card(session) &&
           may_have_to_leave(session, crowds) && moves_chunk_bytes(session);
}

void moves_look_ahead(struct daemon *daemon)
{
    struct moves *moves = daemon->moves;
    uint64_t now = daemon_now_usec();
    const struct crowds crowds = find_crowds(daemon);
    bool any_unused = false, any_lacks = false;
    for (const struct session *at = daemon->sessions; at; at = at->next) {
        any_unused |= has_unused(at);
        any_lacks |= lacks_some(at, &crowds);
    }
    if (any_lacks)
        make_ahead(daemon, &crowds);
    if (any_unused && !moves->is_looking && now - moves->looked_usec >= LOOK_USEC) {
        moves->looked_usec = now;
        moves->is_looking = arena_look(daemon, take_look);
    }
    if (any_lacks || any_unused)
        moves_look_again(moves, now + (moves->is_making_ahead ? AHEAD_PAUSE_USEC
                                       : any_lacks            ? AHEAD_TICK_USEC
                                                              : LOOK_USEC));
}
