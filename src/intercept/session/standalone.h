/* standalone.h - a process limited on its own, without a daemon: a ledger that nobody else sees, made from
 * limits in the environment. GPUs are entered in its policy as the process meets them. */
#pragma once

#include "base/error.h"
#include "cuda/driver.h"
#include "intercept/session/attachment.h"

/* Make the ledger, with one slot that is ours, for the settings' limits. 0 or a negative errno. */
int standalone_open(const struct session_settings *settings, struct lock *lock, struct attachment *attachment,
                    struct error *error);

/* What this process's first context on a GPU of the policy takes, by what NVML shows for it beyond what is charged; later ones
 * are charged that from the start. 0 where memory is not limited, or NVML cannot tell. */
uint64_t standalone_context_cost(const struct ledger_slot *slot, uint32_t gpu);

/* The lowest cap on time among these GPUs (a bit for each of the policy), in ten-thousandths. */
uint32_t standalone_cap(uint64_t gpus);

/* How long the process's memory stays where it is, on the average, before it leaves the card and comes back: GPUSLICE_OVERSUBSCRIBE
 * can have it moved for no need, to test programs. 0: it stays. */
uint64_t standalone_move_ns(void);

/* Enter a GPU in the policy, if the limits name it. `ordinal` is CUDA's, or -1 when NVML met the GPU first.
 * Returns its index, or -1. Under the session's `deciding` lock. */
int standalone_add_gpu(struct ledger *ledger, const uint8_t uuid[static 16], int ordinal);
