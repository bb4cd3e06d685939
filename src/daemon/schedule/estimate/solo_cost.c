#include "daemon/schedule/estimate/solo_cost.h"

#include <math.h>

/* A cost is sure after this many calls that are alike, or this much GPU time of them, in at least STRETCHES_LEAST
 * stretches. Calls are alike if the trend's spread, a logarithm, is less than ALIKE. For calls that are not alike,
 * CALLS_VARIED is needed. */
#define CALLS_LEAST 4.0
#define NS_LEAST 4000000.0
#define ALIKE 0.05
#define STRETCHES_LEAST 2u
/* The error of a steady cost is less than this, as far as its stretches tell. A few stretches may be alike by
 * chance, so the error that they show is taken to be larger, by the factor 1 + FEW / (stretches - 1). */
#define ERROR_MOST 0.05
/* Where the shortest call takes less than this part of the average, stretches may be alike although calls differ.
 * Then more stretches are needed, and the error that few of them show is taken to be larger still. */
#define ALIKE_LEAST 0.75
#define STRETCHES_DIFFERING 6u
#define FEW_DIFFERING 8
/* Where no call takes less than this part of the average, what few stretches show is hardly chance. */
#define ALIKE_MOST 0.9
#define FEW_ALIKE 1
/* An error of less than this a call does not count, since a single call is not measured more exactly. Otherwise the
 * cost of short calls would not be known for long. */
#define NOISE_NS 20000.0
#define FEW 4
#define CALLS_VARIED 64.0
/* After this much GPU time, older calls count half. */
#define MEMORY_NS 3000000000.0
/* So many measurements make a least time that stands for most calls, and not only for the few that happened to be
 * measured. */
#define MEASURES_OF_LEAST 8u
/* How many stretches make a trend, by which part (1/8) each of them moves it, and how many times the usual distance
 * is beyond it. */
#define TREND_COUNT 8u
#define TREND_PART 8
#define TREND_SPREADS 3
/* A stretch is beyond the trend only if it differs by these factors at least, as logarithms: 1.25 alone, 2 in
 * company. */
#define ODD_ALONE 0.223
#define ODD_COMPANY 0.693
/* After so many stretches in a row beyond the trend, there is another trend. */
#define ODD_STRETCHES 3u
#define ODD_STRETCHES_COMPANY 3u
/* The same for gaps: a factor of 2. GAP_LEAST of the cost is added to each gap, so that very short gaps count as
 * none. */
#define ODD_GAP 0.693
#define GAP_LEAST 0.1
/* How many measurements after a change are each believed at once. */
#define MIXED_MOST 3u

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
    if (trend->count == TREND_COUNT && distance > least + TREND_SPREADS * trend->spread) {
        trend->odd++;
        return true;
    }
    trend->odd = 0;
    trend->level += (value - trend->level) / TREND_PART;
    trend->spread += (distance - trend->spread) / TREND_PART;
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
    double few = !are_calls_alike(cost)                   ? FEW_DIFFERING
                 : cost->least_ns >= ALIKE_MOST * each_ns ? FEW_ALIKE
                                                          : FEW;
    return sqrt(fmax(squares, 0) * cost->stretches / others) / cost->ns * (1 + few / others);
}

bool solo_cost_is_alike(const struct solo_cost *cost)
{
    return are_calls_alike(cost) && cost->alone.spread < ALIKE &&
           (cost->calls >= CALLS_LEAST || cost->ns >= NS_LEAST);
}

bool solo_cost_is_sure(const struct solo_cost *cost)
{
    return cost->alone.count >= STRETCHES_LEAST && (solo_cost_is_alike(cost) || cost->calls >= CALLS_VARIED);
}

bool solo_cost_is_steady(const struct solo_cost *cost)
{
    return cost->stretches >= (are_calls_alike(cost) ? STRETCHES_LEAST : STRETCHES_DIFFERING) &&
           solo_cost_error(cost) < fmax(ERROR_MOST, NOISE_NS / solo_cost_of(cost, 1));
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
    unsigned left = cost->may_be_mixed ? cost->may_be_mixed - 1 : MIXED_MOST;
    *cost = (struct solo_cost){.may_be_mixed = left, .least_ns = least_ns};
    add(cost, ns, calls, false);
    begin_trend(&cost->alone, log(ns / calls));
    cost->alone.count = STRETCHES_LEAST; /* that many were odd, or one was measured on purpose */
}

/* The gap between calls, as a part of what a call costs: a logarithm. */
static double gap_of(const struct solo_cost *cost, struct cost_stretch stretch)
{
    double gap_ns = stretch.passed_ns > stretch.busy_ns ? stretch.passed_ns - stretch.busy_ns : 0;
    return log(GAP_LEAST + gap_ns / solo_cost_of(cost, stretch.calls));
}

/* Whether the value has been beyond the trend for so long that it begins a new one. */
static bool has_turned(struct trend *trend, double value, double least)
{
    if (!is_beyond(trend, value, least) || trend->odd < ODD_STRETCHES_COMPANY)
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
    bool replaces = is_measure && cost->may_be_mixed && distance > ODD_ALONE;
    /* Two stretches that were alike are sure, whatever this one does to the trend. */
    bool was_sure = cost->alone.count > 1 && solo_cost_is_sure(cost);
    double usual = was_sure ? cost->alone.spread : INFINITY;
    bool is_odd = replaces || is_beyond(&cost->alone, log(each_ns), ODD_ALONE) ||
                  (is_measure && distance > ODD_ALONE + TREND_SPREADS * fmin(usual, cost->alone.spread));
    if (cost->calls > 0)
        has_turned(&cost->gaps, gap_of(cost, stretch), ODD_GAP);
    if (!replaces && (!(was_sure || solo_cost_is_sure(cost)) || !is_odd)) {
        cost->odd_ns = cost->odd_calls = 0;
        cost->may_be_mixed -= is_measure && cost->may_be_mixed;
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
    bool is_slower = has_turned(&cost->company, times, ODD_COMPANY);
    return has_turned(&cost->gaps, gap_of(cost, stretch), ODD_GAP) || is_slower;
}

void least_note(struct least *least, uint64_t measured, double ns)
{
    if (!measured)
        return;
    least->next_ns = least->measured && least->next_ns < ns ? least->next_ns : ns;
    least->measured += measured;
    if (least->measured < MEASURES_OF_LEAST)
        return;
    least->ns = least->next_ns;
    least->measured = 0;
}

double least_of(const struct least *least)
{
    return least->ns > 0 && least->measured && least->next_ns < least->ns ? least->next_ns : least->ns;
}
