/* checkpoints.h - processes that another one has locked, or whose memory it has taken off the GPUs (cuCheckpointProcess*).
 *
 * A locked process makes no driver call: its threads wait at the next one. The bytes of a checkpointed process are nobody's,
 * and no list of processes has it. Processes may have been told to take it badly (faults.h). Their contents stay in the process, where the simulation has them anyway. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cuda/driver_more.h"

/* The state of the process `pid`. INVALID_VALUE: it has no GPU of this machine, or is not the caller's to change. */
CUresult checkpoint_state(pid_t pid, CUprocessState *state);

/* Change its state. ILLEGAL_STATE: it is not in `from`; NOT_SUPPORTED: it holds memory that others hold too;
 * OUT_OF_MEMORY: its memory does not fit any more, and it stays as it is. */
CUresult checkpoint_change(pid_t pid, CUprocessState from, CUprocessState to);

/* The process has been checkpointed: let happen what it was told to let happen. UNKNOWN: it has ended. */
CUresult checkpoint_faulty(pid_t pid);
/* Whether a restore of it is refused for good; and one has found no room. */
bool checkpoint_has_failed(pid_t pid);
void checkpoint_note_no_room(pid_t pid);
/* Whether it hangs for good in a call, so that it cannot be locked. */
bool checkpoint_is_stuck(pid_t pid);

/* The bytes that the process held when it was checkpointed, on all GPUs. */
uint64_t checkpoint_bytes(pid_t pid);

/* As this process begins, and at each call: wait until nobody has locked it. */
void checkpoint_begin(void);
void checkpoint_wait(void);
