/* standing.h - how sessions stand with the GPUs' time, for those who show it: answers and metrics. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/schedule/arbiter.h"

struct session;

/* Zero for one that no agent has come for. */
struct standing {
    enum arbiter_lease lease;
    bool waits, is_undrainable;
    uint64_t waited_ns; /* at its processes' gates, over all threads */
    uint64_t overruns;
    const uint64_t *waits_by_length; /* base/waits.h; NULL: no agent has come */
    bool understates;                /* its agents say much less than NVML shows: it is charged by that */
    bool takes_turns;                /* else it is a guest */
    double progress;                 /* its speed of late, as part of its speed alone */
};
struct standing standing_of(const struct session *session);
/* Of a card's time: all it got, and its part of the last seconds (0..1). */
uint64_t standing_used_ns(const struct session *session, unsigned policy_gpu);
uint64_t standing_held_ns(const struct session *session,
                          unsigned policy_gpu); /* that others were kept from it */
double standing_achieved_ratio(const struct session *session, unsigned policy_gpu);

/* What stands in answers and metrics: "exclusive", and so on. */
const char *standing_lease_name(enum arbiter_lease lease);
const char *standing_mode_name(enum arbiter_mode mode);
