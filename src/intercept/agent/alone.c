/* alone.c - the agent of a process that is limited on its own (standalone.h): it keeps the environment's cap on GPU time, or
 * moves memory at random moments, to test programs. */

#include "base/clock.h"
#include "base/units.h"
#include "intercept/agent/agent.h"
#include "intercept/agent/agent_state.h"
#include "intercept/session/standalone.h"
#include "intercept/submit/gate.h"

/* How often to look at a busy process: a tenth of what its bucket holds. */
#define LOOK_NS UINT64_C(5000000)
#define PATIENCE_NS UINT64_C(100000000)
#define WAITERS_NS UINT64_C(200000) /* how often to look whether the threads that were woken have gone on */

/* A random time that is `mean_ns` on average. */
static uint64_t some_time_ns(uint64_t mean_ns)
{
    agent.measure.chance = agent.measure.chance * 1664525u + 1013904223u;
    return (agent.measure.chance >> 8) * (mean_ns * 2) >> 24;
}

static void no_progress(void)
{
}

/* Move the memory off the card if it is there, else back. If only a part could move, the memory counts as away. */
static void move(struct gate *gate)
{
    struct agent_memory memory;
    if (!agent_begin_move(gate))
        return;
    bool stays_away = false;
    if (agent.move.is_away)
        stays_away = agent_mover()->restore(no_progress) < 0;
    else if (agent_drain(gate, PATIENCE_NS, AGENT_CLOSES) && agent_move_out(gate, PATIENCE_NS))
        stays_away = agent_mover()->evict(no_progress) == 0;
    agent_mover()->count(&memory);
    if (agent.move.is_away && !stays_away && !memory.evicted_bytes)
        agent_move_in(gate);
    agent_open_gate(gate, GATE_FREE);
    agent_end_of_move();
}

/* GPUSLICE_OVERSUBSCRIBE=swap,TIME: move the process's memory off the card and back at random moments. */
static uint64_t serve_moves(struct gate *gate, uint64_t mean_ns)
{
    if (!agent_mover())
        return mean_ns;
    uint64_t now_ns = monotonic_ns();
    /* A thread that waited while the memory was away makes one call before the memory leaves again. */
    bool has_waiters = atomic_load_explicit(&gate->waiters, memory_order_relaxed) > 0;
    if (now_ns >= agent.next_move_ns && !agent.move.is_away && has_waiters)
        return WAITERS_NS;
    if (now_ns >= agent.next_move_ns) {
        move(gate);
        now_ns = monotonic_ns();
        agent.next_move_ns = now_ns + some_time_ns(mean_ns);
    }
    return agent.next_move_ns - now_ns;
}

uint64_t agent_serve_alone(struct gate *gate)
{
    uint64_t now_ns = monotonic_ns();
    uint32_t cap = standalone_cap(atomic_load_explicit(&gate->gpus, memory_order_relaxed));
    if (!agent.cap.at_ns) {
        cap_bucket_begin(&agent.cap, cap, now_ns);
        agent_count_from(gate, now_ns);
    }
    cap_bucket_advance(&agent.cap, cap, now_ns);
    if (cap == SHARE_WHOLE && standalone_move_ns())
        return serve_moves(gate, standalone_move_ns());
    if (cap == SHARE_WHOLE) {
        gate_open(gate, GATE_FREE);
        return AGENT_CHECK_NS;
    }
    if (atomic_load_explicit(&gate->word, memory_order_relaxed) == GATE_CLOSED) {
        uint64_t wait_ns = cap_bucket_wait_ns(&agent.cap);
        if (wait_ns)
            return wait_ns;
        agent_count_from(gate, now_ns);
    }
    gate_open(gate, GATE_PACED);
    agent_look(gate, 0);
    cap_bucket_charge(&agent.cap, agent_measure(gate, monotonic_ns()).busy_ns);
    if (!cap_bucket_is_spent(&agent.cap) || now_ns < agent.drain_again_ns)
        return agent.measure.rests ? AGENT_CHECK_NS : LOOK_NS;
    if (!agent_drain(gate, PATIENCE_NS, AGENT_CLOSES))
        agent.drain_again_ns = monotonic_ns() + PATIENCE_NS;
    cap_bucket_charge(&agent.cap, agent_measure(gate, monotonic_ns()).busy_ns);
    return 0;
}
