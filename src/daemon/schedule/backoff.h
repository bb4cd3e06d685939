/* backoff.h - what lasts until a moment, and for twice as long the next time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/schedule/tunables.h"

#define BACKOFF_MOST_NS (16 * BACKOFF_FIRST_NS)

struct backoff {
    uint64_t until;  /* 0: never yet */
    uint64_t length; /* the next time */
};

static inline bool backoff_lasts(const struct backoff *backoff, uint64_t now)
{
    return now < backoff->until;
}

/* It lasts from now on; the next time for twice as long, up to BACKOFF_MOST_NS. */
static inline void backoff_begin(struct backoff *backoff, uint64_t now)
{
    backoff->until = now + backoff->length;
    backoff->length *= backoff->length < BACKOFF_MOST_NS ? 2 : 1;
}

static inline void backoff_end(struct backoff *backoff, uint64_t now)
{
    backoff->until = backoff->until < now ? backoff->until : now;
}
