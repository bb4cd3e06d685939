#include "intercept/agent/looks.h"

/* So many make a ratio. */
#define LOOKS_LEAST 3u
/* After so many answers, older ones count e times less; and what looks are taken to be right for, before they were seen to be. */
#define OF_LATE 128.0
#define RIGHT_AT_FIRST_NS 5000000.0
/* What streams told, of what looks saw, where chance alone does not explain it; and where it does not explain any of it. */
#define WAITS_BELOW 0.98
#define WAITS_FROM 0.92
/* By few looks, streams wait for each other where they told of so small a part of what was seen. */
#define WAITS_CLEARLY 0.7
/* Looks are not more wrong than that. */
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

/* What is to be counted for the time in which looks saw work. Where streams told clearly less than looks saw, they waited for
 * each other, which marks do not count: then what is missing was at the same time as another's work. */
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

/* Of what streams told, what was not at the same time as another's work, as looks saw it of late. */
static uint64_t apart_ns(const struct looks *looks, uint64_t passed_ns, uint64_t told_ns)
{
    double any_ns = looks->any_ns + RIGHT_AT_FIRST_NS, seen_ns = looks->seen_ns + RIGHT_AT_FIRST_NS;
    bool waits = looks->told_ns + RIGHT_AT_FIRST_NS < WAITS_CLEARLY * seen_ns;
    double busy_ns = waits ? (double)told_ns : (double)told_ns * any_ns / seen_ns;
    return busy_ns < (double)passed_ns ? (uint64_t)busy_ns : passed_ns;
}

uint64_t looks_busy_ns(struct looks *looks, uint64_t passed_ns, uint64_t told_ns, bool is_guess)
{
    if (looks->count < LOOKS_LEAST)
        return apart_ns(looks, passed_ns, told_ns);
    double each_ns = (double)passed_ns / looks->count;
    if (!is_guess) {
        keep(&looks->any_ns, looks->busy * each_ns);
        keep(&looks->seen_ns, looks->streams * each_ns);
        keep(&looks->told_ns, (double)told_ns);
    }
    double busy_ns = looks->busy * each_ns * right_part(looks);
    return busy_ns < (double)passed_ns ? (uint64_t)busy_ns : passed_ns;
}

uint64_t looks_apart_ns(struct looks *looks, uint64_t passed_ns, uint64_t told_ns)
{
    double each_ns = looks->count ? (double)passed_ns / looks->count : 0;
    keep(&looks->any_ns, looks->busy * each_ns);
    keep(&looks->seen_ns, looks->streams * each_ns);
    keep(&looks->told_ns, (double)told_ns);
    return apart_ns(looks, passed_ns, told_ns);
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
