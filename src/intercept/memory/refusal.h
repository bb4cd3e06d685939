/* refusal.h - what is said of GPU memory that a program asked for and did not get.
 *
 * The first refusal of a process is a line on its stderr. Each one is also counted in the ledger and told to the daemon, with
 * what was asked for and what was in the way, as long as the daemon can be told (session_tell_refusal()). Call these before
 * CUDA_ERROR_OUT_OF_MEMORY is answered, outside of all locks of ours. errno is kept. */
#pragma once

#include <stdint.h>

#include "intercept/memory/charge.h"

/* The limit of the session leaves less than `bytes` on this GPU of the session. The ledger has counted it. */
void refusal_by_limit(uint32_t gpu, uint64_t bytes);

/* The driver refuses what the limit allows: the card has less than `bytes` left. 0: how many it needs is not known.
 * `charged_bytes`: what the ledger has of the request so far. */
void refusal_by_card(uint32_t gpu, uint64_t bytes, uint64_t charged_bytes);

/* The call names a GPU that is not one of the session's. */
void refusal_of_gpu(void);

/* By the limit, or of the GPU: whichever `place` says. */
void refusal_at(enum gpu_place place, uint32_t gpu, uint64_t bytes);
