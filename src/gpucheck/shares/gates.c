/* gates.c - what opening and closing gates does to programs: it must not disturb captures, nor cause long pauses. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpucheck/checks.h"
#include "gpucheck/part.h"
#include "gpucheck/work.h"

/* --- Captures -------------------------------------------------------------------------------------- */

enum { CAPTURES = 30, CAPTURED = 20, KERNEL_US = 200 };
#define CAPTURES_S 8.0 /* limit for the captures */

static struct {
    CUcontext context;
    CUstream stream;
    atomic_bool over;
} beside;

static void *launch_beside(void *unused)
{
    must(cuCtxSetCurrent(beside.context));
    while (!atomic_load(&beside.over)) {
        for (unsigned i = 0; i < 5; i++)
            work_launch(KERNEL_US, beside.stream);
        sleep_s(0.003); /* a global capture forbids waiting for them */
    }
    return NULL;
}

static void capture_once(CUstream stream, unsigned mode)
{
    CUgraph graph;
    CUgraphExec exec;
    size_t nodes = 0, edges = 0;
    must(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)mode));
    for (unsigned i = 0; i < CAPTURED; i++) {
        work_launch(KERNEL_US, stream);
        if (i % 5 == 0)
            sleep_s(0.0003); /* so that gates close during every part of the capture */
    }
    must(cuStreamEndCapture(stream, &graph));
    must(cuGraphGetNodes(graph, NULL, &nodes));
    must(cuGraphGetEdges(graph, NULL, NULL, &edges));
    if (nodes != CAPTURED || edges != CAPTURED - 1)
        fail_and_end("a capture of %d launches in mode %u has %zu nodes and %zu edges", CAPTURED, mode, nodes,
                     edges);
    must(cuGraphInstantiateWithFlags(&exec, graph, 0));
    must(cuGraphLaunch(exec, stream));
    must(cuStreamSynchronize(stream));
    must(cuGraphExecDestroy(exec));
    must(cuGraphDestroy(graph));
}

/* captures: CAPTURES in each mode beside another thread's launches; answers how many there were. */
void part_captures(const char *argument)
{
    pthread_t thread;
    CUstream stream;
    unsigned done = 0;
    open_context();
    must(cuCtxGetCurrent(&beside.context));
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    must(cuStreamCreate(&beside.stream, CU_STREAM_NON_BLOCKING));
    /* With lazy loading the first launch loads the kernel, for which a capture is no time. */
    work_launch(KERNEL_US, stream);
    must(cuStreamSynchronize(stream));
    part_tell("ready");
    part_listen();
    if (pthread_create(&thread, NULL, launch_beside, NULL) != 0)
        not_run("no second thread");
    double end_s = now_s() + CAPTURES_S;
    for (unsigned i = 0; i < CAPTURES && now_s() < end_s; i++)
        for (unsigned mode = 0; mode < 3; mode++, done++)
            capture_once(stream, mode);
    atomic_store(&beside.over, true);
    pthread_join(thread, NULL);
    part_tell("%u", done);
    part_listen();
}

void check_capture_gates(const struct check *check)
{
    struct part rival, captures;
    work_calibrate();
    part_start(&rival, PART_SHARE("50%..100%"), "work", "");
    part_start(&captures, PART_SHARE("25%..100%"), "captures", "");
    part_hear(&rival);
    part_hear(&captures);
    scheduler_quantum("1ms");
    part_say(&rival, "%.9f %.9f", now_s(), now_s() + 60);
    uint64_t before = lease_handovers();
    part_say(&captures, "go");
    double done = part_hear_number(&captures);
    figure("captures", done, "count");
    tell_closings(before);
    scheduler_quantum("auto");
    part_end(&captures);
    part_kill(&rival);
}

/* --- Hand-overs ------------------------------------------------------------------------------------ */

enum { PAUSES = 8192 };
#define PAUSE_S 20e-6 /* from this length on a gate may have been closed */
#define HANDOVER_S 2.0

struct pause {
    double last_s, first_s; /* the submissions before and after it */
};

/* submit: for each line, empty kernels without a rest for HANDOVER_S; answers how many pauses there were, and then
 * each of them. */
void part_submit(const char *argument)
{
    static struct pause pauses[PAUSES];
    open_context();
    part_tell("ready");
    for (;;) {
        unsigned count = 0;
        part_listen();
        double last_s = now_s(), end_s = last_s + HANDOVER_S;
        while (last_s < end_s) {
            work_launch_steps(0, NULL);
            double now = now_s();
            if (now - last_s >= PAUSE_S && count < PAUSES)
                pauses[count++] = (struct pause){last_s, now};
            last_s = now;
        }
        part_tell("%u", count);
        for (unsigned i = 0; i < count; i++)
            part_tell("%.9f %.9f", pauses[i].last_s, pauses[i].first_s);
        must(cuCtxSynchronize());
    }
}

static unsigned hear_pauses(struct part *part, struct pause *pauses)
{
    unsigned count = (unsigned)part_hear_number(part);
    for (unsigned i = 0; i < count; i++)
        if (sscanf(part_hear(part), "%lf %lf", &pauses[i].last_s, &pauses[i].first_s) != 2)
            fail_and_end("its part '%s' said '%s'", part->name, part->line);
    return count;
}

/* The time from the giver's last submission to the taker's first, at each change: the taker's pause began before,
 * and the giver's pause goes on after. Other pauses come from the CPU. */
static unsigned find_gaps(const struct pause *giver, unsigned givers, const struct pause *taker,
                          unsigned takers, double *gaps)
{
    unsigned count = 0;
    for (unsigned i = 0, at = 0; i < takers; i++) {
        while (at < givers && giver[at].first_s <= taker[i].first_s)
            at++;
        if (at < givers && giver[at].last_s > taker[i].last_s && giver[at].last_s < taker[i].first_s)
            gaps[count++] = (taker[i].first_s - giver[at].last_s) * 1e6;
    }
    return count;
}

void check_handover(const struct check *check)
{
    enum { SEEN_LEAST = 20 };
    static struct pause pauses[2][PAUSES];
    static double gaps[2 * PAUSES];
    /* on the simulated GPU, tests keep the CPUs busy */
    const double most_us = settings.simulated ? 50e3 : 2e3;
    struct part parts[2];
    unsigned counts[2];
    for (unsigned i = 0; i < 2; i++) {
        part_start(&parts[i], PART_SHARE("50%..100%"), "submit", "");
        part_hear(&parts[i]);
    }
    scheduler_quantum("2ms");
    cpus_are_busy();
    uint64_t before = lease_handovers();
    for (unsigned i = 0; i < 2; i++)
        part_say(&parts[i], "go");
    for (unsigned i = 0; i < 2; i++)
        counts[i] = hear_pauses(&parts[i], pauses[i]);
    uint64_t told = lease_handovers() - before;
    bool are_busy = cpus_are_busy();
    scheduler_quantum("auto");
    part_end(&parts[0]);
    part_end(&parts[1]);
    unsigned count = find_gaps(pauses[0], counts[0], pauses[1], counts[1], gaps);
    count += find_gaps(pauses[1], counts[1], pauses[0], counts[0], gaps + count);
    figure("seen", count, "count");
    figure("by_the_daemon", (double)told, "count");
    double middle = count ? median(gaps, count) : INFINITY;
    if (told && are_busy && (count < SEEN_LEAST || told < SEEN_LEAST || middle > most_us))
        not_run("the CPUs were busy with something else");
    if (count < SEEN_LEAST || told < SEEN_LEAST) {
        fail("%u hand-overs were seen in %.0f s, and %llu by the daemon; %d are needed to say anything",
             count, HANDOVER_S, (unsigned long long)told, SEEN_LEAST);
        return;
    }
    figure("nobody_submits_median", middle, "us");
    figure("nobody_submits_p99", quantile(gaps, count, 0.99), "us");
    if (middle > most_us)
        fail("nobody submits for %.0f us at a hand-over; at most %.0f are allowed", middle, most_us);
}
