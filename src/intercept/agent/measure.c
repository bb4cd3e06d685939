/* measure.c - how busy the process keeps the GPUs: for how long it had work before them, how many calls that was, and
 * whether it has work now. */
#include "base/clock.h"
#include "intercept/agent/agent_state.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

/* After marks last failed to say for how long there was work, looks count for this many more measures, since some pieces of
 * work may be long. */
#define MEASURES_BY_LOOKS 50u
/* The mean time between two looks while looks count. */
#define LOOKS_APART_NS UINT64_C(4000000)
/* For how long a program must leave the GPU idle until no work is expected soon; and the same if its gaps are usually so
 * long that waiting is of no use. */
#define REST_NS UINT64_C(2000000)
#define REST_SPARSE_NS UINT64_C(60000)
/* After this many looks without a rest, the agent looks once in two ticks, after as many more once in three, up to
 * TICKS_MOST. So it notices a rest late by no more than a small part of the time without a rest. */
#define LOOKS_FOR_TICK 16u
#define TICKS_MOST 8u

bool agent_counts_looks(void)
{
    return agent.measure.by_looks > 0;
}

/* A random time from half of `mean_ns` to one and a half times that, so as not to keep step with the program. */
static uint64_t some_time_ns(uint64_t mean_ns)
{
    agent.measure.chance = agent.measure.chance * 1664525u + 1013904223u;
    return mean_ns / 2 + ((uint64_t)(agent.measure.chance >> 8) * mean_ns >> 24);
}

static void begin_looks(uint64_t now_ns)
{
    agent.measure.from_ns = now_ns;
    agent.measure.looks = agent.measure.looks_busy = 0;
}

static uint64_t until_next_look_ns(void)
{
    return some_time_ns(LOOKS_APART_NS);
}

/* Count all moments that were chosen for looks and have passed by now. */
static void count_looks(uint64_t now_ns, bool busy)
{
    for (; agent.measure.look_at_ns <= now_ns; agent.measure.look_at_ns += until_next_look_ns()) {
        agent.measure.looks++;
        agent.measure.looks_busy += busy;
    }
}

void agent_count_from(struct gate *gate, uint64_t now_ns)
{
    in_flight_take_done(gate);
    begin_looks(now_ns);
    agent.measure.look_at_ns = now_ns + until_next_look_ns();
    agent.measure.idle_ns = 0;
    agent.idle_from_ns = 0;
    agent.measure.ends_ns = UINT64_MAX;
}

/* If a few looks all find work, the program need not always have some (Laplace's rule of succession). */
static uint64_t busy_by_looks_ns(uint64_t passed_ns)
{
    return passed_ns * (agent.measure.looks_busy + 1) / (agent.measure.looks + 2);
}

/* The process had work for `told_ns` of the `passed_ns` since the last measure, or earlier: work is told of when it is done. But
 * not for longer than the time that has passed under the lease. */
static uint64_t take_busy_ns(uint64_t told_ns, uint64_t passed_ns)
{
    uint64_t most_ns = agent.measure.idle_ns + passed_ns, busy_ns = told_ns < most_ns ? told_ns : most_ns;
    agent.measure.idle_ns = most_ns - busy_ns;
    return busy_ns;
}

struct agent_measure agent_measure(struct gate *gate, uint64_t now_ns)
{
    struct in_flight_done done = in_flight_take_done(gate);
    struct agent_measure measure = {
        .calls = done.calls, .least_ns = done.least_ns, .measured = done.measured};
    uint64_t passed_ns = now_ns - agent.measure.from_ns;
    /* A long piece of work is reported as a whole, when it is done. */
    if (!done.calls)
        return measure;
    measure.busy_ns = done.streams > 1 ? take_busy_ns(done.ns, passed_ns) : done.ns;
    /* `done.ns` may take all calls to be like a few that waited for other sessions. Then looks count. Without company no call
     * waits for other sessions, and marks tell more. */
    if (done.is_guess && (agent.flags & WIRE_LEASE_COMPANY)) {
        agent.measure.look_at_ns =
            agent_counts_looks() ? agent.measure.look_at_ns : now_ns + until_next_look_ns();
        agent.measure.by_looks = MEASURES_BY_LOOKS;
    } else if (agent_counts_looks()) {
        agent.measure.by_looks--;
    }
    if (agent_counts_looks() && done.unmeasured > done.calls / 2)
        measure.busy_ns = busy_by_looks_ns(passed_ns);
    measure.begun_ns = done.begun_ns < measure.busy_ns ? done.begun_ns : measure.busy_ns;
    agent.measure.gap_ns = passed_ns > measure.busy_ns ? (passed_ns - measure.busy_ns) / measure.calls : 0;
    begin_looks(now_ns);
    return measure;
}

/* For a look that finds no work: since when there has been none. If nothing was submitted since the last look, that is when
 * the work that it found should have ended, up to one tick ago. */
static uint64_t idle_from_ns(uint64_t now_ns, bool has_submitted)
{
    uint64_t ends_ns = agent.measure.ends_ns;
    if (has_submitted || ends_ns >= now_ns)
        return now_ns;
    return ends_ns > now_ns - AGENT_TICK_NS ? ends_ns : now_ns - AGENT_TICK_NS;
}

/* From now on the next submission wakes the agent. False: more than the `submitted` calls were submitted meanwhile, or a
 * thread is inside. */
static bool begin_rest(struct gate *gate, uint64_t submitted)
{
    /* Either the next thread to submit sees `resting`, or the agent sees that thread inside, or what it submitted. */
    if (!atomic_exchange_explicit(&gate->resting, true, memory_order_seq_cst)) {
        gate_barrier(gate);
        if (!gate_is_left_but_for_loads(gate) || in_flight_submitted(gate) != submitted)
            return false;
    }
    return true;
}

bool agent_look(struct gate *gate, uint64_t rest_ns)
{
    uint64_t submitted = in_flight_submitted(gate);
    bool has_submitted = submitted != agent.measure.submitted;
    uint32_t computing, streams = in_flight_streams(gate, agent_counts_looks() ? UINT32_MAX : 1, &computing);
    bool busy = streams || atomic_load_explicit(&gate->held, memory_order_relaxed) ||
                !gate_is_left_but_for_loads(gate);
    if (agent_counts_looks()) /* if the process rested, it had no work until now */
        count_looks(monotonic_ns(), !agent.measure.rests && (streams ? computing > 0 : busy));
    agent.measure.submitted = submitted;
    uint64_t now_ns = monotonic_ns();
    if (!busy && (!agent.idle_from_ns || has_submitted))
        agent.idle_from_ns = idle_from_ns(now_ns, has_submitted);
    /* The rest begins only after `rest_ns`: a program of short work with short gaps would otherwise wake the agent again and
     * again. Nor does it begin while threads wait at the gate, as they do while the process holds still. */
    bool is_kept = atomic_load_explicit(&gate->waiters, memory_order_relaxed) > 0;
    bool may_rest = !busy && !is_kept && !has_submitted && now_ns - agent.idle_from_ns >= rest_ns;
    agent.measure.rests = may_rest && begin_rest(gate, submitted);
    busy = busy || agent.measure.rests != may_rest;
    if (busy || is_kept)
        agent.idle_from_ns = 0;
    agent.measure.looks_since_rest = agent.measure.rests ? 0 : agent.measure.looks_since_rest + 1;
    return busy;
}

/* Whether the program's gaps are usually long. Not in a turn in which calls are measured, since that should show many calls,
 * and since the first gaps are those of a program that loads its code. */
static bool is_sparse(void)
{
    return agent.measure.gap_ns > REST_NS && !(agent.flags & WIRE_LEASE_MEASURE);
}

uint64_t agent_rest_ns(void)
{
    return is_sparse() ? REST_SPARSE_NS : REST_NS;
}

static uint64_t until(uint64_t at_ns, uint64_t now_ns)
{
    return at_ns > now_ns ? at_ns - now_ns : 0;
}

uint64_t agent_next_look_ns(struct gate *gate, bool tells_rest)
{
    uint64_t left_ns = in_flight_left_ns(gate), now_ns = monotonic_ns();
    if (!agent.idle_from_ns)
        agent.measure.ends_ns = left_ns < UINT64_MAX - now_ns ? now_ns + left_ns : UINT64_MAX;
    uint64_t by_chance_ns = agent_counts_looks() ? until(agent.measure.look_at_ns, now_ns) : UINT64_MAX;
    if (agent_counts_looks() && !(agent.idle_from_ns && tells_rest))
        return by_chance_ns;
    if (agent.idle_from_ns) {
        uint64_t rests_ns = until(agent.idle_from_ns + agent_rest_ns(), now_ns);
        /* Only where the daemon is told of bursts does it matter whether work begins before that. */
        uint64_t most_ns = tells_rest ? by_chance_ns : some_time_ns(AGENT_TICK_NS);
        return rests_ns < most_ns ? rests_ns : most_ns;
    }
    uint64_t ticks = 1 + agent.measure.looks_since_rest / LOOKS_FOR_TICK;
    if (is_sparse() && ticks == 1 && left_ns < AGENT_TICK_NS)
        return left_ns + REST_SPARSE_NS;
    return some_time_ns(AGENT_TICK_NS * (ticks < TICKS_MOST ? ticks : TICKS_MOST));
}
