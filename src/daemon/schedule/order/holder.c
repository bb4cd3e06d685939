/* How long the holder of a turn keeps it. */
#include "daemon/schedule/order/order.h"

uint64_t order_after(const struct arbiter *arbiter, double ns)
{
    return arbiter->now + (ns < 50000 ? UINT64_C(50000) : (uint64_t)ns + 1);
}

/* Whether the session is in a turn in which its processes' gates open one at a time, so that each is measured. */
bool order_takes_one_by_one(const struct arbiter_session *session)
{
    return session->facts.lease == LEASE_EXCLUSIVE && is_measuring(session) &&
           estimate_is_measured_singly(session);
}

/* Whether the holder's turn is taken away before its time is up: the holder is ahead, and a program with gaps that
 * is due waits. Otherwise its bursts would wait for whole turns. */
bool order_is_cut_short(const struct arbiter_session *holder)
{
    for (const struct arbiter_session *at = holder->arbiter->sessions; at && is_on(cut_short); at = at->next)
        if (order_presses(at, holder) && !at->estimate.is_dense && at->order.is_due &&
            !holder->order.is_due && account_owed(holder) < 0)
            return true;
    return false;
}

/* Whether one of the session's own processes waits until the one that is measured makes way. */
static bool is_pressed_by_its_own(const struct arbiter_session *holder)
{
    return order_takes_one_by_one(holder) && facts_has_waiting_process(holder);
}

bool order_is_pressed(const struct arbiter_session *holder)
{
    if (is_pressed_by_its_own(holder))
        return true;
    for (const struct arbiter_session *at = holder->arbiter->sessions; at; at = at->next)
        if (order_presses(at, holder))
            return true;
    return false;
}

bool order_is_waited_for(const struct arbiter_session *holder)
{
    if (is_pressed_by_its_own(holder))
        return true;
    for (const struct arbiter_session *at = holder->arbiter->sessions; at; at = at->next)
        if (order_is_eligible(at) && (at->facts.gpus & holder->facts.held) &&
            (at->role.takes_turns || is_measuring(holder)))
            return true;
    return false;
}

/* How long a turn goes on after its time is up, if no session may take it away: until the holder is ahead of one
 * that waits, at most for another quantum. */
uint64_t order_until_overtaken(const struct arbiter_session *holder)
{
    double ns = (double)estimate_turn_ns(holder->arbiter);
    if (is_on(until_overtaken))
        for (const struct arbiter_session *at = holder->arbiter->sessions; at; at = at->next)
            if (order_is_eligible(at) && at->role.takes_turns && (at->facts.gpus & holder->facts.held) &&
                at->facts.priority == holder->facts.priority &&
                (at->order.lag - holder->order.lag) * holder->account.weight < ns)
                ns = (at->order.lag - holder->order.lag) * holder->account.weight;
    return ns < (double)EXTENSION_MIN_NS ? EXTENSION_MIN_NS : (uint64_t)ns;
}

/* Whether the holder keeps its turn through its gaps until it has caught up, or is silent: it is a program with
 * gaps of its own that is due. Otherwise it would wait for a long piece of another session's work after each gap. */
bool order_keeps_its_gaps(const struct arbiter_session *holder)
{
    return is_on(keeps_gaps) && holder->order.is_due && holder->estimate.is_known &&
           !holder->estimate.is_dense && holder->arbiter->now < facts_silent_at(holder);
}

/* The part of its turn that the holder uses, as far as known. */
static double expected_density(const struct arbiter_session *holder)
{
    bool is_silent = holder->arbiter->now >= facts_silent_at(holder);
    return is_silent || holder->estimate.understates ? 1 : holder->estimate.density;
}

/* What the session's turn has used so far and is not charged for yet. */
static double expected_use(const struct arbiter_session *session)
{
    return session->facts.lease == LEASE_EXCLUSIVE ? facts_uncharged(session) * expected_density(session) : 0;
}

double order_tokens_left(const struct arbiter_session *session)
{
    return session->account.tokens - expected_use(session);
}

/* When the holder of a turn will have used up what its maximum leaves it. */
uint64_t order_until_throttled(const struct arbiter_session *holder)
{
    double gains = (double)holder->facts.share.max / SHARE_WHOLE, density = expected_density(holder);
    uint64_t silent = facts_silent_at(holder), next = silent > holder->arbiter->now ? silent : NEVER;
    if (density > gains)
        next = earliest(next, order_after(holder->arbiter, order_tokens_left(holder) / (density - gains)));
    return next;
}
