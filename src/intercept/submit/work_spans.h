/* work_spans.h - for how long the streams of a process had work, if work of several streams at once counts once. Pure.
 *
 * Marks tell when a stream had the calls that were measured. For how long it had other calls is only known about, and not
 * when: they are taken to be at the same time as other work for as great a part of their time as measured ones are. So the
 * measured calls are to be all calls of all streams, or those of some slices of time. */
#pragma once

#include <stdint.h>

/* If more spans lie apart, the oldest one is closed: earlier work that is told later is taken to lie in it. */
#define WORK_SPANS 64u

/* To begin with, all is zero. */
struct work_spans {
    /* In which some stream had work. In their order, apart from each other; CLOCK_MONOTONIC. */
    struct work_span {
        uint64_t from_ns, to_ns;
    } spans[WORK_SPANS];
    uint32_t count;
    /* When the last closed span ended. */
    uint64_t closed_to_ns;
    /* Since work_spans_take(): measured work of all streams added up; and for how long any stream had some. */
    uint64_t added_ns, any_ns;
    /* The same in recent time; older time counts less. */
    struct {
        double added_ns, any_ns;
    } late;
};

/* A stream had measured work from `from_ns` until `to_ns`. `until_ns`: that of the other streams is measured until then; what is
 * later counts as work that was not measured. */
void work_spans_add(struct work_spans *spans, uint64_t from_ns, uint64_t to_ns, uint64_t until_ns);

/* The work of all streams since this was last called, measured or not, added up to `told_ns`: for how long any stream had
 * some. */
uint64_t work_spans_take(struct work_spans *spans, uint64_t told_ns);

/* From now on the streams may work at other times: what is known of recent time counts little. */
void work_spans_change(struct work_spans *spans);
