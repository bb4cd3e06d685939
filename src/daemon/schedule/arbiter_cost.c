/* What calls cost, of sessions and of their processes.
 *
 * What several processes of a session tell of the same time adds up, and how much of it they had work at the same time nobody knows. So
 * in the turns in which a session is measured, one process at a time has its gate open: what it tells then is of its calls alone, and
 * what it is charged for from then on. One that comes later is taken to be like another until it has been measured. */
#include <math.h>

#include "daemon/schedule/arbiter_state.h"

/* What several processes have at the same time is a guess, which is wrong by this part of what they use, usually. */
#define SEVERAL_ERROR 0.3
/* Of more of them, not each is measured at once. */
#define MEASURED_MOST 4u

bool arbiter_is_measured_singly(const struct arbiter_session *session)
{
    uint64_t gpus = 0;
    if (!has_several_processes(session) || session->entangled_for)
        return false;
    for (const struct arbiter_process *at = session->processes; at; at = at->next) {
        if (gpus & at->gpus)
            return true;
        gpus |= at->gpus;
    }
    return false;
}

static bool has_open_gate(const struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->gate == PROCESS_OPEN || at->gate == PROCESS_CLOSING)
            return true;
    return false;
}

unsigned arbiter_measured_count(const struct arbiter_session *session)
{
    unsigned count = 0;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        count++;
    if (!arbiter_is_measured_singly(session))
        return 1;
    return count < MEASURED_MOST ? count : MEASURED_MOST;
}

/* Those of which little is known come first, then those that were measured longest ago. */
static bool is_measured_before(const struct arbiter_process *a, const struct arbiter_process *b)
{
    bool is_sure = solo_cost_is_sure(&a->cost) && !a->is_like_another;
    if (is_sure != (solo_cost_is_sure(&b->cost) && !b->is_like_another))
        return !is_sure;
    return a->measured_at < b->measured_at;
}

bool arbiter_may_be_measured(const struct arbiter_process *process)
{
    const struct arbiter_session *session = process->session;
    if (has_open_gate(session))
        return false;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (arbiter_process_is_waiting(at) && is_measured_before(at, process))
            return false;
    return true;
}

void arbiter_take_after_others(struct arbiter_process *process)
{
    for (const struct arbiter_process *at = process->session->processes; at; at = at->next)
        if (at != process && solo_cost_is_sure(&at->cost)) {
            process->cost = at->cost;
            process->is_like_another = true;
            return;
        }
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

bool arbiter_knows_each(const struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->busy_told_ns > 0 && !solo_cost_is_sure(&at->cost))
            return false;
    return has_several_processes(session);
}

static bool is_each_steady(const struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->busy_told_ns > 0 && (at->is_like_another || !solo_cost_is_steady(&at->cost)))
            return false;
    return true;
}

bool arbiter_is_charged_by_calls(const struct arbiter_session *session)
{
    if (!has_several_processes(session))
        return solo_cost_is_steady(&session->cost);
    /* What several tell one after the other differs in any case. */
    return arbiter_knows_each(session) ? is_each_steady(session) : solo_cost_is_alike(&session->cost);
}

double arbiter_calls_error(const struct arbiter_session *session)
{
    double error = 0;
    if (!has_several_processes(session))
        return fmin(solo_cost_error(&session->cost), 1);
    if (!arbiter_knows_each(session))
        return SEVERAL_ERROR;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->busy_told_ns > 0)
            error = fmax(error, at->is_like_another ? SEVERAL_ERROR : fmin(solo_cost_error(&at->cost), 1));
    return error;
}

double arbiter_cost(const struct arbiter_process *process, double calls)
{
    bool is_own = has_several_processes(process->session) && solo_cost_is_sure(&process->cost);
    return solo_cost_of(is_own ? &process->cost : &process->session->cost, calls);
}
