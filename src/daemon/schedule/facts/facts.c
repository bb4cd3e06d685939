#include "daemon/schedule/facts/facts.h"

bool facts_process_is_waiting(const struct arbiter_process *process)
{
    return process->facts.wants && !process->facts.is_away && process->facts.gate == PROCESS_CLOSED;
}

bool facts_has_waiting_process(const struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (facts_process_is_waiting(at))
            return true;
    return false;
}

bool facts_is_waiting(const struct arbiter_session *session)
{
    return session->facts.lease == LEASE_NONE && facts_has_waiting_process(session);
}

bool facts_is_any_let_in(const struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (is_let_in(at))
            return true;
    return false;
}

bool facts_has_burst(const struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->facts.is_bursting)
            return true;
    return false;
}

bool facts_is_below_a_guest(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (meets(at, session) && at->facts.priority > session->facts.priority &&
            at->facts.lease == LEASE_GUEST)
            return true;
    return false;
}

uint64_t facts_gpus_of(const struct arbiter_session *session)
{
    uint64_t gpus = 0;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        gpus |= at->facts.gpus;
    return gpus;
}

double facts_longest_piece(const struct arbiter_session *session)
{
    double longest = 0;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        longest = (double)at->facts.longest_ns > longest ? (double)at->facts.longest_ns : longest;
    return longest;
}

double facts_uncharged(const struct arbiter_session *session)
{
    double most = 0;
    FOR_GPUS (gpu, session->facts.held)
        if (session->facts.open_ns[gpu] > most)
            most = session->facts.open_ns[gpu];
    return most;
}

uint64_t facts_silent_at(const struct arbiter_session *holder)
{
    return holder->facts.told_at + SILENT_REPORTS * WIRE_REPORT_NS;
}

/* --- Time passes ----------------------------------------------------------------------------------- */

/* How many of the session's processes may have work before the GPU, at least 1. Where sessions meet there, the
 * driver goes round among processes. */
static unsigned parties(const struct arbiter_session *session)
{
    unsigned count = 0;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        count += is_let_in(at);
    return count ? count : 1;
}

/* Whether the gates of several of the session's processes may be open. */
static bool is_together(const struct arbiter_session *session)
{
    unsigned count = 0;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        count += at->facts.gate != PROCESS_CLOSED;
    return count > 1;
}

/* Note which sessions have open gates beside others', and which have several open gates of their own. */
static void note_company(struct arbiter *arbiter)
{
    uint64_t open = 0, several = 0;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        several |= open & at->facts.held;
        open |= at->facts.held;
    }
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        if (at->facts.held & several)
            at->facts.company_at = arbiter->now;
        if (is_together(at))
            at->facts.together_at = arbiter->now;
    }
}

void facts_pass(struct arbiter *arbiter, double passed)
{
    unsigned open[ARBITER_GPUS] = {0};
    note_company(arbiter);
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (is_exclusive(at) && !is_still(at))
            FOR_GPUS (gpu, at->facts.held)
                open[gpu] += parties(at);
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (is_exclusive(at) && !is_still(at))
            FOR_GPUS (gpu, at->facts.held)
                at->facts.open_ns[gpu] += passed * parties(at) / open[gpu];
}

void facts_charged(struct arbiter_session *session, uint64_t gpu)
{
    session->facts.open_ns[gpu] = 0;
}

/* --- What is let in -------------------------------------------------------------------------------- */

void facts_set_gate(struct arbiter_process *process, enum arbiter_gate gate)
{
    process->facts.gate = gate;
}

void facts_let_in(struct arbiter_process *process, uint64_t lease)
{
    struct process_facts *facts = &process->facts;
    facts->gate = PROCESS_OPEN;
    facts->wants = facts->is_bursting = false;
    facts->reported_at = facts->afresh_at = process->session->arbiter->now;
    facts->spare_ns = 0;
    if (!facts->open_since)
        facts->open_since = process->session->arbiter->now;
    facts->lease = lease;
}

void facts_let_in_for_a_step(struct arbiter_process *process, uint64_t lease)
{
    process->facts.wants = false;
    process->facts.reported_at = process->session->arbiter->now;
    process->facts.lease = lease;
}

void facts_begin_afresh(struct arbiter_process *process)
{
    process->facts.afresh_at = process->session->arbiter->now;
}

void facts_set_lease(struct arbiter_session *session, enum arbiter_lease lease, uint64_t held)
{
    struct session_facts *facts = &session->facts;
    facts->lease = lease;
    facts->held = held;
    facts->closing = false;
    if (lease == LEASE_NONE)
        return;
    facts->since = facts->told_at = session->arbiter->now;
    facts->ended_at = 0;
    FOR_GPUS (gpu, held)
        facts->open_ns[gpu] = 0;
}

void facts_set_gpus(struct arbiter_session *session, uint64_t gpus)
{
    session->facts.gpus = gpus;
}

void facts_set_held(struct arbiter_session *session, uint64_t held)
{
    session->facts.held = held;
}

void facts_set_closing(struct arbiter_session *session, bool closing)
{
    session->facts.closing = closing;
}

void facts_set_flags(struct arbiter_session *session, uint32_t flags, uint64_t ahead_ns)
{
    session->facts.flags = flags;
    session->facts.ahead_ns = ahead_ns;
}

void facts_set_favoured(struct arbiter_session *session, bool is_favoured)
{
    session->facts.is_favoured = is_favoured;
}

void facts_note_step(struct arbiter_session *session)
{
    session->facts.needs_steps = true;
}
