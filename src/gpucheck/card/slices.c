/* slices.c - how a card is shared by processes without GPU Slice: how long each has the card, and what a change
 * costs. All work is of a known length, as a clock goes on while another process has the GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpucheck/checks.h"
#include "gpucheck/part.h"
#include "gpucheck/work.h"

enum { LONG_US = 100000, SHORT_US = 20, SHORT_MOST = 4096 };
#define LOOK_S 1.2

/* long: for each line, runs that many kernels of LONG_US; answers how long they took, in seconds. */
void part_long(const char *argument)
{
    open_context();
    part_tell("ready");
    for (;;) {
        long count = strtol(part_listen(), NULL, 10);
        double begin_s = now_s();
        for (long i = 0; i < count; i++)
            work_launch(LONG_US, NULL);
        must(cuCtxSynchronize());
        part_tell("%.6f", now_s() - begin_s);
    }
}

/* Run short kernels one by one for LOOK_S, with a rest before each, in which the other process gets the GPU again.
 * `times` is from a kernel's launch to its end, `since` from the end of the kernel before, where the other's slice
 * begins; both in microseconds. Returns how many there were. */
static unsigned time_short_ones(double *times, double *since)
{
    unsigned count = 0;
    double last_s = now_s(), end_s = last_s + LOOK_S;
    while (last_s < end_s && count < SHORT_MOST) {
        sleep_s(0.0003);
        double begin_s = now_s();
        work_launch(SHORT_US, NULL);
        must(cuCtxSynchronize());
        double now = now_s();
        times[count] = (now - begin_s) * 1e6;
        since[count++] = (now - last_s) * 1e6;
        last_s = now;
    }
    return count;
}

/* Of short kernels that come while another process's long one runs: what two events around one of them tell, in
 * microseconds. */
static double time_by_events(void)
{
    static double times[SHORT_MOST];
    unsigned count = 0;
    CUevent before, behind;
    float ms;
    must(cuEventCreate(&before, CU_EVENT_DEFAULT));
    must(cuEventCreate(&behind, CU_EVENT_DEFAULT));
    for (double end_s = now_s() + LOOK_S; now_s() < end_s && count < SHORT_MOST;) {
        sleep_s(0.0003);
        must(cuEventRecord(before, NULL));
        work_launch(SHORT_US, NULL);
        must(cuEventRecord(behind, NULL));
        must(cuCtxSynchronize());
        must(cuEventElapsedTime(&ms, before, behind));
        times[count++] = (double)ms * 1e3;
    }
    must(cuEventDestroy(before));
    must(cuEventDestroy(behind));
    return median(times, count);
}

static double run_long(struct part *part, unsigned count)
{
    part_say(part, "%u", count);
    return part_hear_number(part);
}

/* How long they take side by side, in seconds. */
static double run_both(struct part *parts, unsigned count)
{
    part_say(&parts[0], "%u", count);
    part_say(&parts[1], "%u", count);
    double first = part_hear_number(&parts[0]), second = part_hear_number(&parts[1]);
    return fmax(first, second);
}

void check_slices(const struct check *check)
{
    enum { KERNELS = 5 };
    static double times[SHORT_MOST], since[SHORT_MOST];
    struct part parts[2];
    open_context();
    work_calibrate_here();
    for (unsigned i = 0; i < 2; i++) {
        part_start(&parts[i], PART_OUTSIDE, "long", "");
        part_hear(&parts[i]);
    }
    unsigned count = time_short_ones(times, since);
    double alone_us = median(times, count);
    figure("short_kernel_alone", alone_us, "us");

    part_say(&parts[0], "%u", (unsigned)(2 * LOOK_S * 1e6 / LONG_US) + 4);
    sleep_s(0.05);
    count = time_short_ones(times, since);
    double beside_us = median(times, count), by_events_us = time_by_events();
    figure("short_kernel_beside_long_ones", beside_us, "us");
    figure("short_kernel_beside_long_ones_p99", quantile(times, count, 0.99), "us");
    figure("short_kernel_beside_long_ones_by_events", by_events_us, "us");
    part_hear_number(&parts[0]);
    bool is_preempted = beside_us < LONG_US / 2, waits = by_events_us - alone_us < (beside_us - alone_us) / 2;
    figure_text("a_running_kernel_is_preempted", "%s", is_preempted ? "yes" : "no");
    figure_text("an_event_waits_for_a_slice", "%s", waits ? "yes" : "no");

    double one_s = run_long(&parts[0], KERNELS), both_s = run_both(parts, KERNELS);
    part_end(&parts[0]);
    part_end(&parts[1]);
    double slice_us = is_preempted ? median(since, count) - alone_us : LONG_US;
    /* Two programs that always want the GPU change places after each slice. */
    double switches = slice_us > 0 ? both_s * 1e6 / slice_us : 0,
           lost_us = switches > 0 ? fmax((both_s - 2 * one_s) * 1e6 / switches, 0) : 0;
    figure("long_work_alone", one_s * 1e3, "ms");
    figure("two_long_works", both_s * 1e3, "ms");
    figure("slice", fmax(slice_us - lost_us, 0), "us");
    figure("switch", lost_us, "us");
    if (both_s < 1.5 * one_s)
        fail("two works that need the whole GPU took %.0f ms side by side, one alone %.0f: they did not "
             "share it",
             both_s * 1e3, one_s * 1e3);
}

/* --- Many small launches --------------------------------------------------------------------------- */

enum { SMALL_US = 10, BATCH = 32 };
#define WINDOW_S 1.5
#define SETTLE_S 0.5

/* small: for each line, "BEGIN END" by now_s(), runs kernels of SMALL_US, waiting for each batch; answers how many
 * ended in between. */
void part_small(const char *argument)
{
    open_context();
    part_tell("ready");
    for (;;) {
        double begin_s, end_s, now;
        unsigned long done = 0;
        if (sscanf(part_listen(), "%lf %lf", &begin_s, &end_s) != 2)
            fail_and_end("a part was told no window");
        while ((now = now_s()) < end_s) {
            for (unsigned i = 0; i < BATCH; i++)
                work_launch(SMALL_US, NULL);
            must(cuCtxSynchronize());
            done += now >= begin_s ? BATCH : 0;
        }
        part_tell("%lu", done);
    }
}

/* Launches a second of each of `count` programs, each in a session of `share` (NULL: outside). */
static void run_small(unsigned count, const char *share, double *a_second)
{
    struct part parts[2];
    for (unsigned i = 0; i < count; i++) {
        part_start(&parts[i], share ? PART_SHARE(share) : PART_OUTSIDE, "small", "");
        part_hear(&parts[i]);
    }
    double begin_s = now_s() + SETTLE_S;
    for (unsigned i = 0; i < count; i++)
        part_say(&parts[i], "%.9f %.9f", begin_s, begin_s + WINDOW_S);
    for (unsigned i = 0; i < count; i++)
        a_second[i] = part_hear_number(&parts[i]) / WINDOW_S;
    for (unsigned i = 0; i < count; i++)
        part_end(&parts[i]);
}

void check_small_launches(const struct check *check)
{
    double alone, outside[2], even[2], capped;
    work_calibrate();
    run_small(1, NULL, &alone);
    run_small(2, NULL, outside);
    run_small(2, "50%..100%", even);
    run_small(1, "0%..25%", &capped);
    figure("alone", alone, "1/s");
    figure("two_outside", outside[0] + outside[1], "1/s");
    figure("two_at_50", even[0] + even[1], "1/s");
    figure("two_at_50_the_slower", fmin(even[0], even[1]), "1/s");
    figure("one_of_at_most_25", capped, "1/s");
    if (fmin(even[0], even[1]) <= 0 || capped <= 0)
        fail("a program of many small launches did nothing in a session");
}
