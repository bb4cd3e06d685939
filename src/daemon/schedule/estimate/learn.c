/* Learns what sessions are like from what they report.
 *
 * A call's cost can be measured only while no other session's gate is open: otherwise what the GPU does for others
 * counts as well. That is so in turns without guests, and while a session is alone. Where neither happens, the
 * session takes a turn in which all other gates are closed.
 *
 * How much of the time a program has no work before the GPU is its own affair, with company and without. So its
 * progress is known in company too: that part of the time, plus the part that its calls take by their cost. */
#include "daemon/schedule/estimate/estimate.h"

#define STRETCH_MOST_NS (2 * STRETCH_NS)
#define TELL_TOGETHER_NS (WIRE_REPORT_NS / 2)
/* A turn that was given back counts as so much time in which its session looked light. */
#define GAVE_BACK_NS (LIGHT_NS / 5)

static void forget_dense_time(struct arbiter_session *session)
{
    session->estimate.dense_ns = session->estimate.dense_used_ns = session->estimate.dense_idle_ns = 0;
}

void estimate_begin(struct arbiter_session *session)
{
    session->estimate = (struct session_estimate){
        .measures_most = 4 * MEASURES_TURN,
        .doubted.length = DOUBT_FIRST_NS,
        .density = 1,
        .dense_after_ns = DENSE_NS,
    };
}

static void watch(struct arbiter_session *session)
{
    for (struct arbiter_process *at = session->processes; at; at = at->next)
        estimate_watch_process(at);
    session->estimate.stretch = (struct stretch){.from = session->arbiter->now};
}

void estimate_begin_lease(struct arbiter_session *session)
{
    struct session_estimate *estimate = &session->estimate;
    estimate->busy_ns = estimate->spent_ns = estimate->unspent_ns = estimate->lease_busy_ns = 0;
    watch(session);
    estimate_begin_beside(session);
    FOR_GPUS (gpu, session->facts.held)
        estimate->used[gpu].guests_ns = session->arbiter->gpus[gpu].estimate.guests_ns;
}

/* --- Reports --------------------------------------------------------------------------------------- */

static void note_busy_part(struct arbiter_process *process, double busy, double passed)
{
    if (passed <= 0)
        return;
    double part = busy < passed ? busy / passed : 1;
    process->estimate.busy_part += (part - process->estimate.busy_part) *
                                   weight_in_average(&process->estimate.busy_told_ns, passed, BUSY_SMOOTH_NS);
}

/* Each process of a session reports how long it had work, and several have work at the same time. Returns which
 * part of all their reports is the session's time, for the processes whose gates were open since `from`, if none
 * keeps step with another. A process that never reported is taken to be like the teller. */
static double part_of_session(const struct arbiter_process *teller, uint64_t from)
{
    const struct arbiter_session *session = teller->session;
    double sum = 0, idle = 1;
    unsigned count = 0;
    for (const struct arbiter_process *at = session->processes; at; at = at->next) {
        if ((!is_let_in(at) && at->facts.reported_at <= from) ||
            session->arbiter->now - at->facts.reported_at > (uint64_t)BUSY_SMOOTH_NS)
            continue;
        double part = at->estimate.busy_told_ns > 0 ? at->estimate.busy_part : teller->estimate.busy_part;
        sum += part;
        idle *= 1 - part;
        count++;
    }
    return is_on(part_of_session) && count > 1 && sum > 0 ? (1 - idle) / sum : 1;
}

static void note_measured(struct stretch *stretch, const struct report *report)
{
    double least = report->least_ns;
    if (!report->measured)
        return;
    stretch->is_measured = true;
    if (least > 0 && (stretch->least_ns <= 0 || least < stretch->least_ns))
        stretch->least_ns = least;
}

/* What the session's calls used that a process reports: they cost `cost_ns`, and one of them `each_ns`. */
static double used_by(struct arbiter_session *session, const struct report *report, double busy_ns,
                      double cost_ns, double each_ns)
{
    struct session_estimate *estimate = &session->estimate;
    bool knows_each = estimate_knows_each(session);
    if (!report->is_alone)
        estimate->stretch.others_ns += estimate_note_beside(session, report->passed_ns, busy_ns, cost_ns);
    else
        estimate_begin_beside(session);
    double spent = estimate_spent(session, busy_ns, cost_ns);
    double most = estimate->uncharged_ns + (knows_each ? report->busy_ns : busy_ns);
    if (spent <= 0 || (report->is_alone && !knows_each))
        spent = busy_ns;
    else
        spent = is_on(uncharged) ? fmin(spent, most + each_ns) : fmin(spent, busy_ns);
    estimate->uncharged_ns = fmin(most - spent, WIRE_REPORT_NS);
    return spent;
}

struct taken estimate_take(struct arbiter_process *process, const struct report *report)
{
    struct arbiter_session *session = process->session;
    struct session_estimate *estimate = &session->estimate;
    double busy = report->busy_ns, calls = report->calls;
    note_busy_part(process, busy, report->own_ns);
    process->estimate.told_busy_ns += busy;
    process->estimate.told_used_ns += fmax(fmin(estimate_cost(process, calls), busy), 0);
    if (report->is_single)
        estimate_learn_singly(process,
                              (struct cost_stretch){busy, calls, !report->measured, report->least_ns});
    else
        busy *= part_of_session(process, report->from);
    estimate->busy_ns += busy;
    estimate->said_ns += busy;
    note_measured(&estimate->stretch, report);
    double cost = estimate_cost(process, calls);
    double used = used_by(session, report, busy, cost, estimate_cost(process, 1));
    if (session->facts.lease != LEASE_GUEST)
        estimate->spent_ns += used;
    estimate->lease_busy_ns += busy;
    estimate->stretch.has_company |= !report->is_alone;
    estimate->stretch.busy_ns += busy;
    estimate->stretch.calls += calls;
    estimate->stretch.spent_ns += cost;
    return (struct taken){used, busy};
}

void estimate_take_overdue(struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next) {
        if (at->facts.gate != PROCESS_CLOSING)
            continue;
        session->estimate.busy_ns += (double)(session->arbiter->now - at->facts.reported_at);
        session->estimate.spent_ns += (double)(session->arbiter->now - at->facts.reported_at);
    }
}

double estimate_last_work(const struct arbiter_process *process)
{
    double part = is_on(last_work_part) && process->session->facts.lease == LEASE_GUEST
                      ? process->estimate.busy_part
                      : 1;
    return facts_most_untold(process) * part;
}

/* --- Dense or light -------------------------------------------------------------------------------- */

static void set_dense(struct arbiter_session *session, bool is_dense)
{
    if (session->estimate.is_dense == is_dense)
        return;
    if (!is_dense && session->arbiter->now - session->estimate.dense_at >= (uint64_t)SMOOTH_NS)
        session->estimate.dense_after_ns = DENSE_NS;
    session->estimate.became_light |= !is_dense;
    if (is_on(dense_after) && is_dense && session->facts.lease == LEASE_GUEST &&
        session->estimate.dense_after_ns < 8 * DENSE_NS)
        session->estimate.dense_after_ns *= 2;
    session->estimate.is_dense = is_dense;
    session->estimate.dense_at = session->arbiter->now;
    session->estimate.light_ns = 0;
}

bool estimate_take_became_light(struct arbiter_session *session)
{
    bool became = session->estimate.became_light;
    session->estimate.became_light = false;
    return became;
}

/* Dense programs leave the GPU idle too, when their threads were not run for a moment. */
static void see_light(struct arbiter_session *session, double ns)
{
    session->estimate.light_ns += ns;
    if (!session->estimate.is_known || session->estimate.light_ns >= LIGHT_NS)
        set_dense(session, false);
}

static double bounded(double value)
{
    return value < 0 ? 0 : value > 1 ? 1 : value;
}

/* A dense program gives no turn back. A program whose bursts happen to fill each stretch does. */
static void see_turn(struct arbiter_session *session, double passed, bool gave_back)
{
    if (!is_on(gave_back_light))
        return;
    session->estimate.gave_back_ns += gave_back ? GAVE_BACK_NS : -passed;
    if (session->estimate.gave_back_ns < 0)
        session->estimate.gave_back_ns = 0;
    if (gave_back) {
        forget_dense_time(session);
        see_light(session, GAVE_BACK_NS);
    }
    if (session->estimate.gave_back_ns < LIGHT_NS)
        return;
    session->estimate.gave_back_ns = 0;
    set_dense(session, false);
}

/* In company, the processes of a session wait for others at the same time, so it is rarer than when they are alone
 * that none of them has work. So the process counts that has work for the greatest part of the time. */
static double always_busy(const struct arbiter_session *session, double busy, bool is_alone)
{
    double most = 0;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        most = at->estimate.busy_part > most ? at->estimate.busy_part : most;
    return is_alone || !has_several_processes(session) || busy < most ? busy : most;
}

/* What a session reported of a stretch, as parts of it: in which it had work (more than 1 where a piece began
 * before the stretch); what it used; and what others left. */
struct told {
    double passed_ns, busy, used, left;
};

/* Whether the session is dense by all that it reported since it began to look dense. A piece of work that goes on
 * at the end of a stretch is reported with the next one. So the first stretch looks more idle than it was, and the
 * next one busier than it is long: idle time is summed up over both. In company, a session that always has work
 * gets the GPU's time that others leave, whatever its calls cost when they were measured. */
static bool looks_dense(struct arbiter_session *session, struct told told, bool is_alone)
{
    double used = is_on(dense_by_left) && told.left > told.used ? bounded(told.left) : told.used;
    double idle_ns = session->estimate.dense_idle_ns + (1 - told.busy) * told.passed_ns;
    session->estimate.dense_idle_ns = idle_ns > 0 ? idle_ns : 0;
    session->estimate.dense_used_ns += (used < told.busy ? used : told.busy) * told.passed_ns;
    session->estimate.dense_ns += told.passed_ns;
    double counts_ns = is_alone ? session->estimate.dense_ns
                                : session->estimate.dense_used_ns + session->estimate.dense_idle_ns;
    double idle_most_ns = (1 - DENSE_RATIO) * counts_ns;
    bool is_little = !is_alone && session->estimate.dense_used_ns < DENSE_USED * session->estimate.dense_ns;
    if (is_little || session->estimate.dense_idle_ns > idle_most_ns + facts_longest_piece(session))
        forget_dense_time(session);
    double after_ns = is_alone ? DENSE_NS : session->estimate.dense_after_ns;
    return session->estimate.dense_ns >= after_ns && session->estimate.dense_idle_ns <= idle_most_ns;
}

/* Judge by the stretch what the session is like. */
static void judge(struct arbiter_session *session, struct told told, bool is_alone, bool was_known)
{
    double busy = bounded(told.busy), used = told.used;
    double always = always_busy(session, busy, is_alone);
    if (used > 0)
        session->estimate.density = is_alone ? busy : used / (used + 1 - always);
    if (busy >= LIGHT_RATIO)
        session->estimate.light_ns = 0;
    else
        see_light(session, told.passed_ns);
    if (has_several_processes(session)) /* their reports on the same time add up */
        told.busy = always;
    if (looks_dense(session, told, is_alone) ||
        (is_on(unknown_ratio) && !was_known && is_alone && busy >= UNKNOWN_RATIO))
        set_dense(session, true);
}

/* --- Stretches ------------------------------------------------------------------------------------- */

/* A long piece of work is reported when it is done. And the few pieces that are measured stand for others, which
 * may have been shorter. So reported time beyond the time that passed counts in the stretches that follow, not at
 * once. */
static double with_late(struct arbiter_session *session, double busy, double passed)
{
    if (!is_on(late))
        return fmin(busy, 1);
    double told = busy * passed + session->estimate.late_ns, late = told - passed;
    session->estimate.late_ns = late < 0 ? 0 : late < LATE_MOST_NS ? late : LATE_MOST_NS;
    return late < 0 ? told / passed : 1;
}

static void set_known(struct arbiter_session *session)
{
    uint64_t now = session->arbiter->now;
    session->estimate.is_known = true;
    session->estimate.known_at = session->estimate.known_at ? session->estimate.known_at : now;
}

/* Learn the session's cost from the stretch that is over. */
static void learn_cost(struct arbiter_session *session, const struct stretch *stretch, bool is_alone)
{
    struct cost_stretch told = {stretch->busy_ns, stretch->calls, !stretch->is_measured, stretch->least_ns};
    if (stretch->calls < 1)
        return;
    if (!is_alone) {
        session->estimate.is_doubted |= solo_cost_is_doubtful(&session->estimate.cost, told);
        return;
    }
    session->estimate.alone_at = session->arbiter->now;
    session->estimate.is_wrong = false;
    session->estimate.is_doubted = estimate_is_measured_singly(session) && !estimate_is_sure_of_each(session);
    if (solo_cost_learn(&session->estimate.cost, told, !session->estimate.is_known)) {
        session->estimate.doubted.length = DOUBT_FIRST_NS;
        /* The stretch may have had calls of both kinds. */
        session->estimate.is_doubted = is_on(confirm);
        session->estimate.doubted.until = session->arbiter->now + CONFIRM_NS;
    }
    bool is_sure = estimate_is_measured_singly(session) ? estimate_is_sure_of_each(session)
                                                        : solo_cost_is_sure(&session->estimate.cost);
    if (session->estimate.is_known || !is_sure)
        return;
    set_known(session);
}

/* Whether the session is in a turn in which its processes are measured together. They report one after the other,
 * so what they reported of the turn is taken together at its end. */
static bool is_measured_as_a_whole(const struct arbiter_session *session)
{
    return !session->estimate.is_known && session->facts.lease == LEASE_EXCLUSIVE &&
           has_several_processes(session);
}

/* The part of the stretch that others left the session. What others used while the session held still does not
 * count as taken from it. */
static double left_by_others(const struct stretch *stretch, double passed)
{
    double taken_ns = stretch->others_ns - stretch->still_ns;
    return taken_ns > 0 ? 1 - taken_ns / passed : 1;
}

bool estimate_judge(struct arbiter_session *session, struct judged *judged)
{
    struct arbiter *arbiter = session->arbiter;
    struct stretch stretch = session->estimate.stretch;
    double whole = (double)(arbiter->now - stretch.from), passed = whole - stretch.still_ns;
    bool is_alone = !stretch.has_company && session->facts.company_at <= stretch.from,
         was_dense = session->estimate.is_dense, was_known = session->estimate.is_known;
    if (is_measured_as_a_whole(session) && stretch.busy_ns > passed)
        stretch.busy_ns = passed;
    learn_cost(session, &stretch, is_alone);
    if (passed < STRETCH_OF_TURN_NS) {
        watch(session);
        return false;
    }
    double busy = stretch.busy_ns / passed, used = busy;
    double spent = is_alone ? busy : estimate_spent(session, stretch.busy_ns, stretch.spent_ns) / passed;
    if (session->facts.lease == LEASE_GUEST || !session->estimate.is_dense)
        used = fmin(fmax(spent, 0), busy);
    session->estimate.last_busy = bounded(busy);
    session->estimate.last_used = bounded(spent < 0 ? busy : fmin(spent, busy));
    struct told told = {passed, busy, bounded(used), left_by_others(&stretch, passed)};
    bool is_single = is_alone && is_single_since(session, stretch.from);
    if (!is_single)
        judge(session, told, is_alone, was_known);
    smooth(&session->estimate.share_busy, busy, whole);
    session->estimate.share_used += (used * passed / whole - session->estimate.share_used) *
                                    weight_in_average(&session->estimate.used_over_ns, whole, SMOOTH_NS);
    double late = session->facts.lease == LEASE_GUEST ? with_late(session, busy, passed) : busy;
    double speed = estimate_speed(session, passed, late, used);
    *judged = (struct judged){
        is_alone, session->facts.lease == LEASE_GUEST, was_dense, whole, passed, late, speed, stretch.calls};
    watch(session);
    return true;
}

bool estimate_is_stretch(const struct arbiter_session *session)
{
    uint64_t now = session->arbiter->now, passed = now - session->estimate.stretch.from;
    if (passed < STRETCH_NS)
        return false;
    for (const struct arbiter_process *at = session->processes; at && passed < STRETCH_MOST_NS; at = at->next)
        if (is_let_in(at) && now - at->facts.reported_at > TELL_TOGETHER_NS)
            return false;
    return !is_measured_as_a_whole(session);
}

/* --- Turns ----------------------------------------------------------------------------------------- */

/* How long the turn was that is over. */
static double turn_ns(const struct arbiter_session *session)
{
    const struct session_facts *facts = &session->facts;
    return (double)((facts->ended_at ? facts->ended_at : session->arbiter->now) - facts->since);
}

void estimate_note_gap(const struct arbiter_session *session)
{
    double *gap_ns = &session->arbiter->gap_ns, passed = turn_ns(session),
           gap = passed - session->estimate.lease_busy_ns;
    if (session->estimate.is_dense && passed >= STRETCH_OF_TURN_NS && gap > 0 && gap < GAP_MAX_NS)
        *gap_ns += *gap_ns > 0 ? (gap - *gap_ns) / 8 : gap;
}

void estimate_end_turn(struct arbiter_session *session, bool gave_back, bool was_measuring)
{
    if (!was_measuring || !estimate_is_measured_singly(session))
        see_turn(session, turn_ns(session), gave_back);
    if (was_measuring)
        session->estimate.measures += gave_back ? 1 : MEASURES_TURN;
    if (was_measuring && !session->estimate.is_known &&
        session->estimate.measures >= session->estimate.measures_most * estimate_measured_count(session)) {
        /* It made no calls that would tell more, or its agent does not count them. */
        set_known(session);
        session->estimate.is_dense =
            session->estimate.is_dense || solo_cost_of(&session->estimate.cost, 1) < 0;
    }
}

void estimate_leave_turns(struct arbiter_session *session)
{
    struct session_estimate *estimate = &session->estimate;
    estimate->share_used = estimate->share_busy = estimate->used_over_ns = 0;
}
