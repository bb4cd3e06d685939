/* Learns what sessions are like, and says which of them take turns.
 *
 * A call's cost can be measured only while no other session's gate is open: otherwise what the GPU does for others
 * counts as well. That is so in turns without guests, and while a session is alone. Where neither happens, the
 * session takes a turn in which all other gates are closed.
 *
 * How much of the time a program has no work before the GPU is its own affair, with company and without. So its
 * progress is known in company too: that part of the time, plus the part that its calls take by their cost. */
#include <math.h>

#include "daemon/schedule/arbiter_state.h"

/* How long a stretch of time is that is judged, and how long it lasts at most while processes still have to report;
 * how far apart their reports may be; and the shortest stretch at the end of a turn that is judged. */
#define STRETCH_NS UINT64_C(15000000)
#define STRETCH_MOST_NS (2 * STRETCH_NS)
#define TELL_TOGETHER_NS (WIRE_REPORT_NS / 2)
#define STRETCH_OF_TURN_NS 2000000.0
/* A program that, alone, has work for DENSE_RATIO of the time is dense; one that has it for less than LIGHT_RATIO
 * is not. */
#define DENSE_RATIO 0.95
#define LIGHT_RATIO 0.88
/* A session must look dense for this long before it counts as dense: bursts do not. As a guest it must do so for twice
 * as long each next time, up to DENSE_MOST_NS, unless it stayed dense for SETTLED_NS: otherwise it had many requests
 * at once. Once it stayed dense, how it fared before as a guest says nothing any more. */
#define DENSE_NS 40000000.0
#define DENSE_MOST_NS 320000000.0
#define SETTLED_NS UINT64_C(500000000)
/* A session must look light for this long before it counts as not dense; and how much of that a turn that it gave
 * back counts. */
#define LIGHT_NS 100000000.0
#define GAVE_BACK_NS 20000000.0
/* In company, a session that uses less than this may just as well be waiting for others. */
#define DENSE_USED 0.2
/* DENSE_RATIO for a session that was never seen before. */
#define UNKNOWN_RATIO 0.9
/* The allowance of turns in which a session is measured. A whole turn takes MEASURES_TURN of it, and a turn that
 * the session gives back takes 1, since it costs others little. */
#define MEASURES 12u
#define MEASURES_TURN 3u
#define MEASURE_TURN_NS UINT64_C(40000000)
#define MEASURE_FIRST_NS UINT64_C(4000000000)
#define MEASURE_MOST_NS UINT64_C(64000000000)
/* How long until a doubted session is measured again; doubled each time that it had not changed. */
#define DOUBT_FIRST_NS UINT64_C(2000000000)
/* A cost that was found to have changed is measured once more after this. */
#define CONFIRM_NS UINT64_C(50000000)
#define SMOOTH_NS 500000000.0
#define GAP_MAX_NS 5000000.0
#define LATE_MOST_NS 1000000000.0

static void forget_dense_time(struct arbiter_session *session)
{
    session->dense_ns = session->dense_used_ns = session->dense_idle_ns = 0;
}

void arbiter_forget(struct arbiter_session *session)
{
    session->is_known = session->is_dense = false;
    session->known_at = 0;
    session->measures = 0;
    session->measures_most = MEASURES;
    session->measure_every = MEASURE_FIRST_NS;
    session->measure_at = session->arbiter->now + MEASURE_FIRST_NS;
    session->cost = (struct solo_cost){0};
    session->doubt_every = DOUBT_FIRST_NS;
    session->doubt_at = 0;
    session->is_doubted = session->is_wrong = false;
    arbiter_forget_need(session);
    arbiter_favour_begin(session);
    session->density = 1;
    session->dense_after_ns = DENSE_NS;
    session->progress = 1;
    session->late_ns = 0;
    forget_dense_time(session);
    session->light_ns = session->gave_back_ns = 0;
}

void arbiter_watch(struct arbiter_session *session)
{
    for (struct arbiter_process *at = session->processes; at; at = at->next)
        arbiter_watch_process(at);
    session->stretch = (struct stretch){.from = session->arbiter->now};
}

static void smooth(double *value, double now, double passed)
{
    *value += (now - *value) * (passed < SMOOTH_NS ? passed / SMOOTH_NS : 1);
}

void arbiter_note_progress(struct arbiter_session *session, double part, double passed)
{
    smooth(&session->progress, part, passed);
    arbiter_count_turns(session, passed, part, 0);
}

static void set_dense(struct arbiter_session *session, bool is_dense)
{
    if (session->is_dense == is_dense)
        return;
    if (!is_dense) {
        /* While it was dense, its turns took nothing off what it was owed: that is no sign of need as a guest. */
        session->owed_ns = fmin(session->owed_ns, 0);
        if (session->arbiter->now - session->dense_at >= SETTLED_NS) {
            arbiter_forget_need(session);
            session->dense_after_ns = DENSE_NS;
        }
    }
    if (is_dense && session->lease == LEASE_GUEST && session->dense_after_ns < DENSE_MOST_NS)
        session->dense_after_ns *= 2;
    session->is_dense = is_dense;
    session->dense_at = session->arbiter->now;
    session->light_ns = 0;
}

/* Dense programs leave the GPU idle too, when their threads were not run for a moment. */
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

/* A dense program gives no turn back. A program whose bursts happen to fill each stretch does. */
static void see_turn(struct arbiter_session *session, double passed, bool gave_back)
{
    session->gave_back_ns += gave_back ? GAVE_BACK_NS : -passed;
    if (session->gave_back_ns < 0)
        session->gave_back_ns = 0;
    if (gave_back) {
        forget_dense_time(session);
        see_light(session, GAVE_BACK_NS);
    }
    if (session->gave_back_ns < LIGHT_NS)
        return;
    session->gave_back_ns = 0;
    set_dense(session, false);
}

/* In company, the processes of a session wait for others at the same time, so it is rarer than when they are alone
 * that none of them has work. So the process counts that has work for the greatest part of the time. */
static double always_busy(const struct arbiter_session *session, double busy, bool is_alone)
{
    double most = 0;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        most = at->busy_part > most ? at->busy_part : most;
    return is_alone || !has_several_processes(session) || busy < most ? busy : most;
}

/* What a session reported of a stretch, as parts of it: in which it had work (more than 1 where a piece began
 * before the stretch); what it used; and what others left. */
struct told {
    double passed_ns, busy, used, left;
};

static double longest_piece(const struct arbiter_session *session)
{
    double longest = 0;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        longest = (double)at->longest_ns > longest ? (double)at->longest_ns : longest;
    return longest;
}

/* Whether the session is dense by all that it reported since it began to look dense. A piece of work that goes on
 * at the end of a stretch is reported with the next one. So the first stretch looks more idle than it was, and the
 * next one busier than it is long: idle time is summed up over both. In company, a session that always has work
 * gets the GPU's time that others leave, whatever its calls cost when they were measured. */
static bool looks_dense(struct arbiter_session *session, struct told told, bool is_alone)
{
    double used = told.left > told.used ? bounded(told.left) : told.used;
    double idle_ns = session->dense_idle_ns + (1 - told.busy) * told.passed_ns;
    session->dense_idle_ns = idle_ns > 0 ? idle_ns : 0;
    session->dense_used_ns += (used < told.busy ? used : told.busy) * told.passed_ns;
    session->dense_ns += told.passed_ns;
    double counts_ns = is_alone ? session->dense_ns : session->dense_used_ns + session->dense_idle_ns;
    double idle_most_ns = (1 - DENSE_RATIO) * counts_ns;
    bool is_little = !is_alone && session->dense_used_ns < DENSE_USED * session->dense_ns;
    if (is_little || session->dense_idle_ns > idle_most_ns + longest_piece(session))
        forget_dense_time(session);
    double after_ns = is_alone ? DENSE_NS : session->dense_after_ns;
    return session->dense_ns >= after_ns && session->dense_idle_ns <= idle_most_ns;
}

/* Judge by the stretch what the session is like. */
static void judge(struct arbiter_session *session, struct told told, bool is_alone, bool was_known)
{
    double busy = bounded(told.busy), used = told.used;
    double always = always_busy(session, busy, is_alone);
    if (used > 0)
        session->density = is_alone ? busy : used / (used + 1 - always);
    if (arbiter_knows_each(session)) {
        double together = arbiter_density_of_all(session);
        busy = is_alone ? fmax(busy, together) : together;
        always = is_alone ? busy : fmin(always, together);
    }
    if (busy >= LIGHT_RATIO)
        session->light_ns = 0;
    else
        see_light(session, told.passed_ns);
    if (has_several_processes(session)) /* their reports on the same time add up */
        told.busy = always;
    if (looks_dense(session, told, is_alone) || (!was_known && is_alone && busy >= UNKNOWN_RATIO))
        set_dense(session, true);
}

/* Whether a guest of a higher priority is on the session's GPUs. Measuring the session would close that guest's
 * gate, which costs latency, and that counts more. */
static bool is_below_a_guest(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (meets(at, session) && at->priority > session->priority && at->lease == LEASE_GUEST)
            return true;
    return false;
}

/* Whether the session is a guest above sessions of lower priorities. To be measured, it would have to wait until
 * those have left. */
static bool is_guest_above_others(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (meets(at, session) && at->priority < session->priority && session->lease == LEASE_GUEST)
            return true;
    return false;
}

/* Have the session measured, with all other gates closed, if it is time for that. */
static void measure_again(struct arbiter_session *session, uint64_t *next, uint64_t *every)
{
    if (session->closing || session->arbiter->now < *next ||
        (!session->is_wrong && is_below_a_guest(session)))
        return;
    session->is_known = false;
    session->measures = MEASURES_TURN * arbiter_sure_count(session);
    session->measures_most = MEASURES_TURN;
    session->turn_ends = session->arbiter->now + MEASURE_TURN_NS; /* if it holds a turn */
    *next = session->arbiter->now + *every;
    if (*every < MEASURE_MOST_NS)
        *every *= 2;
}

void arbiter_doubt_cost(struct arbiter_session *session)
{
    uint64_t soon = session->arbiter->now + DOUBT_FIRST_NS;
    session->is_doubted = true;
    session->dense_after_ns = DENSE_NS;
    session->doubt_every = DOUBT_FIRST_NS;
    if (session->doubt_at > soon)
        session->doubt_at = soon;
}

/* A long piece of work is reported when it is done. And the few pieces that are measured stand for others, which
 * may have been shorter. So reported time beyond the time that passed counts in the stretches that follow, not at
 * once. */
static double with_late(struct arbiter_session *session, double busy, double passed)
{
    double told = busy * passed + session->late_ns, late = told - passed;
    session->late_ns = late < 0 ? 0 : late < LATE_MOST_NS ? late : LATE_MOST_NS;
    return late < 0 ? told / passed : 1;
}

/* Note how a guest fares and what it is owed; and have its cost measured again, if it is time and its minimum
 * depends on the cost. While it was to hold still, it was owed its minimum (arbiter_time.c). */
static void judge_guest(struct arbiter_session *session, double busy, double progress, double passed,
                        double whole, bool is_alone)
{
    if (is_alone)
        session->as_guest = (struct pace){0};
    else
        arbiter_count_guest(session, whole, progress * passed / whole, session->stretch.calls);
    if (arbiter_is_content(session)) {
        progress = fmax(progress, promised_part(session));
        session->owed_ns = fmin(session->owed_ns, 0);
    }
    arbiter_note_progress(session, progress * passed / whole, whole);
    arbiter_owe(session, (promised_part(session) - progress) * passed);
    if (!is_alone && 1 - busy < promised_part(session) && !is_guest_above_others(session))
        measure_again(session, &session->measure_at, &session->measure_every);
}

static void set_known(struct arbiter_session *session)
{
    uint64_t now = session->arbiter->now;
    session->is_known = true;
    session->known_at = session->known_at ? session->known_at : now;
    session->measure_at = now + session->measure_every;
}

/* Learn the session's cost from the stretch that is over. */
static void learn_cost(struct arbiter_session *session, const struct stretch *stretch, double passed,
                       bool is_alone)
{
    struct cost_stretch told = {passed, stretch->busy_ns, stretch->calls, !stretch->is_measured,
                                stretch->least_ns};
    if (stretch->calls < 1)
        return;
    if (!is_alone) {
        session->is_doubted |= solo_cost_is_doubtful(&session->cost, told);
        return;
    }
    session->alone_at = session->arbiter->now;
    session->is_doubted = arbiter_is_measured_singly(session) && !arbiter_is_sure_of_each(session);
    session->is_wrong = false;
    if (solo_cost_learn(&session->cost, told, !session->is_known)) {
        session->measure_every = MEASURE_FIRST_NS;
        session->doubt_every = DOUBT_FIRST_NS;
        /* The stretch may have had calls of both kinds. */
        session->is_doubted = true;
        session->doubt_at = session->arbiter->now + CONFIRM_NS;
    }
    bool is_sure = arbiter_is_measured_singly(session) ? arbiter_is_sure_of_each(session)
                                                       : solo_cost_is_sure(&session->cost);
    if (session->is_known || !is_sure)
        return;
    set_known(session);
}

/* Whether the session is in a turn in which its processes are measured together. They report one after the other,
 * so what they reported of the turn is taken together at its end. */
static bool is_measured_as_a_whole(const struct arbiter_session *session)
{
    return is_measuring(session) && session->lease == LEASE_EXCLUSIVE && has_several_processes(session);
}

/* The part of the stretch that others left the session. What others used while the session held still does not
 * count as taken from it. */
static double left_by_others(const struct stretch *stretch, double passed)
{
    double taken_ns = stretch->others_ns - stretch->still_ns;
    return taken_ns > 0 ? 1 - taken_ns / passed : 1;
}

/* The stretch is over: judge the session by it, and begin the next one. */
static void judge_stretch(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    struct stretch stretch = session->stretch;
    double whole = (double)(arbiter->now - stretch.from), passed = whole - stretch.still_ns;
    bool is_alone = !stretch.has_company && session->company_at <= stretch.from,
         was_dense = session->is_dense, was_known = session->is_known;
    if (is_measured_as_a_whole(session) && stretch.busy_ns > passed)
        stretch.busy_ns = passed;
    learn_cost(session, &stretch, passed, is_alone);
    if (passed < STRETCH_OF_TURN_NS) {
        arbiter_watch(session);
        return;
    }
    double busy = stretch.busy_ns / passed, used = busy;
    double spent = is_alone ? busy : arbiter_spent(session, stretch.busy_ns, stretch.spent_ns) / passed;
    if (session->lease == LEASE_GUEST || !session->is_dense)
        used = fmin(fmax(spent, 0), busy);
    session->last_busy = bounded(busy);
    session->last_used = bounded(spent < 0 ? busy : fmin(spent, busy));
    struct told told = {passed, busy, bounded(used), left_by_others(&stretch, passed)};
    bool is_single = is_alone && is_single_since(session, stretch.from);
    if (!is_single)
        judge(session, told, is_alone, was_known);
    smooth(&session->share_busy, busy, whole);
    session->share_used += (used * passed / whole - session->share_used) *
                           weight_in_average(&session->used_over_ns, whole, SMOOTH_NS);
    double late = session->lease == LEASE_GUEST ? with_late(session, busy, passed) : busy;
    double speed = arbiter_speed(session, passed, late, used);
    if (session->lease == LEASE_GUEST)
        judge_guest(session, late, speed, passed, whole, is_alone);
    else if (session->lease == LEASE_EXCLUSIVE && !was_dense)
        arbiter_owe(session, -speed * passed);
    arbiter_watch(session);
}

/* Whether the stretch is over. Processes report one after the other, so a stretch is over when all of them have
 * reported on about the same time. */
static bool is_stretch(const struct arbiter_session *session)
{
    uint64_t now = session->arbiter->now, passed = now - session->stretch.from;
    if (passed < STRETCH_NS)
        return false;
    for (const struct arbiter_process *at = session->processes; at && passed < STRETCH_MOST_NS; at = at->next)
        if (is_let_in(at) && now - at->reported_at > TELL_TOGETHER_NS)
            return false;
    return !is_measured_as_a_whole(session);
}

void arbiter_learn(struct arbiter_process *process, bool is_alone, double passed_ns, double most_ns,
                   double busy_ns, double calls)
{
    struct arbiter_session *session = process->session;
    double cost = arbiter_cost(process, calls);
    if (!is_alone)
        session->stretch.others_ns += arbiter_note_beside(session, passed_ns, busy_ns, calls, cost);
    else
        arbiter_begin_beside(session);
    double spent = arbiter_spent(session, busy_ns, cost);
    double most = session->uncharged_ns + (arbiter_knows_each(session) ? most_ns : busy_ns);
    if (spent <= 0 || (is_alone && !arbiter_knows_each(session)))
        spent = busy_ns;
    else
        spent = fmin(spent, most + arbiter_cost(process, 1));
    session->uncharged_ns = fmin(most - spent, WIRE_REPORT_NS);
    session->favour.used_ns += spent;
    if (session->lease == LEASE_GUEST)
        arbiter_charge_guest(session, spent, busy_ns, is_alone);
    else
        session->spent_ns += spent;
    arbiter_count_turns(session, 0, 0, calls);
    session->lease_busy_ns += busy_ns;
    session->stretch.has_company |= !is_alone;
    session->stretch.busy_ns += busy_ns;
    session->stretch.calls += calls;
    session->stretch.spent_ns += cost;
    if (is_stretch(session))
        judge_stretch(session);
}

/* In the turn that is over, one of several processes was measured. The processes are taken to have work
 * independently of each other. */
static void judge_singly(struct arbiter_session *session, double passed, bool gave_back)
{
    struct arbiter_process *last = session->processes;
    double idle = 1;
    for (struct arbiter_process *at = session->processes; at; at = at->next)
        last = at->measured_at > last->measured_at ? at : last;
    last->density = gave_back || passed <= 0 ? 0 : bounded(session->lease_busy_ns / passed);
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        idle *= 1 - at->density;
    if (1 - idle >= UNKNOWN_RATIO)
        set_dense(session, true);
}

void arbiter_learn_turn(struct arbiter_session *session, bool gave_back)
{
    struct arbiter *arbiter = session->arbiter;
    bool was_measuring = is_measuring(session);
    uint64_t ended_at = session->ended_at ? session->ended_at : arbiter->now;
    double passed = (double)(ended_at - session->since), gap = passed - session->lease_busy_ns;
    /* What a change of holders costs. */
    if (session->is_dense && !gave_back && passed >= STRETCH_OF_TURN_NS && gap > 0 && gap < GAP_MAX_NS)
        arbiter->gap_ns = arbiter->gap_ns > 0 ? arbiter->gap_ns + (gap - arbiter->gap_ns) / 8 : gap;
    judge_stretch(session);
    if (was_measuring && arbiter_is_measured_singly(session))
        judge_singly(session, passed, gave_back);
    else
        see_turn(session, passed, gave_back);
    if (!session->is_dense && !gave_back)
        arbiter_owe(session, arbiter->gap_ns); /* the hand-over's gap was not its own */
    if (was_measuring)
        session->measures += gave_back ? 1 : MEASURES_TURN;
    if (was_measuring && !session->is_known &&
        session->measures >= session->measures_most * arbiter_measured_count(session)) {
        /* It made no calls that would tell more, or its agent does not count them. */
        set_known(session);
        session->is_dense = session->is_dense || solo_cost_of(&session->cost, 1) < 0;
    }
}

/* --- Roles ----------------------------------------------------------------------------------------- */

/* Whether a dense session of a higher priority wants the GPU. */
static bool is_below_a_dense_one(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (meets(at, session) && at->priority > session->priority && at->is_dense && arbiter_has_demand(at))
            return true;
    return false;
}

static bool should_take_turns(const struct arbiter_session *session)
{
    uint64_t now = session->arbiter->now;
    return !session->is_known || session->is_dense || session->understates || now < session->needy_until ||
           now < session->donor_until || is_below_a_dense_one(session);
}

/* What the session used in turns says nothing about what it takes from others as a guest, which counts soon. But if it was dense
 * until now, it has changed, and for a while its cost is still that of its former calls. */
static void leave_turns(struct arbiter_session *session)
{
    bool was_dense = session->arbiter->now - session->dense_at < SETTLED_NS;
    session->share_used = session->share_busy = 0;
    session->used_over_ns = was_dense ? SMOOTH_NS : 0;
    arbiter_leave_turns(session);
}

void arbiter_find_roles(struct arbiter *arbiter)
{
    FOR_GPUS (gpu, arbiter->shares)
        arbiter_audit(arbiter, gpu);
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        bool took_turns = at->takes_turns;
        arbiter_favour_judge(at);
        if (at->is_doubted && at->is_known && is_held(at))
            measure_again(at, &at->doubt_at, &at->doubt_every);
        if (!at->gpus)
            continue;
        arbiter_find_needy(at);
        at->takes_turns = should_take_turns(at);
        if (at->takes_turns && !took_turns)
            arbiter_join_turns(at);
        else if (!at->takes_turns && took_turns)
            leave_turns(at);
        if (at->takes_turns && at->is_backlogged)
            arbiter_find_donors(at, missing(at));
    }
}
