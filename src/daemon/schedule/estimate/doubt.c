/* Says whose cost is measured again: with all other gates closed, which costs them something. */
#include "daemon/schedule/estimate/estimate.h"

/* Whether the session is a guest above sessions of lower priorities. To be measured, it would have to wait until
 * those have left. */
static bool is_guest_above_others(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (meets(at, session) && at->facts.priority < session->facts.priority &&
            session->facts.lease == LEASE_GUEST)
            return true;
    return false;
}

/* Have the session measured, with all other gates closed, if it is time for that. */
static bool measure_again(struct arbiter_session *session, struct backoff *backoff)
{
    if (session->facts.closing || backoff_lasts(backoff, session->arbiter->now) ||
        (is_on(below_a_guest) && facts_is_below_a_guest(session)))
        return false;
    session->estimate.is_known = false;
    session->estimate.measures = MEASURES_TURN * estimate_sure_count(session);
    session->estimate.measures_most = MEASURES_TURN;
    backoff_begin(backoff, session->arbiter->now);
    return true;
}

bool estimate_measure_for_minimum(struct arbiter_session *session)
{
    struct session_estimate *estimate = &session->estimate;
    return is_on(measure_for_minimum) && (!is_on(guest_above_others) || !is_guest_above_others(session)) &&
           measure_again(session, &estimate->measured);
}

bool estimate_measure_if_doubted(struct arbiter_session *session)
{
    struct session_estimate *estimate = &session->estimate;
    return estimate->is_doubted && estimate->is_known && is_held(session) &&
           measure_again(session, &estimate->doubted);
}

void estimate_doubt(struct arbiter_session *session)
{
    if (!is_on(doubt_processes))
        return;
    uint64_t soon = session->arbiter->now + DOUBT_FIRST_NS;
    session->estimate.is_doubted = true;
    session->estimate.dense_after_ns = DENSE_NS;
    session->estimate.doubted =
        (struct backoff){earliest(session->estimate.doubted.until, soon), DOUBT_FIRST_NS};
}
