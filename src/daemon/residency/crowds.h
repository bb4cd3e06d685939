/* crowds.h - of each session, what the others have together that share a place with it. For residency.c and its callers.
 *
 * Found for all sessions at once: those with the same places are added up first, so that the work grows with the number of
 * sessions, and not with its square. Only the kinds of sessions by their places are compared with each other. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/residency/seen.h"

/* Of the others that share a place with a session. */
struct residency_crowd {
    /* Those that may want the place now: they wait, or work there and can leave. */
    unsigned claimants;
    uint64_t promised;      /* their minimum shares together */
    uint32_t least_promise; /* the least of these, and of the session's own */
    /* Those that wait; UINT64_MAX: none does. */
    uint64_t waits_since_ns; /* since when the first of them has waited */
    uint64_t least_held_ns;
};

/* Sets crowds[i] for each sessions[i]. False: out of memory. */
bool residency_find_crowds(const struct residency_session *sessions, unsigned count,
                           struct residency_crowd *crowds);
