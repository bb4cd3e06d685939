/* idleness.h - whether a program that has no work before the GPU will submit some soon. Pure: the clock is the caller's.
 *
 * gap   a time without work before the GPU, after which the program submitted work again
 *
 * A program without gaps is idle after IDLENESS_LEAST_NS. A program with gaps, as when it waits for data or for a request,
 * is idle after that plus twice its longest recent gap. Any program is idle after IDLENESS_MOST_NS. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define IDLENESS_LEAST_NS UINT64_C(40000000)
#define IDLENESS_MOST_NS UINT64_C(200000000)

struct idleness {
    uint64_t worked_ns; /* when a look last found work; 0: there was no look yet */
    uint64_t gap_ns;    /* the longest recent gap that was shorter than IDLENESS_MOST_NS */
    bool is_quiet;      /* the last look found no work */
    bool is_idle;
};

/* A look found work, or there was some since the last look. */
void idleness_work(struct idleness *idleness, uint64_t now_ns);

/* A look found that nothing was submitted since the last look, and that all is done. */
void idleness_rest(struct idleness *idleness, uint64_t now_ns);
