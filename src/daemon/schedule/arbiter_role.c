/* What sessions are like, and who takes turns.
 *
 * A call's cost can be measured only while no other session's gate is open: else what the GPU does for others
 * counts as well. That is so in turns without guests, and for a session on its own. Where neither comes about, a
 * session takes a turn in which everybody else's gate is closed.
 *
 * How much of the time a program has no work before the GPU is its own affair, with company and without. So
 * its progress can be told in company too: that part of the time, and the part that its calls take by their
 * cost. */
#include "daemon/schedule/arbiter_state.h"

/* Stretches of time of which a process's report tells something. */
#define STRETCH_NS 15000000.0
#define STRETCH_OF_TURN_NS 2000000.0
/* A program that has work for this part of the time, alone, is dense; one that has it for less is not. */
#define DENSE_RATIO 0.95
#define LIGHT_RATIO 0.88
/* For so long it must be light until it is known as that; and what it counts that it gave a turn back. */
#define LIGHT_NS 100000000.0
#define GAVE_BACK_NS 20000000.0
/* In company, one that uses so little may as well wait for others. */
#define DENSE_USED 0.2
/* Of one that was never seen before. */
#define UNKNOWN_RATIO 0.9
/* Calls that make a cost, and GPU time after which older calls count half. */
#define CALLS_LEAST 4.0
#define COST_MEMORY_NS 3000000000.0
#define MEASURES 4u
#define MEASURE_FIRST_NS UINT64_C(4000000000)
#define MEASURE_MOST_NS UINT64_C(64000000000)
/* What a cost must have changed by to be another. */
#define OTHER_COST 0.2
/* So far behind its minimum, a guest is needy. */
#define NEEDY_NS 40000000.0
/* For so long it takes turns then, and twice as long each next time. */
#define NEEDY_FIRST_NS UINT64_C(4000000000)
#define NEEDY_MOST_NS UINT64_C(64000000000)
/* A guest that uses less than this is not what others lack. */
#define GUEST_LITTLE 0.1
#define GUEST_BEYOND 0.02
#define SMOOTH_NS 500000000.0
#define GAP_MAX_NS 5000000.0

void arbiter_forget_need(struct arbiter_session *session)
{
    session->needy_for = NEEDY_FIRST_NS;
    session->needy_until = session->donor_until = 0;
}

void arbiter_forget(struct arbiter_session *session)
{
    session->is_known = session->is_dense = false;
    session->measures_left = MEASURES;
    session->measure_every = MEASURE_FIRST_NS;
    session->measure_at = session->arbiter->now + MEASURE_FIRST_NS;
    session->cost_ns = session->cost_calls = 0;
    arbiter_forget_need(session);
    session->density = 1;
    session->progress = 1;
}

void arbiter_watch(struct arbiter_session *session)
{
    session->seen = (struct seen){.from = session->arbiter->now};
}

static bool has_cost(const struct arbiter_session *session)
{
    return session->cost_calls >= CALLS_LEAST;
}

static double cost_of(const struct arbiter_session *session, double calls)
{
    return calls * session->cost_ns / session->cost_calls;
}

static void learn_cost(struct arbiter_session *session, double busy_ns, double calls)
{
    if (calls < 1)
        return;
    if (has_cost(session) && calls >= CALLS_LEAST) {
        double change = busy_ns / cost_of(session, calls) - 1;
        if (change > OTHER_COST || change < -OTHER_COST)
            session->measure_every = MEASURE_FIRST_NS;
    }
    if (session->cost_ns > COST_MEMORY_NS) {
        session->cost_ns /= 2;
        session->cost_calls /= 2;
    }
    session->cost_ns += busy_ns;
    session->cost_calls += calls;
}

static void smooth(double *value, double now, double passed)
{
    *value += (now - *value) * (passed < SMOOTH_NS ? passed / SMOOTH_NS : 1);
}

void arbiter_note_progress(struct arbiter_session *session, double part, double passed)
{
    smooth(&session->progress, part, passed);
}

static void set_dense(struct arbiter_session *session, bool is_dense)
{
    if (session->is_dense == is_dense)
        return;
    session->is_dense = is_dense;
    session->light_ns = 0;
    arbiter_forget_need(session);
}

/* A dense program whose threads were not run for a moment leaves the GPU idle, too. */
static void see_light(struct arbiter_session *session, double ns)
{
    session->light_ns += ns;
    if (!session->is_known || session->light_ns >= LIGHT_NS)
        set_dense(session, false);
}

static double bounded(double value)
{
    return value < 0 ? 0 : value > 1 ? 1 : value;
}

/* What the session is like, by the part of the time in which it had work, and used the GPU. */
static void judge(struct arbiter_session *session, double busy, double used, double passed, bool is_alone)
{
    if (used > 0)
        session->density = is_alone ? busy : used / (used + 1 - busy);
    if (busy >= LIGHT_RATIO)
        session->light_ns = 0;
    else
        see_light(session, passed);
    if (is_alone && busy >= (session->is_known ? DENSE_RATIO : UNKNOWN_RATIO))
        set_dense(session, true);
    else if (!is_alone && used > DENSE_USED && busy > DENSE_RATIO && session->density > DENSE_RATIO)
        set_dense(session, true);
}

/* How a guest fares: what it is owed, and whether that may still be told by its cost. */
static void judge_guest(struct arbiter_session *session, double busy, double used, double passed,
                        double whole, bool is_alone)
{
    double promised = (double)session->share.min / SHARE_WHOLE, progress = 1 - busy + used;
    arbiter_note_progress(session, progress, whole);
    arbiter_owe(session, promised * whole - progress * passed);
    if (is_alone || 1 - busy >= promised || session->arbiter->now < session->measure_at)
        return;
    session->is_known = false;
    session->measures_left = 1;
    session->cost_ns /= 4;
    session->cost_calls /= 4;
    if (session->measure_every < MEASURE_MOST_NS)
        session->measure_every *= 2;
}

/* A stretch of time is over. */
static void judge_stretch(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    struct seen seen = session->seen;
    double whole = (double)(arbiter->now - seen.from), passed = whole - seen.still_ns;
    bool is_alone = !seen.has_company && session->company_at <= seen.from, was_dense = session->is_dense;
    arbiter_watch(session);
    if (is_alone)
        learn_cost(session, seen.busy_ns < passed ? seen.busy_ns : passed, seen.calls);
    if (is_alone && !session->is_known && has_cost(session)) {
        session->is_known = true;
        session->measure_at = arbiter->now + session->measure_every;
    }
    if (passed < STRETCH_OF_TURN_NS)
        return;
    double busy = bounded(seen.busy_ns / passed), used = busy;
    if (!is_alone && (session->lease == LEASE_GUEST || !session->is_dense))
        used = has_cost(session) ? bounded(cost_of(session, seen.calls) / passed) : 0;
    used = used < busy ? used : busy;
    judge(session, busy, used, passed, is_alone);
    smooth(&session->share_used, used * passed / whole, whole);
    if (session->lease == LEASE_GUEST)
        judge_guest(session, busy, used, passed, whole, is_alone);
    else if (session->lease == LEASE_EXCLUSIVE && !was_dense)
        arbiter_owe(session, -(1 - busy + used) * passed);
}

void arbiter_learn(struct arbiter_session *session, uint64_t from, double busy_ns, double calls)
{
    bool is_alone = session->company_at <= from;
    if (session->lease == LEASE_GUEST)
        arbiter_charge_guest(session, is_alone || !has_cost(session) ? busy_ns : cost_of(session, calls));
    session->lease_busy_ns += busy_ns;
    session->seen.has_company |= !is_alone;
    session->seen.busy_ns += busy_ns;
    session->seen.calls += calls;
    if ((double)(session->arbiter->now - session->seen.from) >= STRETCH_NS)
        judge_stretch(session);
}

void arbiter_learn_turn(struct arbiter_session *session, bool gave_back)
{
    struct arbiter *arbiter = session->arbiter;
    bool was_measuring = is_measuring(session);
    double passed = (double)(arbiter->now - session->since), gap = passed - session->lease_busy_ns;
    /* What a change of holders costs. */
    if (session->is_dense && !gave_back && passed >= STRETCH_OF_TURN_NS && gap > 0 && gap < GAP_MAX_NS)
        arbiter->gap_ns = arbiter->gap_ns > 0 ? arbiter->gap_ns + (gap - arbiter->gap_ns) / 8 : gap;
    judge_stretch(session);
    if (gave_back)
        see_light(session, GAVE_BACK_NS);
    if (was_measuring && !session->is_known && --session->measures_left == 0) {
        /* It made no calls that tell more, or its agent does not count them. */
        session->is_known = true;
        session->is_dense = session->is_dense || !has_cost(session);
        session->measure_at = arbiter->now + session->measure_every;
    }
}

/* --- Roles ----------------------------------------------------------------------------------------- */

static bool meets(const struct arbiter_session *a, const struct arbiter_session *b)
{
    return a != b && (a->gpus & b->gpus);
}

/* The guests that use more than was promised, where a session does not get what was promised to it. */
static void find_donors(struct arbiter_session *robbed)
{
    struct arbiter *arbiter = robbed->arbiter;
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        double promised = (double)at->share.min / SHARE_WHOLE;
        if (!meets(at, robbed) || at->takes_turns)
            continue;
        if (at->share_used > (promised > GUEST_LITTLE ? promised : GUEST_LITTLE) + GUEST_BEYOND)
            at->donor_until = arbiter->now + NEEDY_FIRST_NS;
    }
}

/* Whether a session of a higher priority wants all of the GPU. */
static bool is_below_a_dense_one(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (meets(at, session) && at->priority > session->priority && at->is_backlogged && at->is_dense)
            return true;
    return false;
}

static bool should_take_turns(struct arbiter_session *session)
{
    uint64_t now = session->arbiter->now;
    if (session->lease == LEASE_GUEST && session->owed_ns >= NEEDY_NS) {
        session->owed_ns = 0;
        session->needy_until = now + session->needy_for;
        session->needy_for *= session->needy_for < NEEDY_MOST_NS ? 2 : 1;
    }
    return !session->is_known || session->is_dense || session->understates || now < session->needy_until ||
           now < session->donor_until || is_below_a_dense_one(session);
}

void arbiter_find_roles(struct arbiter *arbiter)
{
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        bool took_turns = at->takes_turns;
        if (!at->gpus)
            continue;
        at->takes_turns = should_take_turns(at);
        if (at->takes_turns && !took_turns)
            arbiter_join_turns(at);
        else if (!at->takes_turns && took_turns)
            arbiter_leave_turns(at);
        if (at->takes_turns && at->is_backlogged && (at->is_dense ? at->robbed_ns : at->owed_ns) >= ROBBED_NS)
            find_donors(at);
    }
}
