/* lease/record.h - leases that begin, end, or do not end. Written by lease/ alone. Times are nanoseconds. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct process_lease {
    /* While closing: it reported that its work does not end, since a process of its session last took a step; and
     * when the work should have ended, with the slices of the GPU's time that others get meanwhile. */
    bool stalls;
    uint64_t stalls_at;
    /* While closing: its agent has said something since it was told to close. */
    bool has_answered;
    /* While closing: when its work should be done; UINT64_MAX: not known. */
    uint64_t done_at;
};

struct session_lease {
    /* From then on the turn may be taken away. */
    uint64_t turn_ends;
    /* `leaves`: it closes of its own accord. `has_left`: while closing, its work was once so little that the next
     * session may have begun; what its steps add does not undo that. */
    bool leaves, has_left;
    /* When the arbiter gives up waiting for the closing; when the closing began. */
    uint64_t closes_at, closing_at;
    /* Its processes seem to wait for each other's work, as those of a collective do. `entangled`: for so many
     * closings to come this is taken for granted; `entangled_for`: how many it will be the next time;
     * `closes_alone`: it is taken for granted in this closing. */
    unsigned entangled, entangled_for;
    bool closes_alone;
    /* In this closing: how many steps were taken, until when others may be taken, and since when not all processes
     * have answered. */
    unsigned steps;
    uint64_t steps_until, unanswered_since;
    /* Failed drains in a row, and when the next one is tried. */
    unsigned tries;
    uint64_t retry_at;
    uint64_t overruns;
};

struct gpu_lease {
    /* Serial number of the session that last had a turn on it. */
    uint64_t holder;
    uint64_t handovers;
    /* When a session last waited for a lease on it. */
    uint64_t waited_at;
};
