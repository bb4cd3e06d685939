/* Work that does not drain since it waits for other work of its session: steps, of one call each, end it. */
#include "daemon/schedule/lease/lease.h"

static bool all_have_answered(const struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->facts.gate == PROCESS_CLOSING && !at->lease.has_answered)
            return false;
    return true;
}

void lease_ask_to_close(struct arbiter_process *process)
{
    struct arbiter_session *session = process->session;
    if (all_have_answered(session))
        session->lease.unanswered_since = session->arbiter->now;
    facts_set_gate(process, PROCESS_CLOSING);
    process->lease.has_answered = false;
}

void lease_note_answer(struct arbiter_process *process)
{
    struct arbiter_session *session = process->session;
    if (process->facts.gate != PROCESS_CLOSING || process->lease.has_answered)
        return;
    process->lease.has_answered = true;
    uint64_t took_ns = session->arbiter->now - session->lease.unanswered_since;
    if (took_ns > ANSWER_NS && all_have_answered(session))
        session->lease.steps_until += took_ns - ANSWER_NS;
}

void lease_begin_steps(struct arbiter_session *session)
{
    session->lease.steps = 0;
    session->lease.steps_until = session->arbiter->now + STEPS_FOR_NS;
    session->lease.closes_alone = is_on(closes_alone) && session->lease.entangled > 0;
    session->lease.entangled -= session->lease.closes_alone;
}

/* How many other processes may have work before the process's GPUs: of its own session (`own`), or of others. */
static uint64_t neighbours(const struct arbiter_process *process, bool own)
{
    uint64_t count = 0;
    for (const struct arbiter_session *session = process->session->arbiter->sessions; session;
         session = session->next) {
        if ((session == process->session) != own)
            continue;
        for (const struct arbiter_process *at = session->processes; at; at = at->next)
            count +=
                at != process && (at->facts.gpus & process->facts.gpus) && at->facts.gate != PROCESS_CLOSED;
    }
    return count;
}

static uint64_t believed_left(const struct arbiter_process *process, uint64_t left_ns)
{
    uint64_t longest =
        process->facts.longest_ns < LONGEST_BELIEVED_NS ? process->facts.longest_ns : LONGEST_BELIEVED_NS;
    uint64_t most_ns = longest + LEFT_MOST_NS;
    return is_on(believed_left) && process->session->lease.closes_alone && left_ns > most_ns ? most_ns
                                                                                             : left_ns;
}

/* For a session that closes alone. The GPU does by turns what its processes have in flight, so none of that is late
 * before all of it should be done. */
static void expect_all_drained(struct arbiter_process *process, uint64_t left_ns)
{
    uint64_t now = process->session->arbiter->now, done_at = now + left_ns;
    if (process->lease.done_at != NEVER && process->lease.done_at > done_at)
        done_at = process->lease.done_at;
    process->lease.stalls_at = done_at + (neighbours(process, false) ? SLICE_NS : LATE_NS);
    for (struct arbiter_process *at = process->session->processes; at; at = at->next)
        if (at->facts.gate == PROCESS_CLOSING && at->lease.stalls_at > now &&
            at->lease.stalls_at < process->lease.stalls_at)
            at->lease.stalls_at = process->lease.stalls_at;
}

void lease_expect_drained(struct arbiter_process *process, uint64_t left_ns)
{
    uint64_t others = neighbours(process, false) + neighbours(process, true);
    process->lease.stalls = false;
    if (process->session->lease.closes_alone)
        expect_all_drained(process, left_ns);
    else
        process->lease.stalls_at = process->session->arbiter->now + (others + 1) * (left_ns + SLICE_NS);
}

void lease_note_left_of(struct arbiter_process *process, uint64_t left_ns)
{
    uint64_t begins_at = process->session->arbiter->now;
    if (left_ns == WIRE_LEFT_ENDLESS) {
        process->lease.stalls = begins_at >= process->lease.stalls_at;
        return;
    }
    /* The processes of a session have the GPU one after the other. */
    for (const struct arbiter_process *at = process->session->processes; at; at = at->next)
        if (at->facts.gate == PROCESS_CLOSING && at->lease.done_at != NEVER && at->lease.done_at > begins_at)
            begins_at = at->lease.done_at;
    left_ns = believed_left(process, left_ns);
    process->lease.done_at = left_ns < NEVER - begins_at ? begins_at + left_ns : NEVER;
    lease_expect_drained(process, left_ns);
}

/* Whether the process told how much work it has left, and its session, having needed steps lately, does not wait
 * until it says that it stalls. */
static bool told_left(const struct arbiter_process *process)
{
    return process->session->lease.closes_alone && process->lease.done_at != NEVER;
}

static bool any_stalls(const struct arbiter_session *session)
{
    uint64_t now = session->arbiter->now;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->facts.gate == PROCESS_CLOSING &&
            (at->lease.stalls || (told_left(at) && now >= at->lease.stalls_at)))
            return true;
    return false;
}

static bool may_step(const struct arbiter_session *session)
{
    return is_on(steps) && session->facts.closing && session->arbiter->now <= session->lease.steps_until &&
           facts_has_waiting_process(session);
}

uint64_t lease_steps_at(const struct arbiter_session *session)
{
    uint64_t next = NEVER;
    if (!may_step(session))
        return NEVER;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->facts.gate == PROCESS_CLOSING && told_left(at) && at->lease.stalls_at < next)
            next = at->lease.stalls_at;
    return next;
}

static void note_entangled(struct arbiter_session *session)
{
    if (!session->lease.entangled_for)
        session->lease.entangled_for = ENTANGLED_CLOSINGS;
    session->lease.entangled = session->lease.entangled_for;
    if (session->lease.entangled_for < 64 * ENTANGLED_CLOSINGS)
        session->lease.entangled_for *= 2;
    facts_note_step(session);
}

void lease_step(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    if (!may_step(session) || !any_stalls(session))
        return;
    if (!session->lease.closes_alone) /* if it does, steps are taken too early to tell anything */
        note_entangled(session);
    for (struct arbiter_process *at = session->processes; at; at = at->next) {
        at->lease.stalls = false;
        if (!facts_process_is_waiting(at))
            continue;
        session->lease.steps++;
        lease_ask_to_close(at);
        facts_let_in_for_a_step(at, ++arbiter->lease_number);
        at->lease.done_at = arbiter->now; /* so little that the next session does not wait for it */
        lease_expect_drained(at, ARBITER_LEAD_NS);
        arbiter->calls->grant(at->owner, at->facts.lease, WIRE_LEASE_STALLS | WIRE_LEASE_STEP,
                              session->facts.ahead_ns);
        arbiter->calls->revoke(at->owner, at->facts.lease, ARBITER_PATIENCE_NS);
    }
}

void lease_take_steps(struct arbiter *arbiter)
{
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        if (session->lease.closes_alone)
            lease_step(session);
}
