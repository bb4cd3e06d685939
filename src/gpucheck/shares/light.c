/* light.c - programs that leave the GPU idle between their kernels, run beside others: what sharing costs them,
 * compared with the same programs outside of sessions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpucheck/checks.h"
#include "gpucheck/part.h"
#include "gpucheck/work.h"

enum { PAIR_US = 300, PAIR_GAP_US = 300, BURST_US = 1000, PERIOD_US = 20000, TIMES_MOST = 8192 };
/* for the programs to get into step, and the daemon to learn about them */
#define SETTLE_S 1.0
#define WINDOW_S 2.0
#define REST_S 0.3 /* of work after a window */
#define TRIES 3

/* light: its argument is "KERNEL_US GAP_US PERIOD_US". For each line, "BEGIN END" by now_s(), runs one kernel,
 * waits for it and then for a gap, or, if PERIOD_US is not 0, until the next period. Answers how many kernels ended
 * in the window, and the longest that half and 99 of 100 of them took, in milliseconds. */
void part_light(const char *argument)
{
    static double times[TIMES_MOST];
    long kernel_us, gap_us, period_us;
    if (sscanf(argument, "%ld %ld %ld", &kernel_us, &gap_us, &period_us) != 3)
        fail_and_end("a part was told no character");
    open_context();
    part_tell("ready");
    for (;;) {
        double begin_s, end_s, now = now_s(), due = now;
        unsigned count = 0;
        if (sscanf(part_listen(), "%lf %lf", &begin_s, &end_s) != 2)
            fail_and_end("a part was told no window");
        while (now < end_s + REST_S) {
            double from = period_us ? due : now;
            work_launch((uint64_t)kernel_us, NULL);
            must(cuCtxSynchronize());
            now = now_s();
            if (now >= begin_s && now < end_s && count < TIMES_MOST)
                times[count++] = (now - from) * 1e3;
            while (period_us && due <= now)
                due += (double)period_us * 1e-6; /* periods that were missed are skipped */
            sleep_s(period_us ? due - now : (double)gap_us * 1e-6);
            now = now_s();
        }
        part_tell("%u %.4f %.4f", count, count ? quantile(times, count, 0.5) : 0,
                  count ? quantile(times, count, 0.99) : 0);
    }
}

struct light_result {
    unsigned count;
    double p50_ms, p99_ms;
};

static void start(struct part *part, const char *compute, const char *role, const char *argument)
{
    part_start(part, compute ? PART_SHARE(compute) : PART_OUTSIDE, role, argument);
    part_hear(part);
}

static void tell_window(struct part *parts, unsigned count)
{
    double begin_s = now_s() + SETTLE_S;
    for (unsigned i = 0; i < count; i++)
        part_say(&parts[i], "%.9f %.9f", begin_s, begin_s + WINDOW_S);
}

static struct light_result hear_light(struct part *part)
{
    struct light_result result;
    if (sscanf(part_hear(part), "%u %lf %lf", &result.count, &result.p50_ms, &result.p99_ms) != 3)
        fail_and_end("a part did not say what it did");
    return result;
}

/* --- A pair ---------------------------------------------------------------------------------------- */

/* The pair's part of the GPU's time together, in percent. */
static double run_pair(const char *compute)
{
    struct part parts[2];
    unsigned done = 0;
    char argument[32];
    snprintf(argument, sizeof(argument), "%d %d 0", PAIR_US, PAIR_GAP_US);
    for (unsigned i = 0; i < 2; i++)
        start(&parts[i], compute, "light", argument);
    tell_window(parts, 2);
    for (unsigned i = 0; i < 2; i++)
        done += hear_light(&parts[i]).count;
    for (unsigned i = 0; i < 2; i++)
        part_end(&parts[i]);
    return 100 * done * (PAIR_US * 1e-6) / WINDOW_S;
}

void check_light_pair(const struct check *check)
{
    double outside = 0, inside = 0,
           least = settings.simulated ? 0.6 : 0.9; /* on the simulated GPU, tests keep the CPUs busy */
    cpus_are_busy();
    work_calibrate();
    for (unsigned i = 0; i < TRIES && (i == 0 || inside < least * outside); i++) {
        outside = run_pair(NULL);
        inside = run_pair("50%..100%");
    }
    figure("outside", outside, "%");
    figure("inside", inside, "%");
    if (inside < least * outside && cpus_are_busy())
        not_run("the CPUs were busy with something else");
    if (inside < least * outside)
        fail("two programs of short kernels and gaps have %.1f %% of the GPU's time together in sessions of "
             "50 %% each, "
             "and %.1f %% outside",
             inside, outside);
}

/* --- Bursts beside a backlog ----------------------------------------------------------------------- */

/* The times of the bursts. `got`: the backlog's part of the GPU's time, in percent; NULL: no backlog. */
static struct light_result run_bursts(const char *compute, const char *compute_of_backlog, double *got)
{
    struct part parts[2];
    char argument[32];
    snprintf(argument, sizeof(argument), "%d 0 %d", BURST_US, PERIOD_US);
    start(&parts[0], compute, "light", argument);
    if (got)
        start(&parts[1], compute_of_backlog, "work", "");
    tell_window(parts, got ? 2 : 1);
    struct light_result result = hear_light(&parts[0]);
    if (got)
        *got = 100 * part_hear_number(&parts[1]) / WINDOW_S;
    for (unsigned i = 0; i < (got ? 2u : 1u); i++)
        part_end(&parts[i]);
    return result;
}

static void tell_bursts(const char *where, struct light_result result)
{
    char name[64];
    snprintf(name, sizeof(name), "%s_p50", where);
    figure(name, result.p50_ms, "ms");
    snprintf(name, sizeof(name), "%s_p99", where);
    figure(name, result.p99_ms, "ms");
}

void check_bursts_beside_backlog(const struct check *check)
{
    struct light_result outside, inside;
    double got_outside = 0, got_inside = 0, most_ms;
    cpus_are_busy();
    work_calibrate();
    tell_bursts("alone", run_bursts(NULL, NULL, NULL));
    for (unsigned i = 0; i < TRIES; i++) {
        outside = run_bursts(NULL, NULL, &got_outside);
        inside = run_bursts("40%..100%", "20%..100%", &got_inside);
        /* Only the median is judged: a window has a hundred bursts, and one may meet a thread that got no CPU. */
        most_ms = (settings.simulated ? 3 : 1.5) * outside.p50_ms + 1;
        if (inside.count && inside.p50_ms <= most_ms)
            break;
    }
    tell_bursts("outside", outside);
    tell_bursts("inside", inside);
    figure("backlog_outside", got_outside, "%");
    figure("backlog_inside", got_inside, "%");
    if (inside.p50_ms <= most_ms && inside.count)
        return;
    if (cpus_are_busy())
        not_run("the CPUs were busy with something else");
    fail("a burst of %d us each %d ms beside a backlog takes %.1f ms in a session with 40 %%, and %.1f ms "
         "outside",
         BURST_US, PERIOD_US / 1000, inside.p50_ms, outside.p50_ms);
}
