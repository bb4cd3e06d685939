/* Whether all sessions together are charged for the time that passed, and who is measured again where they are not. */
#include "daemon/schedule/arbiter_state.h"

/* How often charges are audited, and what they may be wrong by; a session that is busy for less of the time does not
 * count, and one that is for more fills the GPU. */
#define EVERY_NS 2000000000.0
#define WRONG 0.08
#define LITTLE 0.05
#define BUSY 0.97

static bool is_likelier_wrong(const struct arbiter_session *a, const struct arbiter_session *b)
{
    return a->is_doubted != b->is_doubted ? a->is_doubted : a->alone_at < b->alone_at;
}

/* Of those that have work before the GPU often, one that is doubted for itself; else the one that was measured longest ago. It
 * is measured whoever has to wait for that. */
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

/* Costs are wrong where all together were charged more than the time that passed; or less, where somebody always had
 * work. */
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
