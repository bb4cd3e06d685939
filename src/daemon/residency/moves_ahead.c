/* Has host memory made before memory has to leave the card (ahead.h), and taken back where the machine is short of it. */
#include "daemon/loop/daemon.h"
#include "daemon/residency/ahead.h"
#include "daemon/residency/arena.h"
#include "daemon/residency/moves_back.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"

/* How often to look whether there is something to be made ahead; and whether the machine is short of memory. */
#define AHEAD_TICK_USEC UINT64_C(500000)
#define AHEAD_PAUSE_USEC UINT64_C(20000) /* while chunks are made: between a look and the next */
#define LOOK_USEC UINT64_C(2000000)

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

static bool takes_ahead(const struct process *process, uint64_t now)
{
    const struct process_move *move = process->move;
    return process->agent && move && move->has_said && !move->order && !move->chunk_comes &&
           process->session->properties.engine == LEDGER_ENGINE_SWAP &&
           move->given_bytes == move->now.arena_bytes && now >= move->prepare_usec;
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
static void make_ahead(struct daemon *daemon, const struct moves_crowds *crowds)
{
    struct moves *moves = daemon->moves;
    uint64_t now = daemon_now_usec();
    const struct ahead_host host = host_of(daemon);
    for (struct session *at = daemon->sessions; at && !moves->is_making_ahead; at = at->next)
        if (moves_is_on_card(at) && make_for(at, &host, moves_may_have_to_leave(at, crowds), now))
            moves->is_making_ahead = true;
}

/* The machine has nothing to spare any more: somebody gives some back, and as much again at the next look. */
static void take_look(struct daemon *daemon, bool is_short)
{
    daemon->moves->is_looking = false;
    if (is_short)
        moves_take_back_from(daemon, NULL, NULL, ARENA_CHUNK_LARGE);
}

static bool has_unused(const struct session *session)
{
    return moves_is_on_card(session) && moves_arena_bytes(session) > MOVES_SUM(session, evicted_bytes);
}

/* Whether the session may get host memory ahead when time has passed. */
static bool lacks_some(const struct session *session, const struct moves_crowds *crowds)
{
    return session->daemon->config.daemon.host_memory_ahead && moves_is_on_card(session) &&
           moves_may_have_to_leave(session, crowds) && moves_chunk_bytes(session);
}

void moves_look_ahead(struct daemon *daemon)
{
    struct moves *moves = daemon->moves;
    uint64_t now = daemon_now_usec();
    const struct moves_crowds crowds = moves_find_crowds(daemon);
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
