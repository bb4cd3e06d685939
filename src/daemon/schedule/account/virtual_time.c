/* Virtual time: how the sessions that take turns are balanced with each other. */
#include <string.h>

#include "daemon/schedule/account/account.h"

static double quantum(const struct arbiter *arbiter)
{
    return (double)estimate_turn_ns(arbiter);
}

static void weigh(struct arbiter *arbiter)
{
    uint32_t promised[ARBITER_GPUS] = {0};
    unsigned rest[ARBITER_GPUS] = {0};
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        FOR_GPUS (gpu, session->facts.gpus) {
            promised[gpu] += session->facts.share.min;
            rest[gpu] += session->facts.share.min == 0 && session->account.is_backlogged;
        }
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        session->account.weight = session->facts.share.min ? promised_part(session) : 1;
        if (session->facts.share.min)
            continue;
        FOR_GPUS (gpu, session->facts.gpus) {
            double left = 1 - (double)promised[gpu] / SHARE_WHOLE;
            double weight = rest[gpu] > 1 ? left / rest[gpu] : left;
            if (weight < session->account.weight)
                session->account.weight = weight;
        }
        if (session->account.weight < WEIGHT_LEAST)
            session->account.weight = WEIGHT_LEAST;
    }
}

static double virtual_now(const struct arbiter_session *session, uint64_t gpu)
{
    return session->account.vt[gpu] +
           (is_exclusive(session) ? session->facts.open_ns[gpu] / session->account.weight : 0);
}

bool account_leaves_the_rest(const struct arbiter_session *session)
{
    return is_on(leaves_the_rest) && session->estimate.is_known && !session->estimate.is_dense &&
           !session->estimate.understates && session->facts.share.min > 0 && account_owed(session) <= 0;
}

/* Advance the clocks by the sessions of one kind (account_leaves_the_rest()), for GPUs and priorities whose clock
 * was not found before. `found`: on which GPUs there are any, for each priority. */
static void find_clocks(struct arbiter *arbiter, bool leave_the_rest, uint64_t *found)
{
    uint64_t before[ARBITER_PRIORITIES];
    double least[ARBITER_GPUS][ARBITER_PRIORITIES];
    memcpy(before, found, sizeof(before));
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        unsigned priority = session->facts.priority;
        if (!session->account.is_backlogged || !session->account.in_turns ||
            session->facts.lease == LEASE_LOOSE || account_leaves_the_rest(session) != leave_the_rest)
            continue;
        FOR_GPUS (gpu, session->facts.gpus & ~before[priority]) {
            double at = virtual_now(session, gpu);
            if (!(found[priority] & UINT64_C(1) << gpu) || at < least[gpu][priority])
                least[gpu][priority] = at;
            found[priority] |= UINT64_C(1) << gpu;
        }
    }
    for (unsigned priority = 0; priority < ARBITER_PRIORITIES; priority++)
        FOR_GPUS (gpu, found[priority] & ~before[priority])
            if (least[gpu][priority] > arbiter->gpus[gpu].account.clock[priority])
                arbiter->gpus[gpu].account.clock[priority] = least[gpu][priority];
}

/* A session that leaves the rest to others does not hold up their clock meanwhile, and gets no credit for it. */
static void advance_clocks(struct arbiter *arbiter)
{
    uint64_t found[ARBITER_PRIORITIES] = {0};
    find_clocks(arbiter, false, found);
    find_clocks(arbiter, true, found);
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (at->account.is_backlogged && at->account.in_turns && account_leaves_the_rest(at))
            account_come_back(at, at->facts.gpus);
}

void account_come_back(struct arbiter_session *session, uint64_t gpus)
{
    struct arbiter *arbiter = session->arbiter;
    FOR_GPUS (gpu, gpus) {
        double least = arbiter->gpus[gpu].account.clock[session->facts.priority] -
                       quantum(arbiter) / session->account.weight;
        if (session->account.vt[gpu] < least)
            session->account.vt[gpu] = least;
        estimate_first_second(session, gpu);
    }
}

double account_lag(const struct arbiter_session *session)
{
    bool is_first = true;
    double lag = 0;
    FOR_GPUS (gpu, session->facts.gpus) {
        double ahead =
            virtual_now(session, gpu) - session->arbiter->gpus[gpu].account.clock[session->facts.priority];
        if (is_first || ahead > lag)
            lag = ahead;
        is_first = false;
    }
    return lag;
}

/* A session never waits for more than seventy turns of others. A turn counts as long as the quantum, or as the
 * session's own longest piece of work if that is longer. */
double account_most_ahead(const struct arbiter_session *session)
{
    double turn = fmax(quantum(session->arbiter), facts_longest_piece(session));
    return is_on(ahead_most) ? AHEAD_TURNS_MOST * turn : INFINITY;
}

/* Advance the session's virtual time. What it takes while others want nothing is not held against it later: it gets
 * ahead by two turns at most, or by the lease that goes on if that is longer. A session that is ahead by more stays
 * where it is. */
void account_advance(struct arbiter_session *session, uint64_t gpu, double held_ns)
{
    double *virtual = &session->account.vt[gpu];
    double lease = (double)(session->arbiter->now - session->facts.since);
    double ahead = !is_on(ahead_turns)
                       ? INFINITY
                       : fmax(lease, AHEAD_TURNS * quantum(session->arbiter)) / session->account.weight;
    double most = session->arbiter->gpus[gpu].account.clock[session->facts.priority] +
                  fmin(ahead, account_most_ahead(session));
    double vt = *virtual + held_ns / session->account.weight;
    if (*virtual < most)
        *virtual = vt < most ? vt : most;
}

static bool has_tokens(struct arbiter_session *session)
{
    if (!is_capped(session))
        return true;
    if (session->account.tokens <= 0) /* it may have been charged without a lease, too */
        session->account.is_throttled = true;
    else if (session->account.tokens >= (is_on(throttle_refill) ? bucket_start(session) : 1))
        session->account.is_throttled = false;
    return !session->account.is_throttled;
}

void account_find_backlogged(struct arbiter *arbiter)
{
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        bool was = session->account.is_backlogged;
        session->account.is_backlogged =
            is_held(session) || (facts_is_waiting(session) && has_tokens(session));
        if (!session->account.is_backlogged || was)
            continue;
        session->account.waits_since = arbiter->now;
    }
    weigh(arbiter);
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        if (session->account.is_backlogged && session->account.waits_since == arbiter->now &&
            facts_is_waiting(session))
            account_come_back(session, session->facts.gpus);
    advance_clocks(arbiter);
}
