/* facts/facts.h - what agents told, and what they were told. The first stage: it knows no other.
 *
 * Whoever gives or takes a lease says so here, since what is let in is a fact for all that comes after. */
#pragma once

#include "daemon/schedule/record.h"
#include "daemon/schedule/rules.h"

/* For each GPU of the set; `gpu` is its number. */
#define FOR_GPUS(gpu, set)                                                                                   \
    for (uint64_t set_##gpu = (set), gpu; set_##gpu && (gpu = (uint64_t)__builtin_ctzll(set_##gpu), true);   \
         set_##gpu &= set_##gpu - 1)
#define NEVER UINT64_MAX

static inline uint64_t earliest(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline bool is_capped(const struct arbiter_session *session)
{
    return session->facts.share.max < SHARE_WHOLE;
}

/* Whether its minimum, its maximum or its priority makes shares count on its GPUs. */
static inline bool is_restricted(const struct arbiter_session *session)
{
    return session->facts.share.min > 0 || is_capped(session) ||
           session->facts.priority != ARBITER_PRIORITY_NORMAL;
}

static inline bool is_exclusive(const struct arbiter_session *session)
{
    return session->facts.lease == LEASE_EXCLUSIVE || session->facts.lease == LEASE_LOOSE;
}

/* The part of its speed alone that it is promised. */
static inline double promised_part(const struct arbiter_session *session)
{
    return (double)session->facts.share.min / SHARE_WHOLE;
}

static inline bool has_several_gpus(const struct arbiter_session *session)
{
    return session->facts.gpus & (session->facts.gpus - 1);
}

static inline bool has_several_processes(const struct arbiter_session *session)
{
    return session->processes && session->processes->next;
}

/* Whether these are two sessions that have GPUs in common. */
static inline bool meets(const struct arbiter_session *a, const struct arbiter_session *b)
{
    return a != b && (a->facts.gpus & b->facts.gpus);
}

/* The process may have work before the GPU, and its session's lease lasts for it. */
static inline bool is_let_in(const struct arbiter_process *process)
{
    return process->facts.gate == PROCESS_OPEN || process->facts.gate == PROCESS_CLOSING;
}

/* The session has several processes, and no two of them had open gates at once after `since`. */
static inline bool is_single_since(const struct arbiter_session *session, uint64_t since)
{
    return has_several_processes(session) && session->facts.together_at <= since;
}

static inline bool is_held(const struct arbiter_session *session)
{
    return session->facts.lease != LEASE_NONE && session->facts.lease != LEASE_FREE;
}

/* It has a lease, but holds still for a burst of a higher priority. */
static inline bool is_still(const struct arbiter_session *session)
{
    return is_held(session) && (session->facts.flags & WIRE_LEASE_STILL);
}

/* Whether the process waits at its closed gate; whether one of the session's processes does; and whether one does
 * and the session has no lease. */
bool facts_process_is_waiting(const struct arbiter_process *process);
bool facts_has_waiting_process(const struct arbiter_session *session);
bool facts_is_waiting(const struct arbiter_session *session);
/* Whether one of the session's processes may have work before the GPU. */
bool facts_is_any_let_in(const struct arbiter_session *session);
/* Whether one of the session's processes has begun a burst and not ended it. */
bool facts_has_burst(const struct arbiter_session *session);
/* Whether a guest of a higher priority is on the session's GPUs. Measuring the session would close that guest's gate,
 * which costs latency, and that counts more. */
bool facts_is_below_a_guest(const struct arbiter_session *session);
/* The GPUs that the session's processes use. */
uint64_t facts_gpus_of(const struct arbiter_session *session);
/* The longest piece of work of the session's processes. */
double facts_longest_piece(const struct arbiter_session *session);
/* Time of the session's turn since the last charge. */
double facts_uncharged(const struct arbiter_session *session);
/* When the holder of a turn will have told nothing for so long that it must be at work: it would have given an idle
 * turn back. */
uint64_t facts_silent_at(const struct arbiter_session *holder);

/* `passed` ns have passed up to now. */
void facts_pass(struct arbiter *arbiter, double passed);
/* The session's turn on the GPU is charged up to now. */
void facts_charged(struct arbiter_session *session, uint64_t gpu);

/* --- What is let in -------------------------------------------------------------------------------- */

void facts_set_gate(struct arbiter_process *process, enum arbiter_gate gate);
/* The process's gate is open from now on, under the lease of that number. */
void facts_let_in(struct arbiter_process *process, uint64_t lease);
/* The process's gate is closing, and it makes one call under the lease of that number. */
void facts_let_in_for_a_step(struct arbiter_process *process, uint64_t lease);
/* A turn begins in which the process's session is measured: its agent is told to forget what calls took. */
void facts_begin_afresh(struct arbiter_process *process);
void facts_set_lease(struct arbiter_session *session, enum arbiter_lease lease, uint64_t held);
/* What the session leases, and what its present lease is of. */
void facts_set_gpus(struct arbiter_session *session, uint64_t gpus);
void facts_set_held(struct arbiter_session *session, uint64_t held);
void facts_set_closing(struct arbiter_session *session, bool closing);
void facts_set_flags(struct arbiter_session *session, uint32_t flags, uint64_t ahead_ns);
void facts_set_favoured(struct arbiter_session *session, bool is_favoured);
/* Processes of the session were seen to wait for each other's work. */
void facts_note_step(struct arbiter_session *session);

/* --- What agents tell ------------------------------------------------------------------------------ */

/* What a process tells of its work, as far as it can be true. */
struct report {
    uint64_t from;    /* its process's last report */
    double passed_ns; /* since its session's last report */
    double own_ns;    /* since its own last report */
    double busy_ns;   /* with work before the GPU */
    double calls;
    uint64_t measured;
    double least_ns; /* that a measured call took */
    bool is_alone;   /* no other session's gate was open */
    bool is_single;  /* nor that of another process of its session */
};

/* A process reports. Returns false if that does not count, since nothing is measured under its lease. */
bool facts_take(struct arbiter_process *process, const struct wire_report *told, struct report *report);
/* The most time with work that the process can have had since its last report, since it reports every 20 ms what is
 * done. In a turn that others want, that may be all of the time: it would have given an idle turn back. */
double facts_most_untold(const struct arbiter_process *process);
/* Whether a message is about the process's present lease: reports under a lease that is over do not count. */
bool facts_is_current(const struct arbiter_process *process, uint64_t lease);
void facts_want(struct arbiter_process *process, uint64_t gpus);
void facts_want_again(struct arbiter_process *process);
/* The process is new. */
void facts_enter(struct arbiter_process *process);
void facts_set_share(struct arbiter_session *session, struct share share, unsigned priority);
void facts_set_away(struct arbiter_process *process, bool is_away);
void facts_set_burst(struct arbiter_process *process, bool is_bursting);
void facts_add_waited(struct arbiter_session *session, uint64_t waited_ns);
void facts_add_waits(struct arbiter_session *session, const struct wire_waits *waits);
/* The process has closed its gate. Its work ended so long ago. */
void facts_returned(struct arbiter_process *process, uint64_t ended_ns, bool is_drained);
