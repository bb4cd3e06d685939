/* What a session used beside others, which is guessed in two ways: what its calls cost, as measured alone, and what others leave of the
 * time in which it has work. */
#include <math.h>

#include "daemon/schedule/arbiter_state.h"

/* How long a window is in which what a session tells is compared with what others are charged. */
#define BESIDE_NS 200000000.0
/* What tells nothing for longer has no work: two reports. */
#define SILENT_NS (2.0 * WIRE_REPORT_NS)
/* So many times its cost, and what others used, is a time with work that they do not explain; with so much for each turn, which begins
 * with what is left of the one before. */
#define UNEXPLAINED 2.5
#define LEFT_OF_TURN_NS 5000000.0
/* What guesses are wrong by, usually. At what others leave: of the time; of that in which it is not known whether anybody has work;
 * and for each call, of whose time before the GPU so much may be its way there and back, or a change of contexts. At what it has where
 * all share the GPU evenly: of the time in which it has work. */
#define LEFT_ERROR 0.02
#define LEFT_IDLE_ERROR 0.2
#define LEFT_CALL_NS 20000.0
#define EVEN_ERROR 0.5
/* Beyond this part of what others are charged, it is a guess. */
#define UNSURE 0.05

double arbiter_spent(const struct arbiter_session *session, double busy_ns, double cost_ns)
{
    double by_time = session->beside.by_time;
    return cost_ns < 0 && by_time <= 0 ? cost_ns
                                       : cost_ns * (1 - by_time) + busy_ns * session->beside.part * by_time;
}

/* Of those that it holds. */
static unsigned first_gpu(const struct arbiter_session *session)
{
    return session->held ? (unsigned)__builtin_ctzll(session->held) : 0;
}

/* What a session used by now and is not charged for yet: in its turn, what it told; and what it will tell if it goes on as in its last
 * stretch. */
static double used_since(const struct arbiter_session *session)
{
    double silent_ns = fmin((double)(session->arbiter->now - session->told_at), SILENT_NS);
    return (is_exclusive(session) ? session->spent_ns : 0) + session->last_used * silent_ns;
}

/* What other sessions used in all of its first GPU, and what that may be wrong by. */
struct others {
    double ns, unsure_ns;
};

/* In which part of the time that passed none of those whose gates were open beside it had work, as they told of late. */
static double idle_of_others(const struct arbiter_session *session, double passed_ns)
{
    double idle = 1;
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next) {
        double open_ns = fmin((double)(session->arbiter->now - at->since), passed_ns);
        if (at != session && (at->held >> first_gpu(session) & 1) && open_ns > 0)
            idle *= 1 - at->last_busy * open_ns / passed_ns;
    }
    return idle;
}

static struct others find_others(const struct arbiter_session *session)
{
    struct others others = {0};
    unsigned gpu = first_gpu(session);
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next) {
        bool is_there = at->held >> gpu & 1;
        double since = is_there ? used_since(at) : 0;
        if (at == session)
            continue;
        others.ns += at->use[gpu].used_ns + since;
        others.unsure_ns += at->use[gpu].unsure_ns + since * arbiter_calls_error(at);
    }
    return others;
}

void arbiter_begin_beside(struct arbiter_session *session)
{
    struct others others = find_others(session);
    session->beside.before_ns = others.ns;
    session->beside.unsure_before_ns = others.unsure_ns;
}

/* A guess at a part of the time, and what it is wrong by, usually. */
struct guess {
    double part, error;
};

/* How far the first is to be believed, and not the second: by the squares of their errors. */
static double weight_of(struct guess guess, struct guess other)
{
    double square = guess.error * guess.error, others = other.error * other.error;
    return square + others > 0 ? others / (square + others) : 1;
}

static struct guess weighed(struct guess a, struct guess b)
{
    double weight = weight_of(a, b);
    return (struct guess){a.part * weight + b.part * (1 - weight), a.error * sqrt(weight)};
}

/* The part of the time in which the GPU works for a session beside others, by how long it has work. In which nobody has is taken to be
 * as in a closed network of queues: programs that share the GPU evenly while they have work, and begin it at any moment. In the rest
 * the GPU works, and what is not the others' is the session's; or it has what it has in such a network. */
static struct guess guess_by_time(const struct beside *beside)
{
    double passed = beside->passed_ns, busy = fmin(beside->busy_ns / passed, 1), idle = 1 - busy;
    double others_idle = beside->others_idle_ns / passed, others = beside->others_ns / passed;
    double sum = 1 + idle + others_idle;
    double all_idle = (sum - sqrt(fmax(sum * sum - 8 * idle * others_idle, 0))) / 2;
    double unknown = fmin(idle, others_idle) - fmax(idle + others_idle - 1, 0);
    double error = hypot(LEFT_ERROR, LEFT_IDLE_ERROR * unknown);
    error = hypot(error, LEFT_CALL_NS * beside->calls / passed);
    struct guess left = {fmax(1 - all_idle, busy) - others, hypot(error, beside->unsure_ns / passed)};
    struct guess even = {all_idle > 0 ? idle * (others_idle / all_idle - 1) : busy / 2, EVEN_ERROR * busy};
    struct guess both = weighed(left, even);
    both.part = fmin(fmax(both.part, 0), busy);
    return both;
}

/* Neither its own calls' cost nor the others' explain how long it had work: what was measured was not of such calls. */
static bool is_unexplained(const struct beside *beside)
{
    return beside->busy_ns > beside->others_ns + beside->unsure_ns + LEFT_CALL_NS * beside->calls +
                                 UNEXPLAINED * beside->spent_ns + LEFT_OF_TURN_NS * beside->turns;
}

double arbiter_note_beside(struct arbiter_session *session, double passed_ns, double busy_ns, double calls,
                           double cost_ns)
{
    struct beside *beside = &session->beside;
    struct others others = find_others(session);
    double others_ns = others.ns - beside->before_ns;
    double unsure_ns = fmax(others.unsure_ns - beside->unsure_before_ns, 0);
    double most_ns = unsure_ns > UNSURE * others_ns ? passed_ns : others_ns;
    beside->passed_ns += passed_ns;
    beside->busy_ns += busy_ns;
    beside->calls += calls;
    beside->spent_ns += fmax(cost_ns, 0);
    beside->others_idle_ns += idle_of_others(session, passed_ns) * passed_ns;
    beside->others_ns += others_ns;
    beside->unsure_ns += unsure_ns;
    beside->before_ns = others.ns;
    beside->unsure_before_ns = others.unsure_ns;
    if (beside->passed_ns < BESIDE_NS || beside->busy_ns <= 0)
        return most_ns;
    struct guess by_time = guess_by_time(beside);
    double spent = beside->spent_ns / beside->passed_ns;
    struct guess by_calls = {spent, spent > 0 ? arbiter_calls_error(session) * spent : 1};
    bool was_unexplained = beside->is_unexplained, unexplained = is_unexplained(beside);
    *beside = (struct beside){
        .before_ns = others.ns,
        .unsure_before_ns = others.unsure_ns,
        .part = by_time.part / fmin(beside->busy_ns / beside->passed_ns, 1),
        .is_unexplained = unexplained,
        /* Once may be what others tell late. */
        .by_time = has_several_processes(session)   ? 0
                   : unexplained && was_unexplained ? 1
                                                    : weight_of(by_time, by_calls),
    };
    return most_ns;
}
