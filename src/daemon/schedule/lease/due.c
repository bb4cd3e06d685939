/* What is due: which leases end now, and which turns begin. It only answers; arbiter.c does it. */
#include "daemon/schedule/lease/lease.h"

enum lease_due lease_due_by_role(const struct arbiter_session *session)
{
    if (session->facts.closing)
        return LEASE_STAYS;
    if (session->facts.lease == LEASE_EXCLUSIVE && !session->role.takes_turns)
        return LEASE_CONVERTS;
    if (session->facts.lease != LEASE_GUEST || !session->role.takes_turns)
        return LEASE_STAYS;
    bool is_one_by_one = is_measuring(session) && estimate_is_measured_singly(session);
    return lease_is_obstructed(session) || is_one_by_one ? LEASE_CLOSES : LEASE_CONVERTS;
}

/* Of a turn that its maximum does not end. */
static enum lease_due due_of_turn(struct arbiter_session *holder)
{
    if (order_is_cut_short(holder))
        return LEASE_CLOSES;
    if (holder->arbiter->now < holder->lease.turn_ends)
        return LEASE_STAYS;
    if (order_is_pressed(holder))
        return LEASE_CLOSES;
    lease_extend(holder, order_until_overtaken(holder));
    return LEASE_STAYS;
}

enum lease_due lease_due_by_time(struct arbiter_session *session)
{
    uint64_t now = session->arbiter->now;
    if (session->facts.closing) {
        lease_note_left(session);
        return now >= session->lease.closes_at ? LEASE_IS_OVERDUE : LEASE_STAYS;
    }
    if (session->facts.lease == LEASE_LOOSE)
        return now >= session->lease.retry_at ? LEASE_CLOSES : LEASE_STAYS;
    if (session->facts.lease != LEASE_GUEST && !lease_is_in_the_way(session))
        return LEASE_STAYS;
    if (is_capped(session) && order_tokens_left(session) <= 0)
        return LEASE_IS_USED_UP;
    return session->facts.lease == LEASE_EXCLUSIVE ? due_of_turn(session) : LEASE_STAYS;
}

/* Some of the session's GPUs are idle. They are kept for it if all sessions that hold the others have to yield to it
 * anyway. Otherwise they go to another session meanwhile. All sessions stand in one order, so two that wait for each
 * other's GPUs cannot both keep one. */
static bool do_all_yield(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (lease_is_in_the_way(at) && (at->facts.held & session->facts.gpus) && !at->facts.closing &&
            !order_precedes(session, at))
            return false;
    return true;
}

static uint64_t gpus_in_the_way(const struct arbiter *arbiter)
{
    uint64_t gpus = 0;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (lease_is_in_the_way(at))
            gpus |= at->facts.held;
    return gpus;
}

enum lease_turn lease_find_turn(const struct arbiter_session *session)
{
    uint64_t taken = gpus_in_the_way(session->arbiter);
    if (!lease_is_obstructed(session))
        return TURN_BEGINS;
    if (!(session->facts.gpus & taken))
        return TURN_AFTER_GUESTS;
    return (session->facts.gpus & ~taken) && do_all_yield(session) ? TURN_AFTER_HOLDERS : TURN_WAITS;
}
