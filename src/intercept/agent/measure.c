/* What the process does with the GPUs: how long it had work before them, how many calls that were, and whether
 * it has any now. */
#include "base/clock.h"
#include "intercept/agent/agent_state.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

/* So many looks make a ratio. */
#define LOOKS_LEAST 4u
/* How long a program must leave the GPU idle until nothing is thought to come soon; and where its gaps are so
 * long that there is no use in waiting. */
#define REST_NS UINT64_C(2000000)
#define REST_SPARSE_NS UINT64_C(60000)

void agent_count_from(struct gate *gate, uint64_t now_ns)
{
    in_flight_take_done(gate);
    agent.measure.from_ns = now_ns;
    agent.measure.looks = agent.measure.busy_looks = 0;
    agent.idle_from_ns = 0;
}

struct agent_measure agent_measure(struct gate *gate, uint64_t now_ns)
{
    struct in_flight_done done = in_flight_take_done(gate);
    struct agent_measure measure = {.calls = done.calls};
    uint64_t passed_ns = now_ns - agent.measure.from_ns;
    /* A long piece of work is told of as a whole, when it is done. */
    if (!done.calls)
        return measure;
    measure.busy_ns = done.ns;
    /* What streams do side by side counts several times there: what the agent saw tells then. */
    agent.measure.is_parallel = done.streams > 1;
    if (agent.measure.is_parallel && agent.measure.looks >= LOOKS_LEAST)
        measure.busy_ns = passed_ns * agent.measure.busy_looks / agent.measure.looks;
    else if (agent.measure.is_parallel && measure.busy_ns > passed_ns)
        measure.busy_ns = passed_ns;
    agent.measure.gap_ns = passed_ns > measure.busy_ns ? (passed_ns - measure.busy_ns) / measure.calls : 0;
    agent.measure.from_ns = now_ns;
    agent.measure.looks = agent.measure.busy_looks = 0;
    return measure;
}

bool agent_look(struct gate *gate)
{
    uint64_t submitted = in_flight_submitted(gate);
    bool busy = atomic_load_explicit(&gate->held, memory_order_relaxed) || !in_flight_is_finished(gate);
    agent.measure.looks++;
    agent.measure.busy_looks += busy;
    if (!busy && !atomic_load_explicit(&gate->resting, memory_order_relaxed)) {
        /* Either the next thread sees it, or this one sees what that submitted. */
        atomic_store_explicit(&gate->resting, true, memory_order_seq_cst);
        gate_barrier(gate);
        busy = in_flight_submitted(gate) != submitted;
    }
    if (busy)
        agent.idle_from_ns = 0;
    else if (!agent.idle_from_ns)
        agent.idle_from_ns = monotonic_ns();
    return busy;
}

uint64_t agent_rest_ns(void)
{
    return agent.measure.gap_ns > REST_NS ? REST_SPARSE_NS : REST_NS;
}

uint64_t agent_next_look_ns(struct gate *gate)
{
    uint64_t left_ns = in_flight_left_ns(gate);
    if (left_ns != UINT64_MAX && left_ns < AGENT_TICK_NS && !agent.measure.is_parallel)
        return left_ns < AGENT_SHORTEST_LOOK_NS ? AGENT_SHORTEST_LOOK_NS : left_ns;
    /* Not in step with the program. */
    agent.measure.chance = agent.measure.chance * 1664525u + 1013904223u;
    return AGENT_TICK_NS / 2 + (uint64_t)(agent.measure.chance >> 12) % AGENT_TICK_NS;
}
