/* What sessions used: sums of what their reports and turns come to. */
#include <string.h>

#include "daemon/schedule/estimate/estimate.h"

#define SECOND_NS UINT64_C(1000000000)

uint64_t estimate_turn_ns(const struct arbiter *arbiter)
{
    uint64_t quantum = (uint64_t)(arbiter->gap_ns / HANDOVERS_RATIO);
    if (arbiter->quantum_fixed_ns)
        return arbiter->quantum_fixed_ns;
    if (!is_on(auto_quantum) || arbiter->gap_ns == 0)
        return 2 * QUANTUM_AUTO_MIN_NS;
    if (quantum < QUANTUM_AUTO_MIN_NS)
        return QUANTUM_AUTO_MIN_NS;
    return quantum < QUANTUM_AUTO_MAX_NS ? quantum : QUANTUM_AUTO_MAX_NS;
}

static void add_left(struct arbiter *arbiter, uint64_t gpu, double ns)
{
    double left = arbiter->gpus[gpu].estimate.left_ns + ns;
    arbiter->gpus[gpu].estimate.left_ns = left > UNTAKEN_MOST_NS    ? UNTAKEN_MOST_NS
                                          : left < -UNTAKEN_MOST_NS ? -UNTAKEN_MOST_NS
                                                                    : left;
}

void estimate_pass(struct arbiter *arbiter, double passed)
{
    FOR_GPUS (gpu, arbiter->shares)
        add_left(arbiter, gpu, passed);
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        if (is_still(session))
            session->estimate.stretch.still_ns += passed;
        for (struct arbiter_process *at = session->processes; at; at = at->next)
            at->estimate.gate_ns += facts_process_is_waiting(at) ? passed : 0;
    }
}

/* --- Booking --------------------------------------------------------------------------------------- */

/* Advance the ring to `second`. Seconds in which nothing was charged are zero. */
static void reach_second(struct used *used, uint64_t second)
{
    const uint64_t length = ARBITER_WINDOW_S + 1;
    if (second - used->last_s >= length)
        memset(used->seconds, 0, sizeof(used->seconds));
    else
        while (used->last_s < second)
            used->seconds[++used->last_s % length] = 0;
    used->last_s = second;
}

void estimate_first_second(struct arbiter_session *session, uint64_t gpu)
{
    struct used *used = &session->estimate.used[gpu];
    if (!used->first_s)
        used->first_s = used->last_s = session->arbiter->now / SECOND_NS;
}

void estimate_book(struct arbiter_session *session, uint64_t gpu, struct used_now now)
{
    struct used *used = &session->estimate.used[gpu];
    used->ns += now.used_ns;
    used->unsure_ns += now.error_ns;
    session->arbiter->gpus[gpu].estimate.charged_ns += now.used_ns;
    add_left(session->arbiter, gpu, -now.used_ns);
    reach_second(used, session->arbiter->now / SECOND_NS);
    used->seconds[used->last_s % (ARBITER_WINDOW_S + 1)] += now.used_ns;
}

void estimate_book_guest(struct arbiter_session *session, uint64_t gpu, double used_ns)
{
    session->arbiter->gpus[gpu].estimate.guests_ns += used_ns;
}

/* The part of a guest's charge that is believed. All sessions together are never charged more than the time that
 * passed. Where they would be, guests whose calls are not alike are charged less, all in proportion: their cost is
 * an average, and the calls at hand may be far from it. */
static double believed_part(const struct arbiter_session *session)
{
    double part = 1;
    if (!is_on(believed_part) || estimate_is_charged_by_calls(session))
        return 1;
    FOR_GPUS (gpu, session->facts.held) {
        double left = session->arbiter->gpus[gpu].estimate.left_ns;
        part = left < 0 && 1 + left / WINDOW_NS < part ? 1 + left / WINDOW_NS : part;
    }
    return part;
}

/* How much of a charge beside others may be wrong. Work that needs several GPUs occupies each of them while it
 * waits for another, and nobody knows how much of its time with work that was. */
static double unsure_of(const struct arbiter_session *session, double used_ns, double busy_ns)
{
    double waits_ns = is_on(waits_of_several_gpus) && has_several_gpus(session) && busy_ns > used_ns
                          ? busy_ns - used_ns
                          : 0;
    return used_ns * estimate_calls_error(session) + waits_ns;
}

struct used_now estimate_used_by_guest(const struct arbiter_session *session, double used_ns, double busy_ns,
                                       bool is_alone)
{
    used_ns *= believed_part(session);
    return (struct used_now){used_ns, is_alone ? 0 : unsure_of(session, used_ns, busy_ns)};
}

/* --- Turns ----------------------------------------------------------------------------------------- */

/* The most that guests used on one of its GPUs since the last charge. The session's work was kept from all its GPUs
 * for that time. */
static double most_of_guests(const struct arbiter_session *session)
{
    double most = 0;
    FOR_GPUS (gpu, session->facts.held)
        most = fmax(most,
                    session->arbiter->gpus[gpu].estimate.guests_ns - session->estimate.used[gpu].guests_ns);
    return most;
}

/* Whether guests may have had work in the session's turn. */
static bool has_guests(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (at != session && at->facts.lease == LEASE_GUEST && (at->facts.held & session->facts.held))
            return true;
    return most_of_guests(session) > 0;
}

/* For calls that are not alike, and for several processes that are not measured one by one, the time of the turn tells
 * more than the cost of the calls. */
struct turn_estimate estimate_take_turn(struct arbiter_session *session, double passed_ns)
{
    struct session_estimate *estimate = &session->estimate;
    bool is_steady = estimate_is_charged_by_calls(session), is_beside = has_guests(session);
    bool is_a_guess = has_several_processes(session) && !estimate_knows_each(session);
    double most_spent = passed_ns + estimate->unspent_ns;
    struct turn_estimate turn = {
        .passed_ns = passed_ns,
        .busy_ns = fmin(estimate->busy_ns, passed_ns),
        .spent_ns = fmin(estimate->spent_ns, most_spent),
        .guests_ns = most_of_guests(session),
        .is_by_calls = is_beside ? is_steady || estimate->beside.by_time > 0 : is_steady && !is_a_guess,
        .is_beside = is_beside,
    };
    estimate->busy_ns -= turn.busy_ns;
    estimate->spent_ns = 0;
    estimate->unspent_ns = most_spent - turn.spent_ns;
    return turn;
}

struct used_now estimate_used_in_turn(struct arbiter_session *session, uint64_t gpu,
                                      const struct turn_estimate *turn, double *held_ns)
{
    struct used *sums = &session->estimate.used[gpu];
    double open = session->facts.open_ns[gpu], all_guests = session->arbiter->gpus[gpu].estimate.guests_ns;
    double by_clock = open * turn->busy_ns / turn->passed_ns;
    double used = turn->is_by_calls ? turn->spent_ns : fmin(by_clock, fmax(open - turn->guests_ns, 0));
    *held_ns = fmax(open - (all_guests - sums->guests_ns), 0);
    sums->guests_ns = all_guests;
    if (session->estimate.understates)
        used = *held_ns; /* by the clock */
    double held = session->estimate.is_dense ? used : *held_ns;
    return (struct used_now){used, turn->is_beside ? unsure_of(session, used, held) : 0};
}

double estimate_used_in_second(const struct arbiter_session *session, unsigned gpu, unsigned back)
{
    const struct used *used = &session->estimate.used[gpu];
    uint64_t second = session->arbiter->now / SECOND_NS - back;
    if (second > used->last_s || second + ARBITER_WINDOW_S < used->last_s)
        return 0;
    return used->seconds[second % (ARBITER_WINDOW_S + 1)];
}

double estimate_achieved(const struct arbiter_session *session, unsigned gpu, uint64_t now)
{
    struct used used = session->estimate.used[gpu];
    uint64_t second = now / SECOND_NS;
    if (!used.first_s || second <= used.first_s)
        return 0;
    reach_second(&used, second);
    double sum = 0;
    for (unsigned i = 0; i <= ARBITER_WINDOW_S; i++)
        sum += i == second % (ARBITER_WINDOW_S + 1) ? 0 : used.seconds[i];
    uint64_t seconds = second - used.first_s;
    double ratio =
        sum / (double)SECOND_NS / (double)(seconds < ARBITER_WINDOW_S ? seconds : ARBITER_WINDOW_S);
    return ratio < 1 ? ratio : 1;
}
