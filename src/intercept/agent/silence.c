/* silence.c - a daemon that hangs. Its connection does not end, so a gate that it had closed would stay closed, and a thread
 * that asked it for room would wait for ever. */
#include "base/clock.h"
#include "intercept/agent/agent_state.h"
#include "intercept/session/session.h"

#define LOOK_NS UINT64_C(500000000)
#define SILENCE_NS UINT64_C(2000000000)

uint64_t agent_watch_daemon(struct gate *gate)
{
    /* The daemon's count (ledger.h) when it last changed, or when the first thread began to wait; and when that was. */
    static uint64_t beats, heard_ns;
    static bool watched;
    /* While the process holds still, a thread that comes to the gate does not wake the agent, so it may be waiting. */
    bool waits_at_gate = atomic_load_explicit(&gate->word, memory_order_relaxed) >= GATE_DRAINING &&
                         (agent.held || atomic_load_explicit(&gate->waiters, memory_order_relaxed));
    bool waits = agent.connection.open && (waits_at_gate || agent_is_asked_for_room());
    if (!waits) {
        watched = false;
        return UINT64_MAX;
    }
    uint64_t now_ns = monotonic_ns();
    const struct ledger_policy *policy = session_slot()->ledger.policy;
    uint64_t counted = atomic_load_explicit(&policy->beats, memory_order_relaxed); /* policy_beat() */
    if (!watched || counted != beats) {
        watched = true;
        beats = counted;
        heard_ns = now_ns;
    } else if (now_ns - heard_ns >= SILENCE_NS) {
        agent_lose_daemon(gate, "it has been silent for two seconds");
        return 0;
    }
    return LOOK_NS;
}
