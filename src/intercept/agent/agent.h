/* agent.h - the thread that speaks with the daemon about the GPUs' time, and opens and closes the gate.
 *
 * One a process, started with the first context of a session whose daemon schedules. It has a connection of
 * its own (messages: wire/wire.h), blocks all signals, and keeps no context alive. Without a daemon the gate
 * is open: if the connection ends, or was never had, the agent tries again every second. In a process that is
 * limited on its own (standalone.h) it keeps the cap on its GPU time, if there is one (cap_bucket.h). */
#pragma once

#include <stdint.h>

#include "cuda/driver.h"

/* The process has a context on this GPU of the policy: the first starts the agent. No more of its contexts
 * are there. */
void agent_meet(uint32_t gpu);
void agent_part(uint32_t gpu);

/* Before the program destroys a context: the agent asks about it no more. Waits only while the agent is
 * asking. */
void agent_leave_context(CUcontext context);
