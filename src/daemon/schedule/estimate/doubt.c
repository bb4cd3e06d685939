/* Says whose cost is measured again: with all other gates closed, which costs them something. */
#include "daemon/schedule/estimate/estimate.h"

bool estimate_measure_if_doubted(struct arbiter_session *session)
{
    struct session_estimate *estimate = &session->estimate;
    if (!estimate->is_doubted || !estimate->is_known || !is_held(session) || session->facts.closing ||
        backoff_lasts(&estimate->doubted, session->arbiter->now) ||
        (is_on(below_a_guest) && facts_is_below_a_guest(session)))
        return false;
    estimate->is_known = false;
    estimate->measures = MEASURES_TURN * estimate_sure_count(session);
    estimate->measures_most = MEASURES_TURN;
    backoff_begin(&estimate->doubted, session->arbiter->now);
    return true;
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
