/* How busy the process keeps the GPUs. */
#include "base/clock.h"
#include "intercept/agent/agent_state.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

void agent_count_from(struct gate *gate, uint64_t now_ns, bool busy)
{
    agent.busy_ns = 0;
    agent.busy_from_ns = busy ? now_ns : 0;
    agent.idle_from_ns = busy ? 0 : now_ns;
    agent.submitted = in_flight_submitted(gate);
}

static void see_idle(uint64_t now_ns)
{
    if (agent.busy_from_ns)
        agent.busy_ns += now_ns - agent.busy_from_ns;
    if (!agent.idle_from_ns)
        agent.idle_from_ns = now_ns;
    agent.busy_from_ns = 0;
}

static void see_busy(struct gate *gate, uint64_t now_ns)
{
    if (!agent.busy_from_ns) {
        uint64_t resumed_ns = atomic_exchange_explicit(&gate->resumed_ns, 0, memory_order_acquire);
        agent.busy_from_ns = resumed_ns > agent.idle_from_ns && resumed_ns < now_ns ? resumed_ns : now_ns;
    }
    agent.idle_from_ns = 0;
}

uint64_t agent_busy_until(uint64_t now_ns)
{
    uint64_t busy_ns = agent.busy_ns;
    if (agent.busy_from_ns && now_ns > agent.busy_from_ns) {
        busy_ns += now_ns - agent.busy_from_ns;
        agent.busy_from_ns = now_ns;
    }
    agent.busy_ns = 0;
    return busy_ns;
}

/* Under a lease: is there work, submitted since the last look or not done yet? */
void agent_look(struct gate *gate)
{
    uint64_t submitted = in_flight_submitted(gate);
    bool busy = submitted != agent.submitted || atomic_load_explicit(&gate->held, memory_order_relaxed) ||
                !in_flight_is_finished(gate);
    agent.submitted = submitted;
    if (busy) {
        see_busy(gate, monotonic_ns());
        return;
    }
    if (!atomic_load_explicit(&gate->resting, memory_order_relaxed)) {
        /* Either the next thread sees it, or this one sees what that submitted. */
        atomic_store_explicit(&gate->resting, true, memory_order_seq_cst);
        gate_barrier(gate);
        if (in_flight_submitted(gate) != submitted) {
            see_busy(gate, monotonic_ns());
            return;
        }
    }
    see_idle(monotonic_ns());
}
