/* facts/record.h - what agents told, and what they were told. Nothing here is a guess.
 *
 * Written by facts/ alone. Times are nanoseconds of the arbiter's clock; sets of GPUs are bits. */
#pragma once

#include "daemon/schedule/types.h"

enum arbiter_gate {
    PROCESS_CLOSED,
    PROCESS_OPEN,
    PROCESS_CLOSING, /* told to close; its session's lease lasts until it answers */
    PROCESS_OVERDUE, /* the same, but the arbiter does not wait for the answer any more */
};

struct process_facts {
    uint64_t gpus;
    enum arbiter_gate gate;
    bool wants;
    /* Its memory is off the card, or ordered off it: it gets no lease that can end, and waits for none. */
    bool is_away;
    /* It reported the beginning of a burst, and not its end yet. */
    bool is_bursting;
    /* Number of its last grant; 0: a lease of a free GPU. */
    uint64_t lease;
    /* Up to when its busy time is known; and how much of the time from the opening of its gate to then it did not
     * claim as busy. */
    uint64_t reported_at, spare_ns;
    /* When its agent was last told to forget what calls took: because its gate opened, or because a turn began in
     * which its session is measured. */
    uint64_t afresh_at;
    /* Its longest piece of work: no longer than its gate has been open, which is since `open_since` (0: its gate is
     * closed). */
    uint64_t longest_ns, open_since;
};

struct session_facts {
    struct share share;
    unsigned priority;
    uint64_t came_at; /* when the first process came */
    /* The GPUs on which its processes run and shares count: what it leases. */
    uint64_t gpus;

    enum arbiter_lease lease;
    /* The lease's GPUs, and since when it lasts. */
    uint64_t held, since;
    /* The lease was asked back, and lasts until its processes have answered. */
    bool closing;
    /* What the lease was granted with. */
    uint32_t flags;
    uint64_t ahead_ns;
    /* Its processes were seen to wait for each other's work, as those of a collective do. */
    bool needs_steps;
    /* Others hold still for its bursts. */
    bool is_favoured;
    /* When another session's gate was last open beside it; and when the gates of several of its own processes last
     * were. */
    uint64_t company_at, together_at;
    /* Time of its turn since it was charged last, by GPU, divided among the sessions whose turns overlap. */
    double open_ns[ARBITER_GPUS];

    /* When a process of the session last reported on its work, or the lease began. */
    uint64_t told_at;
    /* Of the time with work in the last report, the part in which the GPU had begun with it. */
    double told_begun;
    /* When its work under the lease ended, as its agent says; 0: it has not said so. */
    uint64_t ended_at;
    /* Calls that were done, in all; and how long its threads waited at gates, in all and by length. */
    double calls;
    uint64_t waited_ns;
    uint64_t waits[WAITS_BUCKETS];
};
