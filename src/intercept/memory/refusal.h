/* refusal.h - what is said of GPU memory that a program asked for and did not get.
 *
 * The first refusal of a process is a line on its stderr. Each one is also counted in the ledger and told to the daemon, with
 * what was asked for and what was in the way, as long as the daemon can be told (session_tell_refusal()). Call these before
 * CUDA_ERROR_OUT_OF_MEMORY is answered, outside of all locks of ours. errno is kept. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The limit of the session leaves less than `bytes` on this GPU of the session. The ledger has counted it. */
void refusal_by_limit(uint32_t gpu, uint64_t bytes);

/* What the driver refuses although the limit allows it. */
struct refusal_by_card {
    uint32_t gpu;           /* of the session */
    uint64_t asked_bytes;   /* 0: how many it needs is not known */
    uint64_t charged_bytes; /* what the ledger has of the request so far */
    uint64_t free_bytes,
        total_bytes; /* of the card, as the driver tells programs; 0 in all: it does not say */
};
void refusal_by_card(const struct refusal_by_card *what);

/* The call names a GPU that is not one of the session's. */
void refusal_of_gpu(void);

/* By the limit; or of the GPU, unless `is_named`: the session names it. */
void refusal_at(bool is_named, uint32_t gpu, uint64_t bytes);
