#include "daemon/schedule/lease/lease.h"

#include "base/check.h"

/* Where processes of the session wait for each other's work, the next session has to wait for the end: otherwise
 * each step that they need would wait for a slice of that session's work. */
uint64_t lease_leaves_at(const struct arbiter_session *session)
{
    uint64_t done_at = 0;
    if (!is_on(lead) || !session->facts.closing || session->lease.closes_alone ||
        session->facts.lease != LEASE_EXCLUSIVE || is_measuring(session))
        return NEVER;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->facts.gate == PROCESS_CLOSING && at->lease.done_at > done_at)
            done_at = at->lease.done_at;
    return done_at == NEVER || done_at < ARBITER_LEAD_NS ? done_at : done_at - ARBITER_LEAD_NS;
}

void lease_note_left(struct arbiter_session *session)
{
    session->lease.has_left |= lease_leaves_at(session) <= session->arbiter->now;
}

bool lease_is_in_the_way(const struct arbiter_session *session)
{
    if (session->lease.has_left)
        return false;
    return session->facts.lease == LEASE_EXCLUSIVE ||
           (session->facts.lease == LEASE_FREE && session->facts.closing);
}

/* Whether another session's turn, or open gate, on the session's GPUs forbids it a turn now. What is left of a turn
 * that ends would keep a program of short kernels from the GPU, or spoil a measurement. */
bool lease_is_obstructed(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (at != session && (at->facts.held & session->facts.gpus) &&
            (lease_is_in_the_way(at) || (!session->estimate.is_dense && at->facts.lease == LEASE_EXCLUSIVE) ||
             (is_measuring(session) && at->facts.lease != LEASE_LOOSE)))
            return true;
    return false;
}

void lease_tell(const struct arbiter_session *session, enum arbiter_event event)
{
    const struct arbiter *arbiter = session->arbiter;
    uint64_t ns = session->facts.closing ? arbiter->now - session->lease.closing_at : 0;
    arbiter->calls->event(session->owner, event, ns);
}

/* --- Beginning and end ----------------------------------------------------------------------------- */

static void begin(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    session->lease.leaves = session->lease.has_left = false;
    session->lease.turn_ends = arbiter->now + estimate_turn_ns(arbiter);
    FOR_GPUS (gpu, session->facts.lease == LEASE_EXCLUSIVE ? session->facts.held : 0) {
        struct gpu_lease *on = &arbiter->gpus[gpu].lease;
        if (on->holder == session->serial)
            continue;
        on->handovers += on->holder != 0;
        on->holder = session->serial;
    }
}

void lease_begin(struct arbiter_session *session, enum arbiter_lease lease)
{
    facts_set_lease(session, lease, session->facts.gpus);
    facts_set_flags(session, lease == LEASE_FREE ? WIRE_LEASE_FREE : 0, 0);
    if (lease == LEASE_FREE)
        session->lease.tries = 0;
    begin(session);
}

void lease_convert(struct arbiter_session *session, enum arbiter_lease lease)
{
    GS_CHECK(!session->facts.closing);
    facts_set_lease(session, lease, session->facts.held);
    begin(session);
}

void lease_end(struct arbiter_session *session)
{
    if (session->facts.lease == LEASE_LOOSE) {
        session->lease.tries = 0;
        lease_tell(session, ARBITER_DRAINED);
    }
    facts_set_lease(session, LEASE_NONE, 0);
}

bool lease_is_over(const struct arbiter_session *session)
{
    return session->facts.lease != LEASE_NONE && !facts_is_any_let_in(session);
}

void lease_close(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    uint64_t longest = 0;
    if (session->facts.closing)
        return;
    facts_set_closing(session, true);
    session->lease.closing_at = arbiter->now;
    lease_begin_steps(session);
    for (struct arbiter_process *at = session->processes; at; at = at->next) {
        if (at->facts.gate != PROCESS_OPEN)
            continue;
        if (at->facts.is_away &&
            session->facts.lease == LEASE_FREE) { /* it answers when its memory has moved */
            facts_set_gate(at, PROCESS_OVERDUE);
            arbiter->calls->revoke(at->owner, at->facts.lease, ARBITER_PATIENCE_NS);
            continue;
        }
        lease_ask_to_close(at);
        at->lease.done_at = NEVER;
        lease_expect_drained(at, ARBITER_LEAD_NS);
        longest = at->facts.longest_ns > longest ? at->facts.longest_ns : longest;
        arbiter->calls->revoke(at->owner, at->facts.lease, ARBITER_PATIENCE_NS);
    }
    longest = longest < LONGEST_BELIEVED_NS ? longest : LONGEST_BELIEVED_NS;
    session->lease.closes_at = arbiter->now + longest + 2 * ARBITER_PATIENCE_NS;
}

void lease_leave(struct arbiter_process *process)
{
    struct arbiter_session *session = process->session;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at != process && at->facts.gate == PROCESS_OPEN)
            return; /* the turn goes on for them */
    if (session->facts.lease != LEASE_EXCLUSIVE || session->facts.closing)
        return;
    facts_set_gate(process, PROCESS_CLOSING);
    process->lease.has_answered = true;
    process->lease.done_at = NEVER;
    session->lease.leaves = true;
    lease_close(session);
}

void lease_give_up(struct arbiter_session *session)
{
    lease_tell(session, ARBITER_OVERRUN);
    session->lease.overruns++;
    for (struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->facts.gate == PROCESS_CLOSING)
            facts_set_gate(at, PROCESS_OVERDUE);
}

void lease_become_loose(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    session->lease.tries++;
    if (session->lease.tries <= TRIES_UNDRAINABLE)
        lease_tell(session,
                   session->lease.tries < TRIES_UNDRAINABLE ? ARBITER_UNDRAINED : ARBITER_UNDRAINABLE);
    session->lease.overruns++;
    lease_begin(session, LEASE_LOOSE);
    facts_set_flags(session, WIRE_LEASE_REPORT, 0);
    uint64_t pause = RETRY_UNDRAINABLE_NS;
    if (session->lease.tries < TRIES_UNDRAINABLE)
        pause = ARBITER_PATIENCE_NS << (session->lease.tries - 1);
    session->lease.retry_at = arbiter->now + pause;
    for (struct arbiter_process *at = session->processes; at; at = at->next)
        facts_want_again(at);
}

void lease_extend(struct arbiter_session *session, uint64_t ns)
{
    session->lease.turn_ends = session->arbiter->now + ns;
}

void lease_enter(struct arbiter_process *process)
{
    if (process->facts.gate != PROCESS_CLOSED)
        return;
    facts_set_gate(process, PROCESS_OVERDUE);
    process->session->arbiter->calls->revoke(process->owner, 0, ARBITER_PATIENCE_NS);
}

void lease_note_waiting(struct arbiter *arbiter)
{
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        if (facts_is_waiting(session))
            FOR_GPUS (gpu, session->facts.gpus)
                arbiter->gpus[gpu].lease.waited_at = arbiter->now;
}

/* --- When next ------------------------------------------------------------------------------------- */

uint64_t lease_next(const struct arbiter_session *session)
{
    const struct arbiter *arbiter = session->arbiter;
    double rate = (double)session->facts.share.max / SHARE_WHOLE;
    uint64_t next = NEVER;
    if (session->facts.closing) {
        uint64_t leaves = session->lease.has_left ? NEVER : lease_leaves_at(session);
        return earliest(earliest(leaves, lease_steps_at(session)), session->lease.closes_at);
    }
    /* Nobody may have anything to say: whose burst it is may be stopped, or at work on one long kernel. */
    if (is_still(session))
        next = earliest(next, arbiter->now + STILL_LOOK_NS);
    if (session->facts.lease == LEASE_LOOSE)
        return session->lease.retry_at;
    next = earliest(next, role_next(session));
    if (session->facts.lease == LEASE_EXCLUSIVE && is_capped(session))
        next = earliest(next, order_until_throttled(session));
    if (session->facts.lease == LEASE_EXCLUSIVE && order_keeps_its_gaps(session))
        next = earliest(next, facts_silent_at(session));
    if (lease_is_in_the_way(session) && order_is_waited_for(session))
        next = earliest(next, session->lease.turn_ends > arbiter->now
                                  ? session->lease.turn_ends
                                  : arbiter->now + estimate_turn_ns(arbiter));
    if (facts_is_waiting(session) && session->account.is_throttled)
        next = earliest(next, order_after(arbiter, (bucket_start(session) - session->account.tokens) / rate));
    return next;
}
