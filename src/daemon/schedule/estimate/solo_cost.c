#include "daemon/schedule/estimate/solo_cost.h"

#include "daemon/schedule/rules.h"
#include "daemon/schedule/tunables.h"
#include <math.h>

static void begin_trend(struct trend *trend, double value)
{
    *trend = (struct trend){.level = value, .count = 1};
}

/* Whether the value is beyond the trend. If it is not, it moves the trend. */
static bool is_beyond(struct trend *trend, double value, double least)
{
    if (trend->count == 0) {
        begin_trend(trend, value);
        return false;
    }
    double distance = fabs(value - trend->level);
    if (trend->count == TREND_COUNT && distance > least + SURE * trend->spread) {
        trend->odd++;
        return true;
    }
    trend->odd = 0;
    trend->level += (value - trend->level) / TREND_COUNT;
    trend->spread += (distance - trend->spread) / TREND_COUNT;
    trend->count += trend->count < TREND_COUNT;
    return false;
}

double solo_cost_of(const struct solo_cost *cost, double calls)
{
    return cost->calls > 0 ? calls * cost->ns / cost->calls : -1;
}

/* Whether the shortest call took about as long as all do on average, or no agent says so. */
static bool are_calls_alike(const struct solo_cost *cost)
{
    return cost->least_ns >= ALIKE_LEAST * solo_cost_of(cost, 1) || cost->least_ns <= 0;
}

/* The standard error of a ratio of two sums, time over calls. */
double solo_cost_error(const struct solo_cost *cost)
{
    if (cost->stretches < STRETCHES_LEAST || cost->ns <= 0)
        return INFINITY;
    double each_ns = cost->ns / cost->calls, others = cost->stretches - 1;
    double squares =
        cost->ns_squares - 2 * each_ns * cost->products + each_ns * each_ns * cost->calls_squares;
    return sqrt(fmax(squares, 0) * cost->stretches / others) / cost->ns * (1 + FEW / others);
}

bool solo_cost_is_alike(const struct solo_cost *cost)
{
    return are_calls_alike(cost) && cost->alone.spread < ERROR_MOST &&
           (cost->calls >= CALLS_LEAST || cost->ns >= NS_LEAST);
}

bool solo_cost_is_sure(const struct solo_cost *cost)
{
    return cost->alone.count >= STRETCHES_LEAST && (solo_cost_is_alike(cost) || cost->calls >= CALLS_VARIED);
}

bool solo_cost_is_steady(const struct solo_cost *cost)
{
    return cost->stretches >= (are_calls_alike(cost) ? STRETCHES_LEAST : 3 * STRETCHES_LEAST) &&
           solo_cost_error(cost) < ERROR_MOST;
}

static void note_least(struct solo_cost *cost, double ns)
{
    if (ns > 0 && (cost->least_ns <= 0 || ns < cost->least_ns))
        cost->least_ns = ns;
}

static void add(struct solo_cost *cost, double busy_ns, double calls, bool is_guess)
{
    if (cost->ns > MEMORY_NS) {
        cost->ns /= 2;
        cost->calls /= 2;
        cost->stretches /= 2;
        cost->ns_squares /= 2;
        cost->calls_squares /= 2;
        cost->products /= 2;
    }
    cost->ns += busy_ns;
    cost->calls += calls;
    cost->stretches += !is_guess;
    cost->ns_squares += busy_ns * busy_ns;
    cost->calls_squares += calls * calls;
    cost->products += busy_ns * calls;
}

static void begin_anew(struct solo_cost *cost, double least_ns)
{
    double ns = cost->odd_ns, calls = cost->odd_calls;
    *cost = (struct solo_cost){.least_ns = least_ns};
    add(cost, ns, calls, false);
    begin_trend(&cost->alone, log(ns / calls));
    cost->alone.count = STRETCHES_LEAST; /* that many were odd, or one was measured on purpose */
}

/* Whether the value has been beyond the trend for so long that it begins a new one. */
static bool has_turned(struct trend *trend, double value, double least)
{
    if (!is_beyond(trend, value, least) || trend->odd < ODD_STRETCHES)
        return false;
    begin_trend(trend, value);
    return true;
}

bool solo_cost_learn(struct solo_cost *cost, struct cost_stretch stretch, bool is_measure)
{
    if (stretch.calls < 1 || stretch.busy_ns <= 0)
        return false;
    double each_ns = stretch.busy_ns / stretch.calls;
    double distance = cost->calls > 0 ? fabs(log(each_ns / solo_cost_of(cost, 1))) : 0;
    /* Two stretches that were alike are sure, whatever this one does to the trend. */
    bool was_sure = cost->alone.count > 1 && solo_cost_is_sure(cost);
    double usual = was_sure ? cost->alone.spread : INFINITY;
    bool is_odd = is_beyond(&cost->alone, log(each_ns), ODD_ALONE) ||
                  (is_measure && distance > ODD_ALONE + SURE * fmin(usual, cost->alone.spread));
    if (!(was_sure || solo_cost_is_sure(cost)) || !is_odd) {
        cost->odd_ns = cost->odd_calls = 0;
        add(cost, stretch.busy_ns, stretch.calls, stretch.is_guess);
        note_least(cost, stretch.least_ns);
        return false;
    }
    cost->odd_ns += stretch.busy_ns;
    cost->odd_calls += stretch.calls;
    if (!is_measure && cost->alone.odd < ODD_STRETCHES)
        return false;
    begin_anew(cost, stretch.least_ns);
    return true;
}

bool solo_cost_is_doubtful(struct solo_cost *cost, struct cost_stretch stretch)
{
    if (cost->calls <= 0 || stretch.calls < 1 || stretch.busy_ns <= 0)
        return false;
    double times = log(stretch.busy_ns / solo_cost_of(cost, stretch.calls));
    return is_on(doubt_company) && has_turned(&cost->company, times, ODD_COMPANY);
}
