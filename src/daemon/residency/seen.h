/* seen.h - how residency.h sees sessions and what they have; the words are explained there. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define RESIDENCY_GPUS 64u
/* The places: for each GPU its memory; and after these, for each GPU the right to work there, which counts as one byte,
 * for sessions that take turns although all of them fit. */
#define RESIDENCY_PLACES (2 * RESIDENCY_GPUS)
#define RESIDENCY_SHARE_WHOLE 10000u

struct residency_part {
    unsigned gpu; /* the GPU, or one of the places after the GPUs */
    uint64_t here_bytes, missing_bytes;
    uint64_t least_bytes; /* how much of missing_bytes it cannot do without */
    uint64_t ahead_bytes; /* the answer, with RESIDENCY_COMES_AHEAD: how much may come ahead */
};

enum residency_verdict {
    RESIDENCY_STAYS,
    RESIDENCY_LEAVES,
    RESIDENCY_COMES,
    RESIDENCY_COMES_AHEAD, /* the bytes are in each part's ahead_bytes */
};

struct residency_session {
    struct residency_part *parts;
    unsigned part_count;
    bool can_leave;      /* it is on the card, it can move, and no order to it is under way */
    bool is_leaving;     /* its part of the card will be free soon */
    bool is_coming;      /* some of it, or all, is coming now */
    bool is_ahead;       /* what it has here came ahead: it waits, and can leave */
    bool can_come_ahead; /* it can come piece by piece while it waits */
    bool waits;
    bool comes_last; /* it was given room before, and did not use it */
    unsigned priority;
    uint32_t min_share; /* the share it was promised, of RESIDENCY_SHARE_WHOLE */
    uint64_t waits_since_ns;
    uint64_t came_ns;       /* when its turn began */
    uint64_t idle_since_ns; /* since when it has no work; 0: it has work */
    uint64_t began_ns;      /* when the session was made */
    uint64_t paused_ns;     /* when it last had no work; 0: never */
    uint64_t held_ns;
    uint64_t move_ns; /* how long it takes to leave and come back, estimated */
    uint64_t come_ns; /* how long what is missing now takes to come */
    /* The answer. */
    enum residency_verdict verdict;
    uint64_t due_ns; /* if it waits: when it should be there, estimated; 0: not known */
};
