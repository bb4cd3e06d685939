#include "daemon/schedule/lease/lease.h"

void lease_open_gate(struct arbiter_process *process)
{
    struct arbiter_session *session = process->session;
    struct arbiter *arbiter = session->arbiter;
    facts_let_in(process, session->facts.lease == LEASE_FREE ? 0 : ++arbiter->lease_number);
    arbiter->calls->grant(process->owner, process->facts.lease, session->facts.flags,
                          session->facts.ahead_ns);
}

static void set_flags(struct arbiter_session *session, uint32_t flags, uint64_t ahead_ns)
{
    if (session->facts.flags == flags && session->facts.ahead_ns == ahead_ns)
        return;
    bool is_to_measure = flags & ~session->facts.flags & WIRE_LEASE_MEASURE;
    facts_set_flags(session, flags, ahead_ns);
    for (struct arbiter_process *at = session->processes; at; at = at->next) {
        if (at->facts.gate != PROCESS_OPEN)
            continue;
        if (is_to_measure)
            facts_begin_afresh(at);
        session->arbiter->calls->grant(at->owner, at->facts.lease, flags, ahead_ns);
    }
}

/* Whether every session that may come next can begin a little before this session's turn has ended
 * (lease_leaves_at()). */
static bool is_overlapped(const struct arbiter_session *session)
{
    if (session->facts.lease != LEASE_EXCLUSIVE || is_measuring(session) || has_several_processes(session))
        return false;
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (at != session && (at->facts.gpus & session->facts.gpus) && at->role.takes_turns &&
            (!at->estimate.is_dense || is_measuring(at)))
            return false;
    return true;
}

/* The flags that a session's lease is granted with, which depend on the other sessions there; and in `ahead_ns` how
 * much work may be before a stream. */
static uint32_t flags_of(struct arbiter_session *session, uint64_t *ahead_ns)
{
    uint32_t flags = WIRE_LEASE_REPORT;
    *ahead_ns = is_on(ahead_bound_bucket) && is_capped(session) && order_tokens_left(session) < BUCKET_NS / 2
                    ? ARBITER_LEAD_NS
                    : 0;
    if (session->facts.lease == LEASE_EXCLUSIVE && (is_capped(session) || order_is_waited_for(session)) &&
        !order_keeps_its_gaps(session))
        flags |= WIRE_LEASE_WANTED;
    if (session->processes && session->processes->next)
        flags |= WIRE_LEASE_STALLS;
    if (session->facts.lease == LEASE_EXCLUSIVE && is_measuring(session))
        flags |= WIRE_LEASE_MEASURE;
    if (is_overlapped(session))
        flags |= WIRE_LEASE_OVERLAPS;
    for (struct arbiter_session *at = session->arbiter->sessions; at; at = at->next) {
        if (at == session || !(at->facts.gpus & session->facts.gpus))
            continue;
        flags |=
            session->facts.lease == LEASE_GUEST || at->facts.lease == LEASE_GUEST ? WIRE_LEASE_COMPANY : 0;
        if (at->role.takes_turns && at->estimate.is_known && !at->estimate.is_dense && !*ahead_ns &&
            is_on(ahead_bound_gaps))
            *ahead_ns = ARBITER_LEAD_NS;
        if (at->facts.priority == session->facts.priority)
            continue;
        if (at->facts.priority < session->facts.priority) {
            flags |= session->facts.lease == LEASE_GUEST && role_is_favoured(session) ? WIRE_LEASE_BURSTS : 0;
            continue;
        }
        if (is_on(ahead_below))
            *ahead_ns = AHEAD_BELOW_NS;
        if (is_on(still) && at->facts.lease == LEASE_GUEST && !at->facts.closing && facts_has_burst(at) &&
            !session->order.is_due && role_is_favoured(at)) {
            flags |= WIRE_LEASE_STILL;
            facts_set_favoured(at, true);
        }
    }
    return flags;
}

void lease_open_gates(struct arbiter *arbiter)
{
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        facts_set_favoured(session, false);
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        if (session->facts.lease == LEASE_NONE || session->facts.closing)
            continue;
        if (is_held(session)) {
            uint64_t ahead_ns;
            uint32_t flags = flags_of(session, &ahead_ns);
            set_flags(session, flags, ahead_ns);
        }
        for (struct arbiter_process *at = session->processes; at; at = at->next)
            if ((facts_process_is_waiting(at) &&
                 (!order_takes_one_by_one(session) || estimate_may_be_measured(at))) ||
                (at->facts.gate == PROCESS_CLOSED && session->facts.lease == LEASE_FREE))
                lease_open_gate(at);
    }
}
