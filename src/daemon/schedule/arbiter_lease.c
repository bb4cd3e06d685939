/* Leases and gates: what it means to give one, to take one away, and to have one returned. */
#include "daemon/schedule/arbiter_state.h"

/* The longest piece of work that a process can have others wait for. */
#define LONGEST_BELIEVED_NS UINT64_C(2000000000)
/* Between tries to close a session that did not drain: doubled each time. */
#define RETRY_NS UINT64_C(100000000)
#define RETRY_MAX_NS UINT64_C(5000000000)
#define RETRY_UNDRAINABLE_NS UINT64_C(10000000000)
/* A lease of which this part was busy is one of a program that always has work. Shorter ones tell nothing. */
#define DENSE_RATIO 0.9
#define JUDGED_NS 2000000.0
#define GAP_MAX_NS 5000000.0

/* --- Gates ----------------------------------------------------------------------------------------- */

uint64_t arbiter_leaves_at(const struct arbiter_session *session)
{
    uint64_t done_at = 0;
    if (!session->closing || session->lease != LEASE_EXCLUSIVE)
        return NEVER;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->gate == PROCESS_CLOSING && at->done_at > done_at)
            done_at = at->done_at;
    return done_at == NEVER || done_at < ARBITER_LEAD_NS ? done_at : done_at - ARBITER_LEAD_NS;
}

bool arbiter_is_in_the_way(const struct arbiter_session *session)
{
    if (arbiter_leaves_at(session) <= session->arbiter->now)
        return false;
    return session->lease == LEASE_EXCLUSIVE || session->lease == LEASE_OVERLAP ||
           (session->lease == LEASE_FREE && session->closing);
}

bool arbiter_has_waiting_process(const struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->wants && at->gate == PROCESS_CLOSED)
            return true;
    return false;
}

bool arbiter_is_waiting(const struct arbiter_session *session)
{
    return session->lease == LEASE_NONE && arbiter_has_waiting_process(session);
}

static bool has_gate(const struct arbiter_session *session, enum arbiter_gate gate)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->gate == gate)
            return true;
    return false;
}

void arbiter_open_gate(struct arbiter_process *process)
{
    struct arbiter_session *session = process->session;
    struct arbiter *arbiter = session->arbiter;
    process->gate = PROCESS_OPEN;
    process->wants = false;
    process->reported_at = arbiter->now;
    process->lease = session->lease == LEASE_FREE ? 0 : ++arbiter->lease_number;
    arbiter->calls->grant(process->owner, process->lease, session->flags);
}

void arbiter_raise_flags(struct arbiter_session *session, uint32_t flags)
{
    if ((session->flags | flags) == session->flags)
        return;
    session->flags |= flags;
    for (struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->gate == PROCESS_OPEN)
            session->arbiter->calls->grant(at->owner, at->lease, session->flags);
}

void arbiter_tell(const struct arbiter_session *session, enum arbiter_event event)
{
    const struct arbiter *arbiter = session->arbiter;
    uint64_t ns = session->closing ? arbiter->now - session->closing_at : 0;
    arbiter->calls->event(session->owner, event, ns);
}

/* --- Leases ---------------------------------------------------------------------------------------- */

void arbiter_begin_lease(struct arbiter_session *session, enum arbiter_lease lease)
{
    struct arbiter *arbiter = session->arbiter;
    session->lease = lease;
    session->closing = false;
    session->held = session->gpus;
    session->flags = lease == LEASE_FREE ? WIRE_LEASE_FREE : 0;
    session->since = session->charged_at = arbiter->now;
    session->turn_ends = arbiter->now + arbiter_quantum(arbiter);
    session->busy_ns = 0;
    FOR_GPUS (gpu, session->held) {
        session->use[gpu].open_ns = 0;
        if (lease != LEASE_EXCLUSIVE || arbiter->gpus[gpu].holder == session->serial)
            continue;
        arbiter->gpus[gpu].handovers += arbiter->gpus[gpu].holder != 0;
        arbiter->gpus[gpu].holder = session->serial;
    }
}

void arbiter_throttle(struct arbiter_session *session)
{
    session->is_throttled = is_capped(session) && session->tokens <= 0;
}

/* How busy an exclusive lease was says whether the session can share its turns, and what a change costs. */
static void judge(struct arbiter_session *session, double passed, double busy, bool gave_back)
{
    struct arbiter *arbiter = session->arbiter;
    if (gave_back) {
        session->is_sparse = true;
    } else if (passed >= JUDGED_NS) {
        session->is_sparse = busy < DENSE_RATIO;
        double gap = passed * (1 - busy);
        if (!session->is_sparse && gap < GAP_MAX_NS)
            arbiter->gap_ns = arbiter->gap_ns > 0 ? arbiter->gap_ns + (gap - arbiter->gap_ns) / 8 : gap;
    }
}

static void end_lease(struct arbiter_session *session, bool gave_back)
{
    struct arbiter *arbiter = session->arbiter;
    if (session->lease == LEASE_OVERLAP)
        arbiter_charge_overlaps(arbiter);
    double passed = (double)(arbiter->now - session->charged_at);
    double busy = arbiter_charge(session);
    if (session->lease == LEASE_EXCLUSIVE && busy >= 0)
        judge(session, passed, busy, gave_back);
    if (session->lease == LEASE_LOOSE) {
        session->tries = 0;
        arbiter_tell(session, ARBITER_DRAINED);
    }
    session->lease = LEASE_NONE;
    session->closing = false;
    session->held = 0;
    arbiter_throttle(session);
}

void arbiter_end_lease_if_returned(struct arbiter_session *session, bool gave_back)
{
    if (session->lease != LEASE_NONE && !has_gate(session, PROCESS_OPEN) &&
        !has_gate(session, PROCESS_CLOSING))
        end_lease(session, gave_back);
}

void arbiter_begin_closing(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    uint64_t longest = 0;
    if (session->closing)
        return;
    session->closing = true;
    session->closing_at = arbiter->now;
    for (struct arbiter_process *at = session->processes; at; at = at->next) {
        if (at->gate != PROCESS_OPEN)
            continue;
        at->gate = PROCESS_CLOSING;
        at->done_at = NEVER;
        longest = at->longest_ns > longest ? at->longest_ns : longest;
        arbiter->calls->revoke(at->owner, at->lease, ARBITER_PATIENCE_NS);
    }
    longest = longest < LONGEST_BELIEVED_NS ? longest : LONGEST_BELIEVED_NS;
    session->closes_at = arbiter->now + longest + ARBITER_PATIENCE_NS + ARBITER_GRACE_NS;
    arbiter_end_lease_if_returned(session, false);
}

void arbiter_become_loose(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    if (session->lease == LEASE_OVERLAP)
        arbiter_charge_overlaps(arbiter);
    arbiter_charge(session);
    session->tries++;
    if (session->tries <= TRIES_UNDRAINABLE)
        arbiter_tell(session, session->tries < TRIES_UNDRAINABLE ? ARBITER_UNDRAINED : ARBITER_UNDRAINABLE);
    session->overruns++;
    arbiter_begin_lease(session, LEASE_LOOSE);
    session->flags = WIRE_LEASE_REPORT;
    uint64_t pause = RETRY_UNDRAINABLE_NS;
    if (session->tries < TRIES_UNDRAINABLE)
        pause = RETRY_NS << (session->tries - 1);
    session->retry_at =
        arbiter->now + (pause < RETRY_MAX_NS || session->tries >= TRIES_UNDRAINABLE ? pause : RETRY_MAX_NS);
    for (struct arbiter_process *at = session->processes; at; at = at->next)
        at->wants = true;
}
