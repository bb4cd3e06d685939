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

/* Whether this is a turn in which calls are measured. Looks are few in such a turn. */
static bool is_measured_alone(void)
{
    return agent.flags & WIRE_LEASE_MEASURE;
}

static void begin_looks(uint64_t now_ns)
{
    agent.measure.from_ns = now_ns;
    looks_count_anew(&agent.measure.looks);
    looks_count_anew(&agent.measure.looks_alone);
}

static uint64_t until_next_look_ns(void)
{
    return some_time_ns(LOOKS_APART_NS);
}

/* Count all moments that were chosen for looks and have passed by now. At each of them, `streams` streams had work. */
static void count_looks(uint64_t now_ns, uint32_t streams)
{
    for (; agent.measure.look_at_ns <= now_ns; agent.measure.look_at_ns += until_next_look_ns())
        looks_add(is_measured_alone() ? &agent.measure.looks_alone : &agent.measure.looks, streams);
}

void agent_count_from(struct gate *gate, uint64_t now_ns)
{
    in_flight_take_done(gate);
    begin_looks(now_ns);
    agent.measure.look_at_ns = now_ns + until_next_look_ns();
    agent.measure.ahead = 0;
    agent.idle_from_ns = 0;
    agent.measure.ends_ns = UINT64_MAX;
}

static uint64_t busy_by_looks_ns(uint64_t passed_ns, uint64_t told_ns, bool is_guess)
{
    struct looks *looks = &agent.measure.looks;
    /* If a few looks all find work, the program need not always have some (Laplace's rule of succession). */
    if (!agent.measure.is_parallel)
        return passed_ns * (looks->busy + 1) / (looks->count + 2);
    if (is_measured_alone())
        return looks_merged_ns(&agent.measure.looks_alone, passed_ns, told_ns);
    return looks_busy_ns(looks, passed_ns, told_ns, is_guess);
}

/* How many calls to report with `busy_ns`: those that are known to be done; or, `by_looks`, those that were done in the time
 * for which looks saw work. */
static uint64_t count_calls(const struct in_flight_done *done, uint64_t busy_ns, bool by_looks)
{
    uint64_t ahead = agent.measure.ahead, calls = done->calls > ahead ? done->calls - ahead : 0;
    if (by_looks)
        calls = looks_calls(&agent.measure.looks, busy_ns, done->ns, done->calls, ahead, done->unreached);
    calls += calls == 0;
    agent.measure.ahead = calls + ahead > done->calls ? calls + ahead - done->calls : 0;
    return calls;
}

struct agent_measure agent_measure(struct gate *gate, uint64_t now_ns)
{
    struct in_flight_done done = in_flight_take_done(gate);
    struct agent_measure measure = {.least_ns = done.least_ns, .measured = done.measured};
    uint64_t passed_ns = now_ns - agent.measure.from_ns;
    /* A long piece of work is reported as a whole, when it is done. */
    if (!done.calls)
        return measure;
    measure.busy_ns = done.ns;
    /* `done.ns` counts the time of streams that work side by side several times. It may also take all calls to be like a few
     * that waited for other sessions. In both cases looks count. Without company no call waits for other sessions, and marks
     * tell more. */
    bool is_guess = done.is_guess && (agent.flags & WIRE_LEASE_COMPANY);
    if (done.streams > 1 || is_guess) {
        agent.measure.is_parallel = done.streams > 1;
        agent.measure.look_at_ns =
            agent_counts_looks() ? agent.measure.look_at_ns : now_ns + until_next_look_ns();
        agent.measure.by_looks = MEASURES_BY_LOOKS;
    } else if (agent_counts_looks()) {
        agent.measure.by_looks--;
    }
    bool by_looks = agent_counts_looks() && (agent.measure.is_parallel || done.unmeasured > done.calls / 2);
    if (by_looks)
        measure.busy_ns = busy_by_looks_ns(passed_ns, done.ns, is_guess);
    measure.calls = count_calls(&done, measure.busy_ns,
                                by_looks && agent.measure.is_parallel && !is_guess && !is_measured_alone());
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
        count_looks(monotonic_ns(), agent.measure.rests ? 0 : streams ? computing : busy);
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
