/* Says whose cost is measured again: with all other gates closed, which costs them something. */
#include "daemon/schedule/estimate/estimate.h"

bool estimate_measure_if_doubted(struct arbiter_session *session)
{
    struct session_estimate *estimate = &session->estimate;
    if (!estimate->is_doubted || !estimate->is_known || !is_held(session) || session->facts.closing ||
        backoff_lasts(&estimate->doubted, session->arbiter->now) ||
        (is_on(below_a_guest) && !estimate->is_wrong && facts_is_below_a_guest(session)))
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

/* --- Audits ---------------------------------------------------------------------------------------- */

static bool is_likelier_wrong(const struct arbiter_session *a, const struct arbiter_session *b)
{
    return a->estimate.is_doubted != b->estimate.is_doubted ? a->estimate.is_doubted
                                                            : a->estimate.alone_at < b->estimate.alone_at;
}

/* Among the sessions that often have work before the GPU, pick one that is doubted for itself; otherwise the one
 * that was measured longest ago. It is measured, whichever session has to wait for that. */
static void doubt_likeliest(struct arbiter *arbiter, uint64_t gpu)
{
    struct arbiter_session *likeliest = NULL;
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if ((at->facts.held >> gpu & 1) && at->estimate.is_known && !at->facts.closing &&
            at->estimate.share_busy > AUDIT_LITTLE && !backoff_lasts(&at->estimate.doubted, arbiter->now) &&
            (!likeliest || is_likelier_wrong(at, likeliest)))
            likeliest = at;
    if (likeliest)
        likeliest->estimate.is_doubted = likeliest->estimate.is_wrong = true;
}

/* Some cost is wrong if all sessions together were charged more than the time that passed, or less although some
 * session always had work. */
void estimate_audit(struct arbiter *arbiter, uint64_t gpu)
{
    double charged = arbiter->gpus[gpu].estimate.charged_ns,
           passed = (double)(arbiter->now - arbiter->gpus[gpu].estimate.audit_at);
    bool is_full = false;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        if (!(at->facts.held >> gpu & 1))
            continue;
        charged += is_exclusive(at) ? at->estimate.spent_ns : 0;
        is_full |= at->estimate.share_busy > AUDIT_FULL;
    }
    if (passed < AUDIT_EVERY_NS)
        return;
    double part = (charged - arbiter->gpus[gpu].estimate.audited_ns) / passed;
    arbiter->gpus[gpu].estimate.audit_at = arbiter->now;
    arbiter->gpus[gpu].estimate.audited_ns = charged;
    if (is_on(audit) && (part > 1 + AUDIT_WRONG || (is_full && part < 1 - AUDIT_WRONG)))
        doubt_likeliest(arbiter, gpu);
}
