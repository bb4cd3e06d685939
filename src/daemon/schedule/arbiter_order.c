/* Which sessions compete for GPUs, and in which order they get turns. */
#include "daemon/schedule/arbiter.h" /* arbiter_mode() */
#include "daemon/schedule/arbiter_state.h"

/* How far a needy session with gaps must be behind its minimum to be due; and how far another session that takes
 * turns must be behind its own for that to be at its cost. */
#define BEHIND_NS 4000000.0
#define ROBBED_A_LITTLE_NS 20000000.0

static bool is_restricted(const struct arbiter_session *session)
{
    return session->share.min > 0 || is_capped(session) || session->priority != ARBITER_PRIORITY_NORMAL;
}

static uint64_t gpus_of(const struct arbiter_session *session)
{
    uint64_t gpus = 0;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        gpus |= at->gpus;
    return gpus;
}

static void set_free(struct arbiter_session *session)
{
    session->gpus = 0;
    if (session->lease == LEASE_FREE && !session->closing)
        return;
    arbiter_charge(session);
    session->tries = 0;
    arbiter_begin_lease(session, LEASE_FREE);
    for (struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->gate == PROCESS_OPEN)
            arbiter_open_gate(at);
}

/* Shares count on these of the session's GPUs now: the session leases them as a whole. */
static void set_gpus(struct arbiter_session *session, uint64_t gpus)
{
    uint64_t more = gpus & ~session->gpus;
    if (more)
        arbiter_come_back(session, more);
    session->gpus = gpus;
    if (session->lease == LEASE_FREE) {
        session->held = gpus;
        arbiter_begin_closing(session);
    } else if (session->lease == LEASE_GUEST) {
        session->held = gpus;
    } else if (is_held(session) && (gpus & ~session->held)) {
        arbiter_begin_closing(session);
    } else if (is_held(session) && gpus != session->held) {
        arbiter_charge(session);
        session->held = gpus;
    }
}

void arbiter_find_modes(struct arbiter *arbiter)
{
    uint64_t shares = 0;
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        if (is_restricted(session))
            shares |= gpus_of(session);
    uint64_t changed = shares ^ arbiter->shares;
    arbiter->shares = shares;
    FOR_GPUS (gpu, changed)
        arbiter->calls->mode(arbiter->context, (unsigned)gpu,
                             arbiter_mode(arbiter, (unsigned)gpu, arbiter->now));
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        uint64_t gpus = gpus_of(session);
        if (!session->processes)
            session->gpus = 0;
        else if (gpus ? !(gpus & shares) : !is_restricted(session))
            set_free(session);
        else
            set_gpus(session, gpus & shares);
    }
}

static bool has_tokens(struct arbiter_session *session)
{
    if (!is_capped(session))
        return true;
    if (session->tokens <= 0) /* it may have been charged without a lease, too */
        session->is_throttled = true;
    else if (session->tokens >= bucket_start(session))
        session->is_throttled = false;
    return !session->is_throttled;
}

/* Whether a session of a higher priority wants one of its GPUs. */
static bool is_outranked(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (at->priority > session->priority && at->is_backlogged && (at->gpus & session->gpus))
            return true;
    return false;
}

/* Whether another session on its GPUs takes turns and is behind its minimum. */
static bool is_at_cost_of_others(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (at != session && (at->gpus & session->gpus) && at->takes_turns &&
            missing(at) > ROBBED_A_LITTLE_NS)
            return true;
    return false;
}

/* Whether the session takes turns and others keep it from its minimum, whoever they are: 80 ms of it to begin with,
 * then until it has caught up. */
static bool is_robbed(const struct arbiter_session *session)
{
    double robbed = missing(session) - (is_exclusive(session) ? arbiter_uncharged(session) : 0);
    return session->takes_turns && robbed >= (session->is_robbed ? 0 : ROBBED_NS);
}

/* Find out whether the session is due: a minimum is kept, whatever the order is otherwise. A needy session with
 * gaps of its own uses less of the GPU than its turns take. It may have more turns as long as others keep their
 * minima. */
static void find_due(struct arbiter_session *session)
{
    double owed = arbiter_owed(session);
    bool is_needy = arbiter_is_needy(session);
    session->is_robbed = is_robbed(session);
    bool is_outrun = session->is_robbed || is_outranked(session);
    if (owed <= 0 || (!is_outrun && (!is_needy || is_at_cost_of_others(session))))
        session->is_due = false;
    else if (owed >= (is_needy ? BEHIND_NS : (double)arbiter_turn_ns(session->arbiter)))
        session->is_due = true;
}

/* The session with the higher number goes first: those that are due before all others, then by priority. */
static unsigned rank(const struct arbiter_session *session)
{
    return session->priority + (session->is_due ? ARBITER_PRIORITIES : 0);
}

void arbiter_find_backlogged(struct arbiter *arbiter)
{
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        bool was = session->is_backlogged;
        session->is_backlogged = is_held(session) || (arbiter_is_waiting(session) && has_tokens(session));
        if (!session->is_backlogged || was)
            continue;
        session->waits_since = arbiter->now;
    }
    arbiter_weigh(arbiter);
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        if (session->is_backlogged && session->waits_since == arbiter->now && arbiter_is_waiting(session))
            arbiter_come_back(session, session->gpus);
    arbiter_advance_clocks(arbiter);
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        session->lag = arbiter_lag(session);
        find_due(session);
    }
}

bool arbiter_is_eligible(const struct arbiter_session *session)
{
    return session->is_backlogged && session->lease == LEASE_NONE;
}

bool arbiter_precedes(const struct arbiter_session *a, const struct arbiter_session *b)
{
    if (rank(a) != rank(b))
        return rank(a) > rank(b);
    if (arbiter_leaves_the_rest(a) != arbiter_leaves_the_rest(b))
        return arbiter_leaves_the_rest(b);
    if (a->lag != b->lag)
        return a->lag < b->lag;
    return a->waits_since != b->waits_since ? a->waits_since < b->waits_since : a->serial < b->serial;
}

bool arbiter_presses(const struct arbiter_session *waiter, const struct arbiter_session *holder)
{
    if (!arbiter_is_eligible(waiter) || !(waiter->gpus & holder->held))
        return false;
    return waiter->takes_turns ? arbiter_precedes(waiter, holder) : is_measuring(holder);
}
