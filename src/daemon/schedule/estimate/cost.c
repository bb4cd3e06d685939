/* What the calls of sessions, and of each of their processes, cost.
 *
 * Processes of a session report on the same time. Their reports add up, and nobody knows for how much of the time they
 * had work at once. So in the turns in which a session is measured, one process at a time has its gate open. What it
 * reports then is about its own calls only, and from then on the session is charged for them by that cost. A process
 * that comes later is taken to be like another one until it has been measured. All this holds if the processes have
 * the same GPUs. Otherwise the session leases its GPUs as a whole, and its processes are measured together. */
#include "daemon/schedule/estimate/estimate.h"

bool estimate_is_measured_singly(const struct arbiter_session *session)
{
    uint64_t gpus = 0;
    if (!is_on(measured_singly) || !has_several_processes(session) || session->facts.needs_steps)
        return false;
    for (const struct arbiter_process *at = session->processes; at; at = at->next) {
        if (gpus && at->facts.gpus && at->facts.gpus != gpus)
            return false;
        gpus |= at->facts.gpus;
    }
    return true;
}

unsigned estimate_measured_count(const struct arbiter_session *session)
{
    unsigned count = 0;
    if (!estimate_is_measured_singly(session))
        return 1;
    for (const struct arbiter_process *at = session->processes; at && count < MEASURED_MOST; at = at->next)
        count++;
    return count;
}

static bool is_sure(const struct arbiter_process *process)
{
    return solo_cost_is_sure(&process->estimate.cost) && !process->estimate.is_like_another;
}

/* The process has work, or had some. */
static bool counts(const struct arbiter_process *process)
{
    return process->estimate.busy_told_ns > 0 || facts_process_is_waiting(process);
}

bool estimate_knows_each(const struct arbiter_session *session)
{
    if (!estimate_is_measured_singly(session))
        return false;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (counts(at) && at->estimate.cost.calls <= 0)
            return false;
    return true;
}

bool estimate_is_sure_of_each(const struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (counts(at) && !is_sure(at))
            return false;
    return true;
}

unsigned estimate_sure_count(const struct arbiter_session *session)
{
    return estimate_is_sure_of_each(session) ? estimate_measured_count(session) - 1 : 0;
}

/* Processes whose cost is not sure come first, then those that were measured longest ago. */
static bool is_measured_before(const struct arbiter_process *a, const struct arbiter_process *b)
{
    return is_sure(a) != is_sure(b) ? is_sure(b) : a->estimate.measured_at < b->estimate.measured_at;
}

bool estimate_may_be_measured(const struct arbiter_process *process)
{
    const struct arbiter_session *session = process->session;
    if (facts_is_any_let_in(session))
        return false;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (facts_process_is_waiting(at) && is_measured_before(at, process))
            return false;
    return true;
}

void estimate_begin_costs(struct arbiter_process *process)
{
    struct arbiter_process *other = process->next;
    process->estimate.watched_at = process->session->arbiter->now;
    if (other && !other->next) { /* `other` was the session's only process so far */
        other->estimate.cost = process->session->estimate.cost;
        other->estimate.is_like_another = true;
    }
    while (other && other->estimate.cost.calls <= 0)
        other = other->next;
    if (!other)
        return;
    process->estimate.cost = other->estimate.cost;
    process->estimate.is_like_another = true;
}

void estimate_end_costs(struct arbiter_session *session)
{
    const struct arbiter_process *left = session->processes;
    if (left && !left->next && left->estimate.cost.calls > 0)
        session->estimate.cost = left->estimate.cost;
}

void estimate_learn_singly(struct arbiter_process *process, struct cost_stretch stretch)
{
    if (stretch.calls < 1 || stretch.busy_ns <= 0)
        return;
    if (process->estimate.is_like_another)
        process->estimate.cost = (struct solo_cost){0};
    process->estimate.is_like_another = false;
    process->estimate.measured_at = process->session->arbiter->now;
    solo_cost_learn(&process->estimate.cost, stretch, !process->session->estimate.is_known);
}

/* Whether each process was measured, and its stretches do not differ much, as far as that is known. */
static bool was_each_measured(const struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (counts(at) && (at->estimate.is_like_another || (isfinite(solo_cost_error(&at->estimate.cost)) &&
                                                            !solo_cost_is_steady(&at->estimate.cost))))
            return false;
    return true;
}

bool estimate_is_charged_by_calls(const struct arbiter_session *session)
{
    if (!has_several_processes(session))
        return solo_cost_is_steady(&session->estimate.cost);
    /* What several processes report one after the other differs in any case. */
    return estimate_knows_each(session) ? was_each_measured(session)
                                        : solo_cost_is_alike(&session->estimate.cost);
}

double estimate_calls_error(const struct arbiter_session *session)
{
    double error = 0;
    if (!has_several_processes(session))
        return fmin(solo_cost_error(&session->estimate.cost), 1);
    if (!estimate_knows_each(session))
        return SEVERAL_ERROR;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (counts(at))
            error = fmax(error, at->estimate.is_like_another ? SEVERAL_ERROR
                                                             : fmin(solo_cost_error(&at->estimate.cost), 1));
    return error;
}

double estimate_cost(const struct arbiter_process *process, double calls)
{
    bool is_own = process->estimate.cost.calls > 0 && estimate_is_measured_singly(process->session);
    return solo_cost_of(is_own ? &process->estimate.cost : &process->session->estimate.cost, calls);
}

void estimate_watch_process(struct arbiter_process *process)
{
    uint64_t now = process->session->arbiter->now;
    double passed_ns = (double)(now - process->estimate.watched_at);
    if (passed_ns <= 0)
        return;
    double busy = (process->estimate.told_busy_ns + process->estimate.gate_ns) / passed_ns,
           used = process->estimate.told_used_ns / passed_ns;
    double weight = weight_in_average(&process->estimate.watched_ns, passed_ns, PROCESS_SMOOTH_NS);
    process->estimate.share_busy += (busy - process->estimate.share_busy) * weight;
    process->estimate.share_used += (used - process->estimate.share_used) * weight;
    process->estimate.watched_at = now;
    process->estimate.told_busy_ns = process->estimate.told_used_ns = process->estimate.gate_ns = 0;
}

/* The part of a GPU's time that the process would use alone: it has its own idle time in company too. */
static double part_alone(const struct arbiter_process *process)
{
    double idle = fmax(1 - process->estimate.share_busy, 0);
    return process->estimate.share_used > 0
               ? process->estimate.share_used / (process->estimate.share_used + idle)
               : 0;
}

/* A program waits for others when it has work and the GPU does not do it. Several processes are weighted by how
 * much of the GPU each would use alone; together they count for no more than all of it. */
double estimate_speed(const struct arbiter_session *session, double passed_ns, double busy, double used)
{
    double got = 0, alone = 0;
    if (!estimate_knows_each(session))
        return 1 - busy + used;
    for (const struct arbiter_process *at = session->processes; at; at = at->next) {
        bool waits = facts_process_is_waiting(at) && at->estimate.told_busy_ns <= 0;
        double its_busy = waits ? 1 : at->estimate.told_busy_ns / passed_ns,
               its_used = at->estimate.told_used_ns / passed_ns;
        alone += part_alone(at);
        got += part_alone(at) * (1 - its_busy + its_used);
    }
    return alone > 0 ? got / fmin(alone, 1) : 1;
}
