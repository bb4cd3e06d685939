#include "daemon/schedule/order/order.h"

#include <stdlib.h>

/* Whether a session of a higher priority wants one of its GPUs. */
static bool is_outranked(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (at->facts.priority > session->facts.priority && at->account.is_backlogged &&
            (at->facts.gpus & session->facts.gpus))
            return true;
    return false;
}

/* Whether another session on its GPUs takes turns and is behind its minimum. */
static bool is_at_cost_of_others(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (at != session && (at->facts.gpus & session->facts.gpus) && at->role.takes_turns &&
            missing(at) > NEEDY_NS / 2)
            return true;
    return false;
}

/* Whether the session takes turns and others keep it from its minimum, whoever they are: 80 ms of it to begin with,
 * then until it has caught up. */
static bool is_robbed(const struct arbiter_session *session)
{
    double robbed = missing(session) - (is_exclusive(session) ? facts_uncharged(session) : 0);
    return is_on(robbed_due) && session->role.takes_turns &&
           robbed >= (session->order.is_robbed ? 0 : 2 * NEEDY_NS);
}

/* Find out whether the session is due: a minimum is kept, whatever the order is otherwise. A needy session with
 * gaps of its own uses less of the GPU than its turns take. It may have more turns as long as others keep their
 * minima. */
static void find_due(struct arbiter_session *session)
{
    double owed = account_owed(session);
    bool is_needy = role_is_needy(session);
    session->order.is_robbed = is_robbed(session);
    bool is_outrun = session->order.is_robbed || (is_on(outranked_due) && is_outranked(session));
    if (owed <= 0 || (!is_outrun && (!is_needy || (is_on(at_cost) && is_at_cost_of_others(session)))))
        session->order.is_due = false;
    else if (owed >= (is_needy ? NEEDY_NS / 10 : (double)estimate_turn_ns(session->arbiter)))
        session->order.is_due = true;
}

/* The session with the higher number goes first: those that are due before all others, then by priority. */
static unsigned rank(const struct arbiter_session *session)
{
    return session->facts.priority + (session->order.is_due ? ARBITER_PRIORITIES : 0);
}

void order_find(struct arbiter *arbiter)
{
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        at->order.lag = account_lag(at);
        find_due(at);
    }
}

bool order_is_eligible(const struct arbiter_session *session)
{
    return session->account.is_backlogged && session->facts.lease == LEASE_NONE;
}

bool order_precedes(const struct arbiter_session *a, const struct arbiter_session *b)
{
    if (rank(a) != rank(b))
        return rank(a) > rank(b);
    if (account_leaves_the_rest(a) != account_leaves_the_rest(b))
        return account_leaves_the_rest(b);
    if (a->order.lag != b->order.lag)
        return a->order.lag < b->order.lag;
    return a->account.waits_since != b->account.waits_since ? a->account.waits_since < b->account.waits_since
                                                            : a->serial < b->serial;
}

bool order_presses(const struct arbiter_session *waiter, const struct arbiter_session *holder)
{
    if (!order_is_eligible(waiter) || !(waiter->facts.gpus & holder->facts.held))
        return false;
    return waiter->role.takes_turns ? order_precedes(waiter, holder) : is_measuring(holder);
}

static int compare(const void *a, const void *b)
{
    const struct arbiter_session *const *left = a, *const *right = b;
    return order_precedes(*left, *right) ? -1 : order_precedes(*right, *left);
}

unsigned order_sort(struct arbiter *arbiter)
{
    unsigned count = 0;
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (order_is_eligible(at))
            arbiter->sorted[count++] = at;
    if (count > 1)
        qsort(arbiter->sorted, count, sizeof(struct arbiter_session *), compare);
    return count;
}
