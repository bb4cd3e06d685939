/* named.h - keeps the process's memory at the addresses that the driver knows, while a call names some of them. */
#pragma once

#include "intercept/agent/agent.h"
#include "intercept/submit/gate.h"

/* Waits while the memory is away, so the caller must hold no lock. `caller` is the code that called the hook. Pass the result
 * to named_let_go(). */
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
