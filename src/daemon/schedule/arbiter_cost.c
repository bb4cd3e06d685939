/* What the calls of sessions, and of each of their processes, cost.
 *
 * Processes of a session report on the same time. Their reports add up, and nobody knows for how much of the time they
 * had work at once. So in the turns in which a session is measured, one process at a time has its gate open. What it
 * reports then is about its own calls only, and from then on the session is charged for them by that cost. A process
 * that comes later is taken to be like another one until it has been measured. All this holds if the processes have
 * the same GPUs. Otherwise the session leases its GPUs as a whole, and its processes are measured together. */
#include <math.h>

#include "daemon/schedule/arbiter_state.h"

/* What several processes do at the same time is a guess with this usual error, as a part of what they use. */
#define SEVERAL_ERROR 0.3
/* What processes reported is averaged over this time, since long pieces are reported late. */
#define SMOOTH_NS 2000000000.0
/* If a session has more processes than this, not all of them are measured at once. */
#define MEASURED_MOST 4u

bool arbiter_is_measured_singly(const struct arbiter_session *session)
{
    uint64_t gpus = 0;
    if (!has_several_processes(session) || session->entangled_for)
        return false;
    for (const struct arbiter_process *at = session->processes; at; at = at->next) {
        if (gpus && at->gpus && at->gpus != gpus)
            return false;
        gpus |= at->gpus;
    }
    return true;
}

unsigned arbiter_measured_count(const struct arbiter_session *session)
{
    unsigned count = 0;
    if (!arbiter_is_measured_singly(session))
        return 1;
    for (const struct arbiter_process *at = session->processes; at && count < MEASURED_MOST; at = at->next)
        count++;
    return count;
}

static bool is_sure(const struct arbiter_process *process)
{
    return solo_cost_is_sure(&process->cost) && !process->is_like_another;
}

/* The process has work, or had some. */
static bool counts(const struct arbiter_process *process)
{
    return process->busy_told_ns > 0 || arbiter_process_is_waiting(process);
}

bool arbiter_knows_each(const struct arbiter_session *session)
{
    if (!arbiter_is_measured_singly(session))
        return false;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (counts(at) && at->cost.calls <= 0)
            return false;
    return true;
}

bool arbiter_is_sure_of_each(const struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (counts(at) && !is_sure(at))
            return false;
    return true;
}

unsigned arbiter_sure_count(const struct arbiter_session *session)
{
    return arbiter_is_sure_of_each(session) ? arbiter_measured_count(session) - 1 : 0;
}

/* Processes whose cost is not sure come first, then those that were measured longest ago. */
static bool is_measured_before(const struct arbiter_process *a, const struct arbiter_process *b)
{
    return is_sure(a) != is_sure(b) ? is_sure(b) : a->measured_at < b->measured_at;
}

bool arbiter_may_be_measured(const struct arbiter_process *process)
{
    const struct arbiter_session *session = process->session;
    if (arbiter_is_any_let_in(session))
        return false;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (arbiter_process_is_waiting(at) && is_measured_before(at, process))
            return false;
    return true;
}

void arbiter_begin_costs(struct arbiter_process *process)
{
    struct arbiter_process *other = process->next;
    if (other && !other->next) { /* `other` was the session's only process so far */
        other->cost = process->session->cost;
        other->is_like_another = true;
    }
    while (other && other->cost.calls <= 0)
        other = other->next;
    if (!other)
        return;
    process->cost = other->cost;
    process->is_like_another = true;
}

void arbiter_end_costs(struct arbiter_session *session)
{
    const struct arbiter_process *left = session->processes;
    if (left && !left->next && left->cost.calls > 0)
        session->cost = left->cost;
}

void arbiter_learn_singly(struct arbiter_process *process, struct cost_stretch stretch)
{
    if (stretch.calls < 1 || stretch.busy_ns <= 0)
        return;
    if (process->is_like_another)
        process->cost = (struct solo_cost){0};
    process->is_like_another = false;
    process->measured_at = process->session->arbiter->now;
    solo_cost_learn(&process->cost, stretch, !process->session->is_known);
}

/* Whether each process was measured, and its stretches do not differ much, as far as that is known. */
static bool was_each_measured(const struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (counts(at) && (at->is_like_another ||
                           (isfinite(solo_cost_error(&at->cost)) && !solo_cost_is_steady(&at->cost))))
            return false;
    return true;
}

bool arbiter_is_charged_by_calls(const struct arbiter_session *session)
{
    if (!has_several_processes(session))
        return solo_cost_is_steady(&session->cost);
    /* What several processes report one after the other differs in any case. */
    return arbiter_knows_each(session) ? was_each_measured(session) : solo_cost_is_alike(&session->cost);
}

double arbiter_calls_error(const struct arbiter_session *session)
{
    double error = 0;
    if (!has_several_processes(session))
        return fmin(solo_cost_error(&session->cost), 1);
    if (!arbiter_knows_each(session))
        return SEVERAL_ERROR;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (counts(at))
            error = fmax(error, at->is_like_another ? SEVERAL_ERROR : fmin(solo_cost_error(&at->cost), 1));
    return error;
}

double arbiter_cost(const struct arbiter_process *process, double calls)
{
    bool is_own = process->cost.calls > 0 && arbiter_is_measured_singly(process->session);
    return solo_cost_of(is_own ? &process->cost : &process->session->cost, calls);
}

void arbiter_watch_process(struct arbiter_process *process)
{
    uint64_t now = process->session->arbiter->now;
    double passed_ns = (double)(now - process->watched_at);
    if (passed_ns <= 0)
        return;
    double busy = (process->told_busy_ns + process->gate_ns) / passed_ns,
           used = process->told_used_ns / passed_ns;
    double weight = weight_in_average(&process->watched_ns, passed_ns, SMOOTH_NS);
    process->share_busy += (busy - process->share_busy) * weight;
    process->share_used += (used - process->share_used) * weight;
    process->watched_at = now;
    process->told_busy_ns = process->told_used_ns = process->gate_ns = 0;
}

/* The part of a GPU's time that the process would use alone: it has its own idle time in company too. */
static double part_alone(const struct arbiter_process *process)
{
    double idle = fmax(1 - process->share_busy, 0);
    return process->share_used > 0 ? process->share_used / (process->share_used + idle) : 0;
}

double arbiter_density_of_all(const struct arbiter_session *session)
{
    double idle = 1;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        idle *= 1 - part_alone(at);
    return 1 - idle;
}

/* A program waits for others when it has work and the GPU does not do it. Several processes are weighted by how
 * much of the GPU each would use alone; together they count for no more than all of it. */
double arbiter_speed(const struct arbiter_session *session, double passed_ns, double busy, double used)
{
    double got = 0, alone = 0;
    if (!arbiter_knows_each(session))
        return 1 - busy + used;
    for (const struct arbiter_process *at = session->processes; at; at = at->next) {
        bool waits = arbiter_process_is_waiting(at) && at->told_busy_ns <= 0;
        double its_busy = waits ? 1 : at->told_busy_ns / passed_ns, its_used = at->told_used_ns / passed_ns;
        alone += part_alone(at);
        got += part_alone(at) * (1 - its_busy + its_used);
    }
    return alone > 0 ? got / fmin(alone, 1) : 1;
}
