/* shares.c - whether sessions get the promised parts of the GPU's time. Each part is measured twice: by the
 * session's own kernels, each of a known length, and by the daemon's account. If gates stay open, kernels of two
 * processes overlap and the former add up to more than there is, or the latter has nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpucheck/checks.h"
#include "gpucheck/part.h"
#include "gpucheck/work.h"

enum { KERNEL_US = 2000, BATCH = 2, BATCHES = 4 };
#define SETTLE_S 0.5 /* for the programs to get into step */
#define WINDOW_S 1.5
#define ALONE_S 0.5
/* Windows: on busy CPUs a process that does not run cannot launch. */
#define TRIES 3

#define REST_S 0.5 /* of work after a window, while the daemon is asked */

/* work: for each line, "BEGIN END" by now_s(), runs kernels until REST_S after END; answers the run time of those
 * that ended in between. */
void part_work(const char *argument)
{
    CUevent reached[BATCHES];
    open_context();
    for (unsigned i = 0; i < BATCHES; i++)
        must(cuEventCreate(&reached[i], CU_EVENT_DISABLE_TIMING));
    part_tell("ready");
    for (;;) {
        double begin_s, end_s, now;
        unsigned put = 0, done = 0, done_before = 0, done_within = 0;
        if (sscanf(part_listen(), "%lf %lf", &begin_s, &end_s) != 2)
            fail_and_end("a part was told no window");
        while ((now = now_s()) < end_s + REST_S) {
            if (put - done == BATCHES)
                must(cuEventSynchronize(reached[done++ % BATCHES]));
            if (now < begin_s)
                done_before = done;
            if (now < end_s)
                done_within = done - done_before;
            for (unsigned i = 0; i < BATCH; i++)
                work_launch(KERNEL_US, NULL);
            must(cuEventRecord(reached[put++ % BATCHES], NULL));
        }
        must(cuCtxSynchronize());
        part_tell("%.6f", (double)(done_within * BATCH) * KERNEL_US * 1e-6);
    }
}

/* What each part got of a window, in percent: by its kernels and, unless `accounted` is NULL, by the daemon's
 * account. */
static void work_together(struct part *parts, unsigned count, double window_s, double *got, double *accounted)
{
    double begin_s = now_s() + SETTLE_S, end_s = begin_s + window_s, before[2], since_s = 0;
    for (unsigned i = 0; i < count; i++)
        part_say(&parts[i], "%.9f %.9f", begin_s, end_s);
    sleep_s(begin_s - now_s());
    if (accounted) {
        sessions_gpu_seconds(parts, count, before);
        since_s = now_s();
    }
    sleep_s(fmax(end_s - now_s(), 0));
    if (accounted) {
        sessions_gpu_seconds(parts, count, accounted);
        for (unsigned i = 0; i < count; i++)
            accounted[i] = 100 * (accounted[i] - before[i]) / (now_s() - since_s);
    }
    for (unsigned i = 0; i < count; i++)
        got[i] = 100 * part_hear_number(&parts[i]) / window_s;
}

static void start_worker(struct part *part, const char *compute)
{
    part_start(part, compute ? PART_SHARE(compute) : PART_OUTSIDE, "work", "");
    part_hear(part);
}

static double work_alone(void)
{
    struct part part;
    double got;
    start_worker(&part, NULL);
    work_together(&part, 1, ALONE_S, &got, NULL);
    part_end(&part);
    figure("alone_outside", got, "%");
    return got;
}

/* Sessions with these shares; targets in percent of the GPU's time. */
static const struct split {
    const char *name;
    double targets[2];
    const char *shares[2];
} splits[] = {
    {"shares-even", {50, 50}, {"50%..100%", "50%..100%"}},
    {"shares-uneven", {25, 75}, {"25%..100%", "75%..100%"}},
};

/* How many percentage points a part may differ from what was promised. */
static double tolerance(void)
{
    return settings.simulated ? 6 : 3; /* the machine of a simulated GPU is busy with tests */
}

void check_shares(const struct check *check)
{
    const struct split *split = splits;
    struct part parts[2];
    double got[2], accounted[2];
    bool kept = false, is_accounted = false;
    while (strcmp(split->name, check->name) != 0)
        split++;
    cpus_are_busy();
    work_calibrate();
    double alone = work_alone(), least = (settings.simulated ? 0.4 : 0.9) * alone;
    for (unsigned i = 0; i < 2; i++)
        start_worker(&parts[i], split->shares[i]);
    for (unsigned i = 0; i < TRIES && !(kept && is_accounted); i++) {
        work_together(parts, 2, WINDOW_S, got, accounted);
        double sum = got[0] + got[1], of_account = accounted[0] + accounted[1];
        kept = fabs(100 * got[0] / sum - split->targets[0]) <= tolerance() && sum >= least &&
               sum <= 1.1 * alone; /* clocks rise and fall */
        is_accounted = of_account >= least &&
                       fabs(100 * accounted[0] / of_account - split->targets[0]) <= 2 * tolerance();
    }
    part_end(&parts[0]);
    part_end(&parts[1]);
    figure("first", got[0], "%");
    figure("second", got[1], "%");
    figure("first_by_the_daemon", accounted[0], "%");
    figure("second_by_the_daemon", accounted[1], "%");
    if (!(kept && is_accounted) && accounted[0] > 0 && accounted[1] > 0 && cpus_are_busy())
        not_run("the CPUs were busy with something else");
    if (!kept)
        fail("sessions of %s and %s got %.1f and %.1f %% of the GPU's time (one alone without GPU Slice: "
             "%.1f)",
             split->shares[0], split->shares[1], got[0], got[1], alone);
    if (!is_accounted)
        fail("the daemon counts %.1f and %.1f %% of the GPU's time for sessions of %s and %s", accounted[0],
             accounted[1], split->shares[0], split->shares[1]);
}

void check_share_max(const struct check *check)
{
    /* the session may have saved up 50 ms */
    const double most = 25, bucket = 100 * 0.05 / WINDOW_S;
    struct part part;
    double got = 0;
    bool kept = false;
    cpus_are_busy();
    work_calibrate();
    double alone = work_alone(), least = settings.simulated ? 0.4 * most * alone / 100 : most - tolerance();
    start_worker(&part, "0%..25%");
    for (unsigned i = 0; i < TRIES && !kept; i++) {
        work_together(&part, 1, WINDOW_S, &got, NULL);
        kept = got <= most + bucket + 1 && got >= least;
    }
    part_end(&part);
    figure("with_a_maximum_of_25", got, "%");
    if (!kept && got < most && cpus_are_busy())
        not_run("the CPUs were busy with something else");
    if (!kept)
        fail("a session of at most 25 %% got %.1f %% of an idle GPU's time", got);
}
