/* idleness.h - whether a program that gives the GPU nothing will give it something soon. Pure: the clock is the caller's.
 *
 * gap   a time without work before the GPU that ended by itself
 *
 * A program that works from one long pause to the next is idle almost at once. One whose work has gaps, as it waits for its
 * data or for a request, is idle once the gap is twice as long as those of late; and any program after IDLENESS_MOST_NS. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define IDLENESS_LEAST_NS UINT64_C(40000000)
#define IDLENESS_MOST_NS UINT64_C(200000000)

struct idleness {
    uint64_t worked_ns; /* when there was work last; 0: it was not looked at yet */
    uint64_t gap_ns;    /* the longest gap of late, of those shorter than IDLENESS_MOST_NS */
    bool is_quiet;      /* there was no work when it was looked at last */
    bool is_idle;
};

/* There is work, or there was some since the last look. */
void idleness_work(struct idleness *idleness, uint64_t now_ns);

/* There was nothing since the last look, and all is done. */
void idleness_rest(struct idleness *idleness, uint64_t now_ns);
