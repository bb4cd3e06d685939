/* residency.h - whose memory is on the card: who leaves, who comes. Pure: the caller says how each session stands, and is
 * told what to do.
 *
 * here      bytes of a session that can move and are on a GPU
 * missing   bytes that the session wants there besides: its memory that is away, and what one of its threads waits for
 * waits     the session has work and something of it is missing, or one of its threads waits for room
 * turn      the time from when a session has come until it may be sent away again although it has work. It is so long that
 *           moving takes at most a tenth of it. A session without work has no turn: it leaves as soon as another needs the
 *           room. A program that pauses now and then may work until its next pause: for a tenth of the turn longer, and for
 *           up to a whole turn longer while it has not held two turns more than the others that wait. Turns are longer for
 *           sessions that were promised more of the GPU, because turns must keep shares too
 * held      how long a session has worked while others waited for its room
 * owed      the session was promised a share of the GPU, and has waited so long that it would get less than its share
 * ahead     memory of a session that still waits comes into room that nobody needs yet. One session at a time on each GPU,
 *           and none while another session comes there, because both would share the link
 *
 * Sessions that wait come in this order: a session in its turn that asks for more; sessions that are owed; the higher
 * priority; the longest wait. The first gets what room there is. If that is not enough, just enough others leave for it:
 * first memory that has come ahead for sessions behind it; then sessions without work, the longest idle first; then
 * sessions whose turn is over, lower priorities first, then the one that came first. A session with work does not leave for
 * one of a lower priority, unless that one is owed. The next in the order come into the room that is left. If more is on a
 * GPU than fits, as memory that the driver pages may be, the session that came last leaves. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/residency/crowds.h"

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

/* The bounds of a turn's length. */
struct residency_turns {
    uint64_t least_ns, most_ns;
};

/* How long the session's turn is, beside its crowd. */
uint64_t residency_turn_ns(const struct residency_session *session, const struct residency_crowd *crowd,
                           const struct residency_turns *turns);

/* Decide: sets each session's verdict. `free_bytes`: what is free in each place; below 0: more is there than fits.
 * Returns when to ask again at the latest, because a turn will be over; UINT64_MAX: when something has changed. The work
 * grows a little faster than the number of sessions. Without memory for it, all stay as they are. */
uint64_t residency_decide(struct residency_session *sessions, unsigned count,
                          const int64_t free_bytes[RESIDENCY_PLACES], const struct residency_turns *turns,
                          uint64_t now_ns);
