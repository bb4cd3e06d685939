/* admission_gpu.h - one GPU, as admission sees it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/engine.h"

/* What "others" have leaves out the session that is being changed. */
struct admission_gpu {
    const char *label;       /* what people call it */
    uint64_t total_bytes;    /* what programs can have of it */
    uint64_t kept_bytes;     /* what its driver keeps for itself besides */
    uint64_t reserved_bytes; /* reserved by others whose memory stays on the card */
    /* Of others whose memory can leave the card to make room for each other: the largest limit without its context.
     * `paged_bytes` is the same for sessions whose limits may pass the card, because the driver pages what does not
     * fit. */
    uint64_t movable_bytes;
    uint64_t paged_bytes;
    uint64_t staying_bytes;  /* the contexts of all of these, which stay on the card while the rest is away */
    uint64_t context_bytes;  /* what one context takes; 0: not known */
    uint64_t outside_bytes;  /* held by processes in no session, and left to them */
    uint32_t promised_share; /* the sum of others' minima, in ten-thousandths */
    unsigned waiting;        /* how many sessions wait for room here, and come first */
    bool keeps[LEDGER_ENGINE_COUNT]; /* memory of sessions with that engine cannot leave it */
};
