/* standalone.h - a process limited on its own, without a daemon: it has a ledger that no other process sees, made
 * from the limits in the environment. GPUs are entered in its policy as the process meets them. */
#pragma once

#include "base/error.h"
#include "cuda/driver.h"
#include "intercept/session/attachment.h"

/* Make the ledger from the settings' limits, and claim its one slot. Returns 0 or a negative errno. */
int standalone_open(const struct session_settings *settings, struct lock *lock, struct attachment *attachment,
                    struct error *error);

/* What this process's first context on a GPU of the policy takes: what NVML shows for the process beyond what it is
 * charged. Later contexts are charged that when they are made. 0 where memory is not limited, or NVML cannot tell. */
uint64_t standalone_context_cost(const struct ledger_slot *slot, uint32_t gpu);

/* The lowest cap on time among these GPUs (bit i: GPU i of the policy), in ten-thousandths. */
uint32_t standalone_cap(uint64_t gpus);

/* How long, on average, the process's memory stays in place before it leaves the card and comes back.
 * GPUSLICE_OVERSUBSCRIBE can ask for such moves, which nothing needs, to test programs. 0: it does not move. */
uint64_t standalone_move_ns(void);

/* Enter a GPU in the policy, if the limits name it. `ordinal` is CUDA's, or -1 when NVML met the GPU first. Returns
 * the GPU's index, or -1. Call it under the session's `deciding` lock. */
int standalone_add_gpu(struct ledger *ledger, const uint8_t uuid[static 16], int ordinal);
