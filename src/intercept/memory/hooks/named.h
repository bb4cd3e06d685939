/* named.h - the process's memory stays where the driver knows its addresses, while a call names some. */
#pragma once

#include "intercept/agent/agent.h"
#include "intercept/submit/gate.h"

/* Waits while the memory is away, so without any lock. `caller` is the hook's. What it returns goes to named_let_go(). */
static inline bool named_hold(const void *caller)
{
    struct gate *gate = agent_takes_addresses() ? gate_of() : NULL;
    return gate && gate_names_begin(gate, caller);
}

static inline void named_let_go(bool holds)
{
    if (holds)
        gate_names_end();
}
