/* standing.h - what sessions get of the GPUs' time, for answers and metrics. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/schedule/arbiter.h"

struct session;

/* All zero for a session that no agent has connected for. */
struct standing {
    enum arbiter_lease lease;
    bool waits, is_undrainable;
    uint64_t waited_ns; /* at its processes' gates, over all threads */
    uint64_t overruns;
    const uint64_t *waits_by_length; /* base/waits.h; NULL: no agent has connected */
    bool understates; /* its agents say much less than NVML shows, so NVML's figure is charged */
    bool takes_turns; /* else it is a guest */
    double progress;  /* its present speed, as a part of its speed alone */
};
struct standing standing_of(const struct session *session);
/* What the session used of the GPU's time, in all; the time in which others were kept from the GPU; and the part,
 * 0..1, that it used of the last ARBITER_WINDOW_S seconds. */
uint64_t standing_used_ns(const struct session *session, unsigned policy_gpu);
uint64_t standing_held_ns(const struct session *session, unsigned policy_gpu);
double standing_achieved_ratio(const struct session *session, unsigned policy_gpu);

/* Why it is a guest or takes turns, in a sentence without its end; "" where no share counts. `text` has room for
 * STANDING_WHY characters, and is returned. */
#define STANDING_WHY 192
const char *standing_why(const struct session *session, char *text);

/* The names in answers and metrics: "exclusive", and so on. */
const char *standing_lease_name(enum arbiter_lease lease);
const char *standing_mode_name(enum arbiter_mode mode);
