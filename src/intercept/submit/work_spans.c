#include "intercept/submit/work_spans.h"

#include <string.h>

#include "base/least.h"

/* What was taken so many times ago counts e times less. */
#define OF_LATE 8.0

/* What was known counts so many times less once streams may work at other times. */
#define LITTLE 16.0

static uint64_t length_ns(const struct work_span *span)
{
    return span->to_ns - span->from_ns;
}

/* Put `span` in the place of the `count` spans from `at` on. */
static void replace(struct work_spans *spans, uint32_t at, uint32_t count, struct work_span span)
{
    struct work_span *place = &spans->spans[at];
    memmove(place + 1, place + count, (spans->count - at - count) * sizeof *place);
    spans->count = spans->count + 1 - count;
    *place = span;
}

static void close_oldest(struct work_spans *spans)
{
    spans->closed_to_ns = spans->spans[0].to_ns;
    memmove(spans->spans, spans->spans + 1, --spans->count * sizeof *spans->spans);
}

void work_spans_add(struct work_spans *spans, uint64_t from_ns, uint64_t to_ns, uint64_t until_ns)
{
    to_ns = least(to_ns, until_ns);
    if (from_ns >= to_ns)
        return;
    spans->added_ns += to_ns - from_ns;
    if (spans->count == WORK_SPANS)
        close_oldest(spans);
    struct work_span span = {from_ns > spans->closed_to_ns ? from_ns : spans->closed_to_ns, to_ns};
    if (span.from_ns >= to_ns)
        return;
    uint32_t at = spans->count, count = 0;
    while (at > 0 && spans->spans[at - 1].to_ns >= span.from_ns)
        at--;
    for (; at + count < spans->count && spans->spans[at + count].from_ns <= to_ns; count++) {
        const struct work_span *one = &spans->spans[at + count];
        span.from_ns = one->from_ns < span.from_ns ? one->from_ns : span.from_ns;
        span.to_ns = one->to_ns > span.to_ns ? one->to_ns : span.to_ns;
        spans->any_ns -= length_ns(one);
    }
    spans->any_ns += length_ns(&span);
    replace(spans, at, count, span);
}

static void note_delay(double *late_ns, uint64_t ns)
{
    *late_ns += (double)ns - *late_ns / OF_LATE;
}

uint64_t work_spans_take(struct work_spans *spans, uint64_t told_ns)
{
    uint64_t any_ns = spans->any_ns, other_ns = told_ns > spans->added_ns ? told_ns - spans->added_ns : 0;
    note_delay(&spans->late.added_ns, spans->added_ns);
    note_delay(&spans->late.any_ns, any_ns);
    spans->added_ns = spans->any_ns = 0;
    if (spans->late.added_ns > 0)
        other_ns = (uint64_t)((double)other_ns * spans->late.any_ns / spans->late.added_ns);
    return any_ns + other_ns;
}

void work_spans_change(struct work_spans *spans)
{
    spans->late.added_ns /= LITTLE;
    spans->late.any_ns /= LITTLE;
}
