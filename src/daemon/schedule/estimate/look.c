/* Compares what the daemon itself sees of sessions' work with what their agents say. A session whose agents claim
 * little while NVML shows its processes busy is charged by what NVML shows. It takes turns, which are charged by
 * the clock. */
#include "daemon/schedule/estimate/estimate.h"

void estimate_see(struct arbiter_session *session, unsigned gpu, double part)
{
    session->estimate.used[gpu].seen_part += part;
}

/* Should NVML count waiting for others' slices as busy, all sessions together exceed the whole, and are scaled down to
 * it. */
void estimate_begin_look(struct arbiter *arbiter)
{
    double seen[ARBITER_GPUS] = {0};
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        FOR_GPUS (gpu, at->facts.gpus)
            seen[gpu] += at->estimate.used[gpu].seen_part;
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        FOR_GPUS (gpu, at->facts.gpus)
            at->estimate.used[gpu].seen_part /= fmax(seen[gpu], 1);
}

/* The most that the session used in one of the last four seconds, as a part of a second. The running one counts as
 * it has been so far. */
static double busiest_second(const struct arbiter_session *session, unsigned gpu)
{
    double most = 0;
    for (unsigned back = 0; back < 4; back++) {
        double ns = estimate_used_in_second(session, gpu, back);
        most = ns > most ? ns : most;
    }
    return most / 1e9;
}

bool estimate_compare(struct arbiter_session *session, double *unsaid_ns)
{
    struct session_estimate *estimate = &session->estimate;
    double passed = (double)(session->arbiter->now - estimate->looked_at);
    bool is_time = session->facts.gpus && session->arbiter->now - estimate->looked_at >= LOOKS_APART_NS;
    bool is_doubtful = false, is_believed = true, understated = estimate->understates;
    for (unsigned gpu = 0; gpu < ARBITER_GPUS; gpu++) {
        double part = estimate->used[gpu].seen_part;
        estimate->used[gpu].seen_part = 0;
        if (!is_time || !(session->facts.gpus >> gpu & 1))
            continue;
        double said = busiest_second(session, gpu);
        /* A turn is charged for when a piece of work, or the turn, ends. Who has one for long has said so. */
        if (is_exclusive(session))
            said = fmax(said, fmin(session->facts.open_ns[gpu] / passed, 1));
        /* A session that is charged by the clock may have been charged for that much already, so what counts here
         * is only what its agents said. */
        if (part > 0 && part >= SEEN_TIMES * estimate->said_ns / passed)
            is_believed = false;
        if (part < SEEN_LEAST + said || part < SEEN_TIMES * said)
            continue;
        is_doubtful = true;
        if (estimate->doubts + 1 >= LOOKS_TO_DOUBT)
            unsaid_ns[gpu] = (part - said) * fmin(passed, 6 * (double)LOOKS_APART_NS);
    }
    if (!is_time || !is_on(look))
        return false;
    estimate->doubts = is_doubtful ? estimate->doubts + 1 : 0;
    estimate->trusts = is_believed ? estimate->trusts + 1 : 0;
    if (estimate->doubts >= LOOKS_TO_DOUBT)
        estimate->understates = true;
    else if (estimate->trusts >= 3 * LOOKS_TO_DOUBT)
        estimate->understates = false;
    estimate->looked_at = session->arbiter->now;
    estimate->said_ns = 0;
    return estimate->understates && !understated;
}
