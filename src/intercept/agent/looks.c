#include "intercept/agent/looks.h"

/* The fewest looks that are enough to say for which part of the time there was work. */
#define LOOKS_LEAST 3u
/* After so many answers, an older one counts e times less; and the time for which looks are taken to agree with marks before
 * they have been compared. */
#define OF_LATE 128.0
#define RIGHT_AT_FIRST_NS 5000000.0
/* The time that marks told, as a part of the time that looks saw. Below the first value, chance alone does not explain that
 * it is less; below the second, chance explains none of it: the streams waited for each other. */
#define WAITS_BELOW 0.98
#define WAITS_FROM 0.92
/* The same after few looks: below this part, streams waited for each other. */
#define WAITS_CLEARLY 0.7
/* Looks miss no more than this factor. */
#define RIGHT_MOST 1.25

void looks_add(struct looks *looks, uint32_t streams)
{
    looks->count++;
    looks->busy += streams > 0;
    looks->streams += streams;
}

void looks_count_anew(struct looks *looks)
{
    looks->count = looks->busy = looks->streams = 0;
}

static void keep(double *of_late, double ns)
{
    *of_late += ns - *of_late / OF_LATE;
}

/* Take the looks since the last count, each of which stands for `each_ns`, and what streams reported, into the memory. */
static void remember(struct looks *looks, double each_ns, uint64_t told_ns)
{
    keep(&looks->any_ns, looks->busy * each_ns);
    keep(&looks->seen_ns, looks->streams * each_ns);
    keep(&looks->told_ns, (double)told_ns);
}

/* The factor to apply to the time for which looks saw work. If marks told clearly less than looks saw, the streams waited
 * for each other, which marks do not count. The missing time was then at the same time as another stream's work. */
static double right_part(const struct looks *looks)
{
    double told_ns = looks->told_ns + RIGHT_AT_FIRST_NS;
    double of_seen = told_ns / (looks->seen_ns + RIGHT_AT_FIRST_NS),
           of_any = told_ns / (looks->any_ns + RIGHT_AT_FIRST_NS);
    if (of_seen > RIGHT_MOST)
        return RIGHT_MOST;
    double waits = of_seen > WAITS_BELOW  ? 0
                   : of_seen < WAITS_FROM ? 1
                                          : (WAITS_BELOW - of_seen) / (WAITS_BELOW - WAITS_FROM);
    return (1 - waits) * of_seen + waits * (of_any < 1 ? of_any : 1);
}

/* Of the time that marks told, the part that was not at the same time as another stream's work, as looks saw it recently. */
static uint64_t merged_ns(const struct looks *looks, uint64_t passed_ns, uint64_t told_ns)
{
    double any_ns = looks->any_ns + RIGHT_AT_FIRST_NS, seen_ns = looks->seen_ns + RIGHT_AT_FIRST_NS;
    bool waits = looks->told_ns + RIGHT_AT_FIRST_NS < WAITS_CLEARLY * seen_ns;
    double busy_ns = waits ? (double)told_ns : (double)told_ns * any_ns / seen_ns;
    return busy_ns < (double)passed_ns ? (uint64_t)busy_ns : passed_ns;
}

uint64_t looks_busy_ns(struct looks *looks, uint64_t passed_ns, uint64_t told_ns, bool is_guess)
{
    if (looks->count < LOOKS_LEAST)
        return merged_ns(looks, passed_ns, told_ns);
    double each_ns = (double)passed_ns / looks->count;
    if (!is_guess)
        remember(looks, each_ns, told_ns);
    double busy_ns = looks->busy * each_ns * right_part(looks);
    return busy_ns < (double)passed_ns ? (uint64_t)busy_ns : passed_ns;
}

uint64_t looks_merged_ns(struct looks *looks, uint64_t passed_ns, uint64_t told_ns)
{
    double each_ns = looks->count ? (double)passed_ns / looks->count : 0;
    remember(looks, each_ns, told_ns);
    return merged_ns(looks, passed_ns, told_ns);
}

uint64_t looks_calls(const struct looks *looks, uint64_t busy_ns, uint64_t told_ns, uint64_t done,
                     uint64_t ahead, uint64_t unreached)
{
    uint64_t least = done > ahead ? done - ahead : 0, most = least + unreached;
    if (looks->any_ns <= 0 || !told_ns)
        return least;
    double at_once = looks->told_ns / (looks->any_ns * right_part(looks));
    double calls = (double)done * (double)busy_ns * at_once / (double)told_ns;
    return calls < (double)least ? least : calls < (double)most ? (uint64_t)calls : most;
}
