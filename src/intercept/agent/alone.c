/* A process that is limited on its own (standalone.h): its agent keeps the environment's cap on GPU time. */

#include "base/clock.h"
#include "base/units.h"
#include "intercept/agent/agent_state.h"
#include "intercept/session/standalone.h"
#include "intercept/submit/gate.h"

#define PATIENCE_NS UINT64_C(100000000)

uint64_t agent_serve_alone(struct gate *gate)
{
    uint64_t now_ns = monotonic_ns();
    uint32_t cap = standalone_cap(atomic_load_explicit(&gate->gpus, memory_order_relaxed));
    if (!agent.cap.at_ns)
        cap_bucket_begin(&agent.cap, cap, now_ns);
    cap_bucket_advance(&agent.cap, cap, now_ns);
    if (cap == SHARE_WHOLE) {
        gate_open(gate, GATE_FREE);
        return AGENT_CHECK_NS;
    }
    if (atomic_load_explicit(&gate->word, memory_order_relaxed) == GATE_CLOSED) {
        uint64_t wait_ns = cap_bucket_wait_ns(&agent.cap);
        if (wait_ns == 0) {
            agent_count_from(gate, now_ns, atomic_load_explicit(&gate->waiters, memory_order_relaxed) > 0);
            gate_open(gate, GATE_PACED);
        }
        return wait_ns ? wait_ns : AGENT_TICK_NS;
    }
    gate_open(gate, GATE_PACED);
    agent_look(gate);
    cap_bucket_charge(&agent.cap, agent_busy_until(monotonic_ns()));
    if (!cap_bucket_is_spent(&agent.cap) || now_ns < agent.drain_again_ns)
        return atomic_load_explicit(&gate->resting, memory_order_relaxed) ? AGENT_CHECK_NS : AGENT_TICK_NS;
    if (!agent_drain(gate, PATIENCE_NS))
        agent.drain_again_ns = monotonic_ns() + PATIENCE_NS;
    cap_bucket_charge(&agent.cap, agent_busy_until(monotonic_ns()));
    return 0;
}
