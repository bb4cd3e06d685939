/* Has host memory taken back where others need it (ahead.h). */
#include "daemon/residency/moves_back.h"

#include <stdlib.h>

#include "daemon/agents/agents.h"
#include "daemon/loop/daemon.h"
#include "daemon/residency/ahead.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"

/* How long a process may take to give host memory back; one that did not is not asked again for a while. */
#define KEEP_USEC UINT64_C(3000000)
#define KEEP_AGAIN_USEC UINT64_C(10000000)

struct moves_crowds moves_find_crowds(const struct daemon *daemon)
{
    uint64_t sums[RESIDENCY_GPUS] = {0};
    struct moves_crowds crowds;
    for (const struct session *at = daemon->sessions; at; at = at->next)
        for (unsigned i = 0; i < at->gpu_count; i++)
            if (at->gpus[i].gpu >= 0)
                sums[at->gpus[i].gpu] += moves_at_most(moves_most_bytes(at, i), MOVES_BYTES_MOST);
    for (unsigned gpu = 0; gpu < RESIDENCY_GPUS; gpu++)
        crowds.is_crowded[gpu] = gpu < daemon->gpu_count && sums[gpu] > daemon->gpus[gpu].total_bytes;
    return crowds;
}

bool moves_may_have_to_leave(const struct session *session, const struct moves_crowds *crowds)
{
    bool is_crowded = false;
    for (unsigned i = 0; i < session->gpu_count; i++)
        is_crowded |= session->gpus[i].gpu >= 0 && crowds->is_crowded[session->gpus[i].gpu];
    return session->properties.idle_suspend_seconds || is_crowded;
}

bool moves_is_on_card(const struct session *session)
{
    return session->properties.engine == LEDGER_ENGINE_SWAP && session->move && !session->move->is_leaving &&
           session->move->state == MOVE_RESIDENT;
}

/* A process that was told to give some back, and may still do so. */
static bool is_giving(const struct process_move *move, uint64_t now)
{
    return move->keep_usec && now - move->keep_usec < KEEP_USEC && move->given_bytes > move->keep_bytes;
}

static bool may_be_told_to_keep(const struct process *process, uint64_t now)
{
    const struct process_move *move = process->move;
    return process->agent && move->has_said && !move->order && !(move->now.flags & WIRE_MOVED_AWAY) &&
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
    const struct moves_crowds crowds = moves_find_crowds(daemon);
    uint64_t now = daemon_now_usec();
    unsigned room = count_processes(daemon);
    *givers = (struct givers){.processes = calloc(room + 1, sizeof(struct process *)),
                              .holders = calloc(room + 1, sizeof(struct ahead_holder))};
    givers->room = givers->processes && givers->holders ? room : 0;
    for (struct session *at = daemon->sessions; at; at = at->next) {
        if (at == except || !moves_is_on_card(at) || (owner && at->owner != *owner))
            continue;
        for (struct process *process = at->processes; process; process = process->next)
            if (process->move)
                add_giver(givers, process, moves_may_have_to_leave(at, &crowds), now);
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

uint64_t moves_take_back_from(const struct daemon *daemon, const struct session *except, const uid_t *owner,
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
    return moves_take_back_from(session->daemon, session, is_owners ? &session->owner : NULL, bytes) > 0;
}

uint64_t moves_given_back(const struct session *session, bool by_owner)
{
    struct givers givers;
    find_givers(session->daemon, session, by_owner ? &session->owner : NULL, &givers);
    uint64_t sum = givers.coming_bytes + ahead_take_back(givers.holders, givers.count, UINT64_MAX);
    end_givers(&givers);
    return sum;
}
