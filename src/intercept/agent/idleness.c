#include "intercept/agent/idleness.h"

#define FORGET_PART 512 /* with each look that finds work, the longest gap shrinks by one part in so many */

static uint64_t idle_after_ns(const struct idleness *idleness)
{
    uint64_t ns = IDLENESS_LEAST_NS + 2 * idleness->gap_ns;
    return ns < IDLENESS_MOST_NS ? ns : IDLENESS_MOST_NS;
}

void idleness_work(struct idleness *idleness, uint64_t now_ns)
{
    uint64_t gap_ns = now_ns - idleness->worked_ns;
    idleness->gap_ns -= idleness->gap_ns / FORGET_PART;
    if (idleness->is_quiet && gap_ns > idleness->gap_ns && gap_ns < IDLENESS_MOST_NS)
        idleness->gap_ns = gap_ns;
    idleness->is_quiet = idleness->is_idle = false;
    idleness->worked_ns = now_ns;
}

void idleness_rest(struct idleness *idleness, uint64_t now_ns)
{
    if (!idleness->worked_ns)
        idleness->worked_ns = now_ns;
    idleness->is_quiet = true;
    idleness->is_idle = now_ns - idleness->worked_ns >= idle_after_ns(idleness);
}
