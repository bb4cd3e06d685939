/* solo_cost.h - what a call of a session takes on a GPU when nobody else's work is there. Pure.
 *
 * It is learned while no other session's gate is open. In company, how long calls take depends on the company: then only
 * a sudden change of that says something, namely that the calls may have become others, so that they have to be
 * measured again.
 *
 * stretch  some milliseconds of which a session has told how long it had work before the GPU, and how many calls were
 *          done
 * least    what single calls took at least: all of them take so much or more
 * trend    what such a figure is on average, and how far it usually is from that */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct trend {
    double level, spread; /* of the figure's logarithm */
    unsigned count;       /* stretches, up to those that make a trend */
    unsigned odd;         /* in a row that are beyond it */
};

/* The least that calls took, of so many measures of late. */
struct least {
    double ns, next_ns;
    uint64_t measured; /* since `next_ns` began */
};

struct solo_cost {
    /* Calls, fading, and what they took; those of the stretches in a row that are beyond the trend. */
    double ns, calls, odd_ns, odd_calls;
    /* How much stretches differ: the number of those that are no guess, and sums of squares and products of both. */
    double stretches, ns_squares, calls_squares, products;
    /* The least that a single call took; 0: nobody told. */
    double least_ns;
    /* It is of a stretch in which the calls became others, which may have had both kinds: so many more measures replace it if
     * they differ. */
    unsigned may_be_mixed;
    /* What a call takes alone; how many times as long in company; and the gap that the program leaves between calls, which
     * is its own affair with company and without. */
    struct trend alone, company, gaps;
};

/* What so many calls take; negative where nobody knows. */
double solo_cost_of(const struct solo_cost *cost, double calls);

/* Whether it is worth no more turns to find out: some calls took about alike, or there were many. */
bool solo_cost_is_sure(const struct solo_cost *cost);
/* Whether calls seem to take alike, one by one and stretch by stretch: a few of them tell what any number takes. Few may be so by
 * chance. */
bool solo_cost_is_alike(const struct solo_cost *cost);
/* By how much the cost is wrong, usually, as a part of it, as far as its stretches differ. */
double solo_cost_error(const struct solo_cost *cost);
/* Whether it is known well, as far as what was measured tells: then calls are charged by it. */
bool solo_cost_is_steady(const struct solo_cost *cost);

/* Of `passed_ns`, the program had work for `busy_ns` in which so many calls were done. */
struct cost_stretch {
    double passed_ns, busy_ns, calls;
    /* None of them was measured: they are taken to be like calls of before, which were told of already. */
    bool is_guess;
    /* The least that a single one took, of those that were measured; 0: nobody told. */
    double least_ns;
};

/* A stretch without company. `is_measure`: it was made in order to find out whether the cost has changed, and is believed
 * at once; else only several alike are. Returns whether the cost is another now. */
bool solo_cost_learn(struct solo_cost *cost, struct cost_stretch stretch, bool is_measure);

/* So many measures of calls, and the least that one told of. */
void least_note(struct least *least, uint64_t measured, double ns);
/* What calls take at least; 0: nobody knows. */
double least_of(const struct least *least);

/* A stretch in company. Returns whether the program may have become another. */
bool solo_cost_is_doubtful(struct solo_cost *cost, struct cost_stretch stretch);
