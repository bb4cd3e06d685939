/* agent_state.c - what the agent knows, and the mover that it was given. */
#include "intercept/agent/agent_state.h"
#include "intercept/agent/agent.h"

struct agent_state agent;

static const struct agent_mover *_Atomic mover;
atomic_bool agent_moves_memory;

void agent_set_mover(const struct agent_mover *set)
{
    atomic_store_explicit(&agent_moves_memory, true, memory_order_relaxed);
    atomic_store_explicit(&mover, set, memory_order_release); /* agent_mover() */
}

const struct agent_mover *agent_mover(void)
{
    return atomic_load_explicit(&mover, memory_order_acquire);
}

bool agent_has_mover(void)
{
    return agent_mover() != NULL;
}
