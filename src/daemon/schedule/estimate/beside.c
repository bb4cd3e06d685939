/* What a session used beside others. There are two guesses: its calls by their cost, as measured alone; and what
 * others leave of the time in which any session has work. docs/internals/scheduling.md explains them. */
#include "daemon/schedule/estimate/estimate.h"

double estimate_spent(const struct arbiter_session *session, double busy_ns, double cost_ns)
{
    const struct beside *beside = &session->estimate.beside;
    if (cost_ns < 0 && beside->by_time <= 0)
        return cost_ns;
    return cost_ns * (1 - beside->by_time) + busy_ns * beside->part * beside->by_time;
}

/* The first of the GPUs that the session holds. */
static unsigned first_gpu(const struct arbiter_session *session)
{
    return session->facts.held ? (unsigned)__builtin_ctzll(session->facts.held) : 0;
}

/* What the session has used by now and is not charged for yet: in its turn, what it reported; and what it will
 * report if it goes on as in its last stretch. */
static double used_since(const struct arbiter_session *session)
{
    double silent_ns = fmin((double)(session->arbiter->now - session->facts.told_at), UNTOLD_NS);
    return (is_exclusive(session) ? session->estimate.spent_ns : 0) + session->estimate.last_used * silent_ns;
}

/* What other sessions used of a session's first GPU, in all, and how much of that may be wrong. */
struct others {
    double ns, unsure_ns;
};

/* The part of the last `passed_ns` in which none of the other sessions with open gates had work, by their last
 * stretches. */
static double idle_of_others(const struct arbiter_session *session, double passed_ns)
{
    double idle = 1;
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next) {
        double open_ns = fmin((double)(session->arbiter->now - at->facts.since), passed_ns);
        if (at != session && (at->facts.held >> first_gpu(session) & 1) && open_ns > 0)
            idle *= 1 - at->estimate.last_busy * open_ns / passed_ns;
    }
    return idle;
}

static struct others find_others(const struct arbiter_session *session)
{
    struct others others = {0};
    unsigned gpu = first_gpu(session);
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next) {
        bool is_there = at->facts.held >> gpu & 1;
        double since = is_there ? used_since(at) : 0;
        if (at == session)
            continue;
        others.ns += at->estimate.used[gpu].ns + since;
        others.unsure_ns += at->estimate.used[gpu].unsure_ns + since * estimate_calls_error(at);
    }
    return others;
}

void estimate_begin_beside(struct arbiter_session *session)
{
    struct others others = find_others(session);
    session->estimate.beside.before_ns = others.ns;
    session->estimate.beside.unsure_before_ns = others.unsure_ns;
}

/* A guess at a part of the time, and its usual error. */
struct guess {
    double part, error;
};

/* The weight of the first guess, 0..1, against the second: by the inverse squares of their errors. */
static double weight_of(struct guess guess, struct guess other)
{
    double square = guess.error * guess.error, others = other.error * other.error;
    return square + others > 0 ? others / (square + others) : 1;
}

/* Guess for which part of the time the GPU works for a session beside others, from how long the session has work.
 * How long no session has work is estimated as in a closed network of queues: programs that share the GPU evenly
 * while they have work, and begin it at any moment. In the rest of the time the GPU works, and what others did not
 * use is the session's. */
static struct guess guess_by_time(const struct beside *beside)
{
    double passed = beside->passed_ns, busy = fmin(beside->busy_ns / passed, 1), idle = 1 - busy;
    double others_idle = beside->others_idle_ns / passed, others = beside->others_ns / passed;
    double sum = 1 + idle + others_idle;
    double all_idle = (sum - sqrt(fmax(sum * sum - 8 * idle * others_idle, 0))) / 2;
    double unknown = fmin(idle, others_idle) - fmax(idle + others_idle - 1, 0);
    double error = hypot(LEFT_ERROR, LEFT_IDLE_ERROR * unknown);
    struct guess left = {fmax(1 - all_idle, busy) - others, hypot(error, beside->unsure_ns / passed)};
    left.part = fmin(fmax(left.part, 0), busy);
    return left;
}

/* What the window told of how much of the work the GPU had begun with; earlier windows count less. */
static void add_begun(struct begun *begun, const struct beside *beside)
{
    begun->ns += beside->begun_ns - begun->ns * BEGUN_SMOOTH;
    begun->busy_ns += beside->busy_ns - begun->busy_ns * BEGUN_SMOOTH;
}

double estimate_note_beside(struct arbiter_session *session, double passed_ns, double busy_ns, double cost_ns)
{
    struct beside *beside = &session->estimate.beside;
    struct others others = find_others(session);
    double others_ns = others.ns - beside->before_ns;
    double unsure_ns = fmax(others.unsure_ns - beside->unsure_before_ns, 0);
    double most_ns = unsure_ns > ERROR_MOST * others_ns ? passed_ns : others_ns;
    beside->passed_ns += passed_ns;
    beside->busy_ns += busy_ns;
    beside->begun_ns += busy_ns * session->facts.told_begun;
    beside->spent_ns += fmax(cost_ns, 0);
    beside->others_idle_ns += idle_of_others(session, passed_ns) * passed_ns;
    beside->others_ns += others_ns;
    beside->unsure_ns += unsure_ns;
    beside->before_ns = others.ns;
    beside->unsure_before_ns = others.unsure_ns;
    if (beside->passed_ns < WINDOW_NS || beside->busy_ns <= 0)
        return most_ns;
    struct guess by_time = guess_by_time(beside);
    double busy = fmin(beside->busy_ns / beside->passed_ns, 1), error = estimate_calls_error(session);
    struct begun begun = beside->begun;
    add_begun(&begun, beside);
    /* The GPU computes for no longer than it has begun with work. */
    if (is_on(begun_cap))
        by_time.part = fmin(by_time.part, busy * begun.ns / begun.busy_ns);
    double spent = beside->spent_ns / beside->passed_ns;
    struct guess by_calls = {spent, spent > 0 ? error * spent : 1};
    *beside = (struct beside){
        .before_ns = others.ns,
        .unsure_before_ns = others.unsure_ns,
        .part = by_time.part / busy,
        .begun = begun,
        .by_time = is_on(guess_left) && !has_several_processes(session) ? weight_of(by_time, by_calls) : 0,
    };
    return most_ns;
}
