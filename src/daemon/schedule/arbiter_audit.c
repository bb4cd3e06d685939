/* Audits whether all sessions together are charged for the time that passed, and picks the session that is measured
 * again where they are not. */
#include "daemon/schedule/arbiter_state.h"

/* How often charges are audited, and the part by which they may be wrong. A session that is busy for less than
 * LITTLE of the time is not suspected; one that is busy for more than BUSY fills the GPU. */
#define EVERY_NS 2000000000.0
#define WRONG 0.08
#define LITTLE 0.05
#define BUSY 0.97

static bool is_likelier_wrong(const struct arbiter_session *a, const struct arbiter_session *b)
{
    return a->is_doubted != b->is_doubted ? a->is_doubted : a->alone_at < b->alone_at;
}

/* Among the sessions that often have work before the GPU, pick one that is doubted for itself; otherwise the one
 * that was measured longest ago. It is measured, whichever session has to wait for that. */
static void doubt_likeliest(struct arbiter *arbiter, uint64_t gpu)
{
    struct arbiter_session *likeliest = NULL;
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if ((at->held >> gpu & 1) && at->is_known && !at->closing && at->share_busy > LITTLE &&
            arbiter->now >= at->doubt_at && (!likeliest || is_likelier_wrong(at, likeliest)))
            likeliest = at;
    if (likeliest)
        likeliest->is_doubted = likeliest->is_wrong = true;
}

/* Some cost is wrong if all sessions together were charged more than the time that passed, or less although some
 * session always had work. */
void arbiter_audit(struct arbiter *arbiter, uint64_t gpu)
{
    double charged = arbiter->gpus[gpu].charged_ns,
           passed = (double)(arbiter->now - arbiter->gpus[gpu].audit_at);
    bool is_full = false;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        if (!(at->held >> gpu & 1))
            continue;
        charged += is_exclusive(at) ? at->spent_ns : 0;
        is_full |= at->share_busy > BUSY;
    }
    if (passed < EVERY_NS)
        return;
    double part = (charged - arbiter->gpus[gpu].audited_ns) / passed;
    arbiter->gpus[gpu].audit_at = arbiter->now;
    arbiter->gpus[gpu].audited_ns = charged;
    if (part > 1 + WRONG || (is_full && part < 1 - WRONG))
        doubt_likeliest(arbiter, gpu);
}
