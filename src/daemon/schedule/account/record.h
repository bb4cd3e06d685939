/* account/record.h - what sessions held and are owed, and what their maxima leave them.
 *
 * Written by account/ alone. Times are nanoseconds. */
#pragma once

#include "daemon/schedule/types.h"

/* GPU time taken beyond one's part, as of `since`, and how fast it is paid back (ns per ns). */
struct debt {
    double ns, rate;
    uint64_t since;
};

/* A user who owns sessions. Kept while there are any, and until what they took beyond their part is paid back. */
struct arbiter_user {
    struct arbiter_user *next;
    uint64_t id;
    unsigned sessions;
    /* Held time that sessions were ahead when they ceased to take turns; and what sessions had overdrawn on their
     * maxima. */
    struct debt ahead[ARBITER_GPUS], overdrawn;
    /* For how long its sessions may be measured while others' gates are closed, as of `measured_at`. */
    double measure_ns;
    uint64_t measured_at;
};

struct session_account {
    struct arbiter_user *user;
    /* It takes turns: what it holds is balanced with what others hold. */
    bool in_turns;
    /* 0 < weight <= 1. */
    double weight;
    /* It waited or held a lease at the last decision. */
    bool is_backlogged;
    uint64_t waits_since;
    /* Up to when its turn is charged. */
    uint64_t charged_at;
    /* Held time, in all; and virtual time, that is held time by weight. */
    double held_ns[ARBITER_GPUS], vt[ARBITER_GPUS];
    /* How far it is behind its minimum; negative: ahead. */
    double owed_ns;
    /* The same while it takes turns, less what hand-overs cost. */
    double robbed_ns;
    /* How long it has not wanted the GPU. */
    double idle_ns;
    /* Its speed as a part of its speed alone, smoothed; and in all, times the time of which it is known. */
    double progress, speed_ns, passed_ns;
    /* GPU time that its maximum leaves it; negative: overdrawn. Without a maximum: a full bucket. */
    double tokens;
    bool is_throttled;
};

struct gpu_account {
    double clock[ARBITER_PRIORITIES];
};
