/* checkpoints.h - processes that another one has locked, or whose memory it has taken off the GPUs (cuCheckpointProcess*).
 *
 * A locked process makes no call of the driver: its threads wait at the next one. The bytes of a checkpointed one are nobody's,
 * and it is in no list of processes; what they hold stays in the process, where the simulation has it anyway. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cuda/driver_more.h"

/* The state of the process `pid`. INVALID_VALUE: it has no GPU of this machine, or is not the caller's to change. */
CUresult checkpoint_state(pid_t pid, CUprocessState *state);

/* From one state to another. ILLEGAL_STATE: it is in neither; NOT_SUPPORTED: it holds memory that others hold too;
 * OUT_OF_MEMORY: there is no room for it any more, and it stays as it is. */
CUresult checkpoint_change(pid_t pid, CUprocessState from, CUprocessState to);

/* The bytes that it held as it was checkpointed, on all GPUs. */
uint64_t checkpoint_bytes(pid_t pid);

/* As this process begins, and at each call: wait until nobody has locked it. */
void checkpoint_begin(void);
void checkpoint_wait(void);
