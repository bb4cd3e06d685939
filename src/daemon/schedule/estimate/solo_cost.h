/* solo_cost.h - what a call of a session costs: the GPU time that it takes when no other session's work is there. Pure.
 *
 * The cost is learned while no other session's gate is open. In company, how long calls take depends on the company.
 * Then only a sudden change of that time says something: the program may make other calls now, so they have to be
 * measured again.
 *
 * stretch  some milliseconds for which a session has reported how long it had work before the GPU, and how many calls
 *          were done
 * least    the least time that a single call took: all calls take that much or more
 * trend    the average of such a figure, and how far the figure usually is from it */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct trend {
    double level, spread; /* of the figure's logarithm */
    unsigned count;       /* stretches so far, up to the number that makes a trend */
    unsigned odd;         /* stretches in a row that were beyond the trend */
};

struct solo_cost {
    /* Calls and the time that they took, of which old ones fade; and the same of the stretches in a row that are
     * beyond the trend. */
    double ns, calls, odd_ns, odd_calls;
    /* To tell how much stretches differ: the number of stretches that are not guesses, and sums of the squares of
     * time and calls and of their products. */
    double stretches, ns_squares, calls_squares, products;
    /* The least time that a single call took; 0: no agent says so. */
    double least_ns;
    /* Trends: of what a call takes alone; and of how many times as long it takes in company. */
    struct trend alone, company;
};

/* What so many calls cost, in ns; negative: not known. */
double solo_cost_of(const struct solo_cost *cost, double calls);

/* Whether the cost is so sure that it is not worth more turns: some calls took about the same time, or there were
 * many. */
bool solo_cost_is_sure(const struct solo_cost *cost);
/* Whether calls seem to be alike, one by one and stretch by stretch, so that a few of them tell what any number
 * takes. Few calls may be so by chance. */
bool solo_cost_is_alike(const struct solo_cost *cost);
/* The usual error of the cost, as a part of it, as far as its stretches tell by how much they differ. INFINITY: too
 * few stretches. */
double solo_cost_error(const struct solo_cost *cost);
/* Whether the cost is known well, as far as the measurements tell: then calls are charged by it. */
bool solo_cost_is_steady(const struct solo_cost *cost);

/* The program had work for `busy_ns`, in which so many calls were done. */
struct cost_stretch {
    double busy_ns, calls;
    /* None of the calls was measured: the agent took them to be like calls before, which it had reported already. */
    bool is_guess;
    /* The least time that a measured call took; 0: no agent says so. */
    double least_ns;
};

/* Learn from a stretch without company. `is_measure`: it was made to find out whether the cost has changed, and is
 * believed at once; otherwise several stretches in a row must agree. Returns whether the cost has changed. */
bool solo_cost_learn(struct solo_cost *cost, struct cost_stretch stretch, bool is_measure);

/* Look at a stretch in company. Returns whether the program may have changed. */
bool solo_cost_is_doubtful(struct solo_cost *cost, struct cost_stretch stretch);
